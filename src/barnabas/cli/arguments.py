"""The pieces of command-line syntax that several subcommands share: addresses, `key=value` pairs, counts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_PORT = 9092
PORT_MAX = 65_535


class Parser(argparse.ArgumentParser):
    """An argument parser that keeps the layout of its examples and complains in one line."""

    def __init__(self, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` explains the options.\n")


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a complaint about an unknown word: the one that was probably meant, or all there are."""
    from difflib import get_close_matches

    words = list(known)
    close = get_close_matches(word, words, n=1, cutoff=0.7)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(words)}"


def add_bootstrap_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap-server",
        default=DEFAULT_BOOTSTRAP_SERVER,
        metavar="HOST:PORT[,…]",
        help=f"where the cluster answers (default {DEFAULT_BOOTSTRAP_SERVER})",
    )


def parse_address(text: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """`host`, `host:port`, `[v6 address]:port` → host and port. The port may be 0, which means any free one."""
    host, port_text = split_address(text.strip())
    if not host:
        raise argparse.ArgumentTypeError(f"{text!r} has no host: expected HOST:PORT")
    if port_text is None:
        return host, default_port
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"{text!r}: the port must be a number from 0 to {PORT_MAX}")
    return host, int(port_text)


def split_address(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":") if rest else None
    if text.count(":") > 1:
        return text, None  # a bare IPv6 address: its colons are not a port's
    host, colon, port = text.partition(":")
    return host, port if colon else None


def parse_addresses(text: str) -> list[tuple[str, int]]:
    return [parse_address(part) for part in text.split(",") if part.strip()]


def parse_pair(text: str) -> tuple[str, str]:
    """`key=value`; the value may hold further equals signs, and may be empty."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key.strip(), value


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
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time")
    return value


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
