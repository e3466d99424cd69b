"""Where reading starts, and how a record is written."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
)

from barnabas.cli.data import consume_command, positions, record_forms

if TYPE_CHECKING:
    from confluent_kafka import Message


def record(
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 1_000),
) -> Message:
    """A message as librdkafka hands it over; its class cannot be made from Python."""
    return cast(
        "Message",
        SimpleNamespace(
            topic=lambda: "t",
            partition=lambda: 3,
            offset=lambda: 42,
            timestamp=lambda: timestamp,
            headers=lambda: headers,
            key=lambda: key,
            value=lambda: value,
        ),
    )


def line(message: Message, *arguments: str) -> bytes:
    return record_forms.form_of(consume_command.build_parser().parse_args(["t", *arguments]))(message)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", positions.Position(OFFSET_BEGINNING)),
        ("end", positions.Position(OFFSET_END)),
        ("0", positions.Position(0)),
        ("12345", positions.Position(12345)),
        ("-10", positions.Position(-2010)),
        ("@1700000000000", positions.Position(timestamp_ms=1_700_000_000_000)),
        ("1970-01-01T00:00:01Z", positions.Position(timestamp_ms=1_000)),
        ("1970-01-01T01:00:00.5+01:00", positions.Position(timestamp_ms=500)),
    ],
)
def test_reading_starts_at_an_end_an_offset_or_a_time(text: str, start: positions.Position) -> None:
    assert consume_command.build_parser().parse_args(["t", "--from", text]).start == start


def test_without_a_start_reading_begins_at_the_beginning() -> None:
    options = consume_command.build_parser().parse_args(["t"])
    assert consume_command.limits_of(options) == (positions.Position(OFFSET_BEGINNING), None)


@pytest.mark.parametrize("text", ["", "yesterday", "@", "@soon", "2026-13-01"])
def test_any_other_start_is_refused_with_what_is_possible(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="beginning, end, an offset"):
        positions.parse_position(text)


def test_only_the_value_is_printed_unless_more_is_asked_for() -> None:
    assert line(record()) == b"v\n"
    assert line(record(value=None)) == b"null\n"
    assert line(record(value=b"\xff\x00")) == b"\xff\x00\n"


def test_what_is_asked_for_stands_before_the_value() -> None:
    message = record(headers=[("a", b"1"), ("b", None)])
    everything = ("--print-key", "--print-headers", "--print-timestamp", "--print-offset")
    assert line(message, *everything) == b"CreateTime:1000\tPartition:3\tOffset:42\ta:1,b:null\tk\tv\n"
    assert line(record(key=None), "--print-key", "--print-headers") == b"NO_HEADERS\tnull\tv\n"


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        ((TIMESTAMP_LOG_APPEND_TIME, 5), b"LogAppendTime:5\tv\n"),
        ((TIMESTAMP_NOT_AVAILABLE, 0), b"NoTimestamp:-1\tv\n"),
    ],
)
def test_a_timestamp_says_whose_it_is(timestamp: tuple[int, int], text: bytes) -> None:
    assert line(record(timestamp=timestamp), "--print-timestamp") == text


def test_json_has_everything_and_keeps_bytes_that_are_no_text() -> None:
    message = record(key=None, value=b"\xff", headers=[("h", b"1"), ("null", None)])
    assert json.loads(line(message, "--json")) == {
        "topic": "t",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1_000,
        "timestamp_type": "CreateTime",
        "headers": [{"key": "h", "value": "1"}, {"key": "null", "value": None}],
        "key": None,
        "value": {"base64": "/w=="},
    }
