"""The command lines of those tools of Kafka that have subcommands, or say that an argument is required.

What is accepted is what argparse4j accepts, which is argparse in Java: so Python's does the work, and only what it says
about a mistake is put in the other's words.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.flags import read_int, read_long
from barnabas.cli.kafka.tool import ToolEnd, ToolUsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ACTION: Final = "ACTION"
"""What stands for the names of subcommands."""

_IN_JAVAS_WORDS: Final = (
    (re.compile(rf"the following arguments are required: (.*, )?{ACTION}"), "too few arguments"),
    (re.compile(r"the following arguments are required: (?:.*, )?(.+)"), r"argument \1 is required"),
    (re.compile(r"unrecognized arguments: (\S+).*"), r"unrecognized arguments: '\1'"),
    (re.compile(rf"argument {ACTION}: "), ""),
    (re.compile(r"expected at least one argument"), "expected 1 argument(s)"),
    (re.compile(r"invalid int value: '(.*)'"), r"""could not convert '\1' to Integer (For input string: "\1")"""),
)
_SHORT: Final = range(-(1 << 15), 1 << 15)


class ToolParser(argparse.ArgumentParser):
    """An argument parser whose mistakes are ToolUsageErrors."""

    def __init__(
        self,
        *arguments: Any,
        help_exit_code: int = EXIT_OK,
        complaint: str = "{tool}: error: {message}",
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.help_exit_code = help_exit_code
        """Some of Kafka's tools take a request for help as a failure."""
        self.complaint = complaint
        """How the tool words a mistake."""
        self._inner: argparse._SubParsersAction[ToolParser] | None = None

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        for inner in self._inner.choices.values() if self._inner else ():
            inner.help_exit_code, inner.complaint = self.help_exit_code, self.complaint
        strange = self._first_unknown(words)
        if strange is not None:
            self.error(f"unrecognized arguments: {strange}")
        options, unknown = self.parse_known_args(words)
        if unknown:
            self.error(f"unrecognized arguments: {unknown[0]}")
        return options

    def add_actions(self) -> argparse._SubParsersAction[ToolParser]:
        """Where subcommands are added; one of them has to be given."""
        self._inner = self.add_subparsers(dest="command", required=True, metavar=ACTION)
        return self._inner

    def add_servers(self, *, short: bool = False) -> None:
        """`--bootstrap-server` or `--bootstrap-controller`, one of which has to be given."""
        either = self.add_mutually_exclusive_group(required=True)
        either.add_argument(
            "--bootstrap-server", *(["-b"] if short else []), help="the brokers to connect to, as host:port"
        )
        either.add_argument(
            "--bootstrap-controller", *(["-C"] if short else []), help="the controllers to connect to instead"
        )

    def _first_unknown(self, words: Sequence[str]) -> str | None:
        """The first word before the action that is no option: it is what is complained of, whatever else is missing."""
        rest = iter(words)
        for word in rest:
            if not word.startswith("-"):
                return None
            name, equals, _ = word.partition("=")
            actions = [action for option, action in self._option_string_actions.items() if option.startswith(name)]
            if not actions:
                return word
            if actions[0].nargs != 0 and not equals:
                next(rest, None)
        return None

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:  # noqa: ARG002 - as argparse calls it
        raise ToolEnd(status or self.help_exit_code)

    def error(self, message: str) -> NoReturn:
        for pattern, words in _IN_JAVAS_WORDS:
            message = pattern.sub(words, message)
        # A subcommand's parser has the tool's name and its own.
        raise ToolUsageError(self.complaint.format(tool=self.prog.partition(" ")[0], message=message))


class PrintVersion(argparse.Action):
    """`--version` where that is no failure, whatever a request for help is."""

    def __init__(self, option_strings: Sequence[str], dest: str, version: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)
        self._version = version

    def __call__(self, *_: object) -> NoReturn:
        print(self._version)
        raise ToolEnd(EXIT_OK)


def java_int(text: str) -> int:
    return _number(text, read_int, "Integer")


def java_long(text: str) -> int:
    return _number(text, read_long, "Long")


def java_short(text: str) -> int:
    number = _number(text, read_int, "Short")
    if number not in _SHORT:
        raise argparse.ArgumentTypeError(
            f"could not convert '{text}' to Short (Value out of range. Value:\"{text}\" Radix:10)"
        )
    return number


def _number(text: str, read: Callable[[str], int], kind: str) -> int:
    try:
        return read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"could not convert '{text}' to {kind} (For input string: \"{text}\")"
        ) from None
