"""How one of Kafka's tools ends: well, with the words and the exit code of Kafka's own, or at somebody's ^C."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_FAILED: Final = 1
KAFKA_VERSION: Final = "4.3.1"
"""Whose flags and output the tools have."""


class ToolError(Exception):
    """The tool cannot do what it was asked to do. The message is what Kafka's tool says, without trace or usage."""

    def __init__(
        self, message: str, exit_code: int = EXIT_FAILED, *, is_error_output: bool = True, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.is_error_output = is_error_output
        """Whether it is printed on stderr; Kafka's tools print some of their failures on stdout."""
        self.hint = hint
        """What to do about it, where Kafka's words do not say; printed on stderr, after them."""


class ToolUsageError(ToolError):
    """The command line makes no sense, whatever the state of the cluster."""


class ToolEnd(Exception):  # noqa: N818 - nothing has failed
    """The tool has said what it was asked about itself, and there is nothing more to do."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def ending(name: str, tool: Callable[[list[str]], int], words: Sequence[str]) -> int:
    """Run a tool: its exit code."""
    try:
        return tool(list(words))
    except ToolEnd as end:
        return end.exit_code
    except ToolError as failure:
        sys.stdout.flush()
        print(failure.message, file=sys.stderr if failure.is_error_output else sys.stdout, flush=True)
        if failure.hint:
            print(f"({failure.hint})", file=sys.stderr)
        elif isinstance(failure, ToolUsageError):
            print(f"(`{name} --help` explains the options)", file=sys.stderr)
        return failure.exit_code


def print_help(summary: str, help_text: str) -> int:
    """What `--help` prints, where Kafka's tools do: on stderr, and as if that were a failure."""
    print(summary, file=sys.stderr)
    print(help_text, file=sys.stderr)
    return EXIT_FAILED


def print_version() -> int:
    print(KAFKA_VERSION)
    return EXIT_OK


def warn(message: str) -> None:
    """A word about what was asked, on stderr: what the tool prints stays as Kafka's."""
    sys.stdout.flush()
    print(message, file=sys.stderr)
