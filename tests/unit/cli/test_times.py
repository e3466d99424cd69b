"""Times and sizes as people type and read them."""

from __future__ import annotations

import pytest

from barnabas.cli.command_line import with_durations_joined
from barnabas.cli.configs.units import as_kafka_writes, readable
from barnabas.cli.times import TimeError, duration_text, parse_time_ms

NOW_MS = 1_000_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("-10m", NOW_MS - 600_000),
        ("-1.5h", NOW_MS - 5_400_000),
        ("-2d", NOW_MS - 172_800_000),
        ("-250ms", NOW_MS - 250),
        ("@5", 5),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1960-01-01T00:00:00Z", 0),
        ("-9999w", 0),
    ],
)
def test_a_time_is_a_date_or_so_long_ago(text: str, ms: int) -> None:
    assert parse_time_ms(text, now_ms=NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "-10", "10m", "-10y", "soon", "2026-13-01", "@"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(TimeError):
        parse_time_ms(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (1_500, "1.5 s"),
        (50_000, "50 s"),
        (65_000, "1 min 5 s"),
        (7_200_000, "2 h"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_duration_is_told_roughly(ms: int, text: str) -> None:
    assert duration_text(ms) == text


def test_so_long_ago_is_no_option() -> None:
    assert with_durations_joined(["t", "--from", "-10m", "--to", "-5", "-f"]) == [
        "t",
        "--from=-10m",
        "--to",
        "-5",
        "-f",
    ]


@pytest.mark.parametrize(
    ("name", "typed", "written"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "-1", "-1"),
        ("segment.bytes", "64MiB", "67108864"),
        ("segment.bytes", "1.5 kb", "1500"),
        ("retention.bytes", "7d", "7d"),
        ("cleanup.policy", "7d", "7d"),
    ],
)
def test_a_setting_takes_the_units_of_its_kind(name: str, typed: str, written: str) -> None:
    assert as_kafka_writes(name, typed) == written


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention.ms", "604800000", "7 d"),
        ("segment.bytes", "67108864", "64 MiB"),
        ("retention.ms", "-1", ""),
        ("retention.ms", None, ""),
        ("flush.ms", str((1 << 63) - 1), ""),
        ("num.partitions", "5000", ""),
    ],
)
def test_a_setting_is_shown_in_the_units_of_its_kind(name: str, value: str | None, text: str) -> None:
    assert readable(name, value) == text
