"""The command lines of the tools that are loads: numbers as Java reads them, and help that ends as Java's does."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.cluster_access import read_properties_file
from barnabas.cli.kafka.flags import read_int, read_long
from barnabas.cli.kafka.subcommands import ToolParser
from barnabas.cli.kafka.tool import EXIT_FAILED, ToolError, ToolUsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HELP_WORDS = ("-h", "--help")


def parser_for(name: str, description: str) -> ToolParser:
    parser = ToolParser(prog=name, description=description, add_help=False)
    parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    return parser


def help_asked_for(parser: ToolParser, words: Sequence[str]) -> int | None:
    """The exit code, if the help was what was asked for: a failure where it was asked for by name."""
    if words and not any(word in HELP_WORDS for word in words):
        return None
    parser.print_help()
    return EXIT_FAILED if words else EXIT_OK


def an_integer(text: str) -> int:
    return _read(text, read_int, "Integer")


def a_long(text: str) -> int:
    return _read(text, read_long, "Long")


def a_double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _not_a("Double", text) from None


def refuse(parser: ToolParser, message: str) -> ToolUsageError:
    """What is wrong with arguments that are fine one by one."""
    return ToolUsageError(f"{parser.prog}: error: {message}")


def warn_of_older_name(old: str, new: str) -> None:
    print(f"Option {old} has been deprecated and will be removed in a future version. Use {new} instead.")


def properties_given(parser: ToolParser, older: str, older_path: str | None, path: str | None) -> dict[str, str]:
    """The properties in the file of `--command-config`, or of the flag that it was before."""
    if older_path is not None and path is not None:
        raise refuse(parser, f"Options {older} and --command-config are mutually exclusive.")
    if older_path is not None:
        warn_of_older_name(older, "--command-config")
    chosen = older_path or path
    try:
        return {} if chosen is None else read_properties_file(chosen)
    except ToolError as failure:
        raise refuse(parser, failure.message) from None


def construction_failed(client: str, reason: str) -> ToolError:
    """A client that cannot be made of what was given."""
    return ToolError(f"org.apache.kafka.common.KafkaException: Failed to construct kafka {client}", hint=reason)


def _read(text: str, read: Callable[[str], int], kind: str) -> int:
    try:
        return read(text)
    except ValueError:
        raise _not_a(kind, text) from None


def _not_a(kind: str, text: str) -> ArgumentTypeError:
    return ArgumentTypeError(f"could not convert '{text}' to {kind} (For input string: \"{text}\")")
