"""What the subcommands share of the command line: how they parse their arguments, and how they fail.

A command fails with a `CommandError`, which `main` turns into one line on stderr and an exit code.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # what a shell reports for a command that SIGINT ended

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
DEFAULT_BOOTSTRAP_SERVER = f"{DEFAULT_HOST}:{DEFAULT_PORT}"
PORT_MAX = 65_535
SCHEME = "PLAINTEXT"


class CommandError(Exception):
    """The command cannot do what it was asked to do; the message is one line that says why and what to do about it."""

    exit_code = EXIT_FAILED


class UsageError(CommandError):
    """The command line makes no sense, whatever the state of the node."""

    exit_code = EXIT_USAGE


class Parser(argparse.ArgumentParser):
    """An argument parser that keeps the layout of its examples and reports errors in one line."""

    def __init__(self, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Like `parse_args`, but the error about an unknown argument suggests the option that was probably meant."""
        options, unknown = self.parse_known_args(with_durations_joined(arguments))
        if unknown:
            self.exit(EXIT_USAGE, f"{self.prog}: {self.complaint(unknown)}\n")
        return options

    def complaint(self, unknown: Sequence[str]) -> str:
        """The error about unknown arguments: about a mistyped option rather than its value, which it leaves over."""
        option = next((word for word in unknown if word.startswith("-")), None)
        if option is None:
            return f"unexpected argument {unknown[0]!r} (`{self.prog} --help` explains what it takes)"
        name = "--" + option.partition("=")[0].lstrip("-")
        known = [known for known in self._option_string_actions if known.startswith("--")]
        return f"unknown option {option.partition('=')[0]!r}; {nearest(name, known)}"

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (`{self.prog} --help` explains the options)\n")


def with_durations_joined(arguments: Sequence[str]) -> list[str]:
    """`--from -10m` as `--from=-10m`: argparse would take so long ago for an option."""
    import re

    joined: list[str] = []
    for word in arguments:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and re.fullmatch(r"-\d[\d.]*[a-z]+", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown word: the one that was probably meant, else all of them."""
    from difflib import get_close_matches

    words = list(known)
    longer = [candidate for candidate in words if candidate.startswith(word)]
    close = longer if len(longer) == 1 else get_close_matches(word, words, n=1, cutoff=0.7)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(words)}"


def add_bootstrap_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap-server",
        type=parse_bootstrap_server,
        default=DEFAULT_BOOTSTRAP_SERVER,
        metavar="HOST:PORT[,…]",
        help=f"one or more brokers of the cluster (default {DEFAULT_BOOTSTRAP_SERVER})",
    )


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `host`, `port`, `:port`, `[v6 address]:port` → host and port; port 0 means any free port.

    A port alone is on this machine. The form in which a node announces itself, with PLAINTEXT:// in front, is accepted
    too.
    """
    scheme, has_scheme, rest = text.strip().partition("://")
    if has_scheme and scheme.upper() != SCHEME:
        raise argparse.ArgumentTypeError(f"{text!r}: only {SCHEME} is supported; expected HOST:PORT")
    host, port_text = split_address(rest if has_scheme else scheme)
    if port_text is None and host.isdecimal():
        host, port_text = "", host
    if not host and port_text is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no host: expected HOST:PORT")
    return host or DEFAULT_HOST, DEFAULT_PORT if port_text is None else parse_port(port_text, text)


def parse_port(port_text: str, address: str) -> int:
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"{address!r}: the port must be a number from 0 to {PORT_MAX}")
    return int(port_text)


def split_address(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":") if rest else None
    if text.count(":") > 1:
        return text, None  # a bare IPv6 address: none of its colons precedes a port
    host, colon, port = text.partition(":")
    return host, port if colon else None


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_addresses(text: str) -> list[tuple[str, int]]:
    return [parse_address(part) for part in text.split(",") if part.strip()]


def parse_bootstrap_server(text: str) -> str:
    """A list of complete addresses, which librdkafka and our own client both accept."""
    addresses = parse_addresses(text)
    if not addresses:
        raise argparse.ArgumentTypeError("no address given: expected HOST:PORT")
    return ",".join(join_address(host, port) for host, port in addresses)


def add_overrides(parser: Parser, explanation: str) -> None:
    """`--set KEY=VALUE`, for broker settings."""
    parser.add_argument(
        "--set",
        dest="overrides",
        type=parse_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=explanation,
    )


def parse_pair(text: str) -> tuple[str, str]:
    """`key=value`; the value may contain more equals signs, and may be empty."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key.strip(), value


def reopen_closed_streams() -> None:
    """Whoever started us may have closed what we read from or write to (`<&-`): nothing is there, then, and that is no
    reason to fail. Nor may the first file or socket that is opened take its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It stays open for as long as the process lives.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def drop_output() -> None:
    """Nobody reads standard output any more. Python would complain at exit about what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def positive_int(text: str) -> int:
    value = _int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def non_negative_int(text: str) -> int:
    value = _int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration")
    return value


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
