"""How `kafka-consumer-groups` fails: on standard output, after an empty line, and with exit code 0.

What went wrong is named in three ways, depending on which layer of Kafka's tool it passes on its way up.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import AskError, asking
from barnabas.cli.kafka.tool import ToolError
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXECUTION: Final = "java.util.concurrent.ExecutionException: "


def bare(failure: AskError) -> str:
    return failure.message


def named(failure: AskError) -> str:
    """With the name of the exception."""
    return failure.with_name


def nested(failure: AskError) -> str:
    """With the name of the exception, and of the one around it."""
    return f"{EXECUTION}{failure.with_name}"


def failed(reason: str, hint: str = "") -> ToolError:
    return ToolError(
        f"\nError: Executing consumer group command failed due to {reason}",
        EXIT_OK,
        is_error_output=False,
        hint=hint,
    )


@contextlib.contextmanager
def asking_cluster(call: str, shown: Callable[[AskError], str]) -> Iterator[None]:
    """What goes wrong with a question ends the tool."""
    try:
        with asking(call):
            yield
    except AskError as failure:
        raise failed(shown(failure), failure.hint) from None


def listing_failed(failure: AskError) -> str:
    """A question to all brokers fails in words of its own where none of them can be found."""
    if failure.error is Error.REQUEST_TIMED_OUT:
        return f"{EXECUTION}org.apache.kafka.common.KafkaException: Failed to find brokers to send ListGroups"
    return nested(failure)


def print_error(message: str) -> None:
    print(f"\nError: {message}")
