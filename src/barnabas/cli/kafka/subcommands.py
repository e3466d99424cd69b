"""The command lines of those tools of Kafka that have subcommands, or say that an argument is required.

What is accepted is what argparse4j accepts, which is argparse in Java: so Python's does the work, and only what it says
about a mistake is put in the other's words.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Final, NoReturn

from barnabas.cli.kafka.tool import ToolUsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

ACTION: Final = "ACTION"
"""What stands for the names of subcommands."""

_IN_JAVAS_WORDS: Final = (
    (re.compile(rf"the following arguments are required: {ACTION}"), "too few arguments"),
    (re.compile(r"the following arguments are required: ([^,]+).*"), r"argument \1 is required"),
    (re.compile(r"unrecognized arguments: (\S+).*"), r"unrecognized arguments: '\1'"),
    (re.compile(rf"argument {ACTION}: "), ""),
    (re.compile(r"invalid int value: '(.*)'"), r"""could not convert '\1' to Integer (For input string: "\1")"""),
)


class ToolParser(argparse.ArgumentParser):
    """An argument parser whose mistakes are ToolUsageErrors."""

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        options, unknown = self.parse_known_args(words)
        if unknown:
            self.error(f"unrecognized arguments: {unknown[0]}")
        return options

    def add_actions(self) -> argparse._SubParsersAction[ToolParser]:
        """Where subcommands are added; one of them has to be given."""
        return self.add_subparsers(dest="command", required=True, metavar=ACTION)

    def error(self, message: str) -> NoReturn:
        for pattern, words in _IN_JAVAS_WORDS:
            message = pattern.sub(words, message)
        # A subcommand's parser has the tool's name and its own.
        raise ToolUsageError(f"{self.prog.partition(' ')[0]}: error: {message}")
