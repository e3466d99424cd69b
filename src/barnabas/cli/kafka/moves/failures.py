"""How `kafka-reassign-partitions` fails: on standard output, most times after `Error: `."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from barnabas.cli.kafka.admin_access import AskError, asking
from barnabas.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator


def failed(reason: str, hint: str = "") -> ToolError:
    return terse(f"Error: {reason}", hint)


def terse(message: str, hint: str = "") -> ToolError:
    """What is no surprise is said without a word before it."""
    return ToolError(message, is_error_output=False, hint=hint)


@contextlib.contextmanager
def asking_cluster(call: str) -> Iterator[None]:
    """What goes wrong with a question ends the tool."""
    try:
        with asking(call):
            yield
    except AskError as failure:
        raise failed(failure.with_name, failure.hint) from None
