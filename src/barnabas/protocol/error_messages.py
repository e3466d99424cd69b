"""What Kafka's clients say about an error that comes without a message of the broker's.

The words, in `error_messages.tsv`, are Kafka's: people search for them, and compare what two programs print.
"""

from __future__ import annotations

import functools
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.errors import Error


def message_of(error: Error) -> str:
    """Kafka's words for an error."""
    return _messages().get(error.name, error.name)


@functools.cache
def _messages() -> dict[str, str]:
    data = pkgutil.get_data("barnabas.protocol", "error_messages.tsv")
    assert data is not None, "the package lacks its data file error_messages.tsv"
    return dict(line.split("\t", 1) for line in data.decode().splitlines())
