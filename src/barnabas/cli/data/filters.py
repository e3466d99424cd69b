"""Which records are wanted: by key, value, headers, what is in their JSON, and their time."""

from __future__ import annotations

import argparse
import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.data.json_paths import Condition, PathError, parse_condition
from barnabas.cli.data.record_forms import headers_of, timestamp_of
from barnabas.cli.times import EXAMPLES, TimeError, parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from barnabas.cli.command_line import Parser

    Filter = Callable[[Message], bool]

NO_TIME: Final = -1


class HeaderFilter(NamedTuple):
    name: str
    pattern: re.Pattern[bytes] | None
    """None for whatever it has."""


def add_filters(parser: Parser) -> None:
    parser.add_argument(
        "--search", type=parse_pattern, metavar="REGEX", help="only records with this in key, value or a header; ends"
    )
    parser.add_argument("--key", type=parse_pattern, metavar="REGEX", help="only records with this in their key")
    parser.add_argument("--value", type=parse_pattern, metavar="REGEX", help="only records with this in their value")
    parser.add_argument(
        "--header",
        type=parse_header,
        action="append",
        default=[],
        metavar="NAME[=REGEX]",
        help="only records with this header; may be given several times",
    )
    parser.add_argument(
        "--where",
        type=parse_where,
        action="append",
        default=[],
        metavar="PATH[=…]",
        help="only records whose value is JSON with this in it; may be given several times, see below",
    )
    parser.add_argument("--after", type=parse_moment, metavar="TIME", help="only records of this time or later")
    parser.add_argument("--before", type=parse_moment, metavar="TIME", help="only records from before this time")


def parse_pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def parse_header(text: str) -> HeaderFilter:
    name, equals, pattern = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} names no header")
    return HeaderFilter(name, parse_pattern(pattern) if equals else None)


def parse_where(text: str) -> Condition:
    try:
        return parse_condition(text)
    except PathError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_moment(text: str) -> int:
    try:
        return parse_time_ms(text)
    except TimeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid: expected {EXAMPLES}") from None


def filter_of(options: argparse.Namespace) -> Filter | None:
    """Whether a record meets everything that was asked for; None where nothing was."""
    filters: list[Filter] = []
    if options.after is not None:
        filters.append(lambda message: timestamp_of(message)[1] >= options.after)
    if options.before is not None:
        filters.append(lambda message: NO_TIME < timestamp_of(message)[1] < options.before)
    if options.key is not None:
        filters.append(lambda message: _has(options.key, message.key()))
    if options.value is not None:
        filters.append(lambda message: _has(options.value, message.value()))
    if options.search is not None:
        filters.append(lambda message: _has_anywhere(options.search, message))
    if options.header:
        filters.append(lambda message: all(_has_header(each, message) for each in options.header))
    if options.where:
        filters.append(lambda message: _meets(options.where, message.value()))
    if not filters:
        return None
    if len(filters) == 1:
        return filters[0]
    return lambda message: all(each(message) for each in filters)


def _has(pattern: re.Pattern[bytes], data: bytes | str | None) -> bool:
    return isinstance(data, bytes) and pattern.search(data) is not None


def _has_anywhere(pattern: re.Pattern[bytes], message: Message) -> bool:
    if _has(pattern, message.value()) or _has(pattern, message.key()):
        return True
    return any(_has(pattern, name.encode()) or _has(pattern, value) for name, value in headers_of(message))


def _has_header(wanted: HeaderFilter, message: Message) -> bool:
    return any(
        name == wanted.name and (wanted.pattern is None or _has(wanted.pattern, value))
        for name, value in headers_of(message)
    )


def _meets(conditions: list[Condition], value: bytes | str | None) -> bool:
    """A value that is no JSON meets nothing."""
    if value is None:
        return False
    try:
        document = json.loads(value)
    except ValueError:
        return False
    return all(each.is_met_by(document) for each in conditions)
