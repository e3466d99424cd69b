"""How `kafka-transactions` fails: with what it was about, why, and a word about logging."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from barnabas.cli.kafka.admin_access import AskError, asking
from barnabas.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def failing(what: str, call: str) -> Iterator[None]:
    """Turn what goes wrong with a question into the failure of what it was asked for."""
    try:
        with asking(call):
            yield
    except AskError as failure:
        raise failed(what, failure) from None


def failed(what: str, failure: ToolError) -> ToolError:
    return ToolError(f"{what}: {failure.message}. Enable debug logging for additional detail.", hint=failure.hint)
