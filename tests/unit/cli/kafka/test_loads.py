"""Figures, times and paces of the tools that put a load on a cluster."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from barnabas.cli.kafka.loads import send_figures
from barnabas.cli.kafka.loads.java_format import date_text, fixed
from barnabas.cli.kafka.loads.pace import Pace
from barnabas.cli.kafka.loads.payloads import chunk_records
from barnabas.cli.kafka.loads.send_figures import SendFigures
from barnabas.cli.kafka.tool import ToolError

MOMENT = datetime(2026, 1, 5, 7, 8, 9, 45_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.125, 2, "0.13"),
        (1, 1, "1.0"),
        (14492.7536231884, 6, "14492.753623"),
        (math.nan, 2, "NaN"),
        (math.inf, 2, "Infinity"),
        (1e-9, 4, "0.0000"),
    ],
)
def test_figures_have_as_many_digits_as_java_gives_them(value: float, digits: int, text: str) -> None:
    assert fixed(value, digits) == text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2026-01-05 07:08:09:045"),
        ("yy/M/d h a 'o''clock'", "26/1/5 7 AM o'clock"),
        ("EEE, MMM d", "Mon, Jan 5"),
        ("DDD X Z", "005 Z +0000"),
    ],
)
def test_times_are_printed_by_the_letters_of_java(pattern: str, text: str) -> None:
    assert date_text(MOMENT, pattern) == text


def test_a_letter_that_java_does_not_have_is_named() -> None:
    with pytest.raises(ToolError, match="Illegal pattern character 'q'"):
        date_text(MOMENT, "yyyy q")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that stands still until it is set."""
    now = [1_000]
    monkeypatch.setattr(send_figures, "now_ms", lambda: now[0])
    return now


def test_all_latencies_count_for_the_percentiles(clock: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    figures = SendFigures(5_000)
    for latency_ms in range(1, 1_001):
        figures.record(latency_ms, 1, 100)
    clock[0] += 2_000
    figures.print_total()
    assert capsys.readouterr().out == (
        "1000 records sent, 500.000000 records/sec (0.05 MB/sec), 500.50 ms avg latency, 1000.00 ms max latency, "
        "501 ms 50th, 951 ms 95th, 991 ms 99th, 1000 ms 99.9th.\n"
    )


def test_each_interval_is_reported_by_itself(clock: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    figures = SendFigures(500, is_steady=True)
    figures.record(4, 10, 1_048_576)
    clock[0] += 500
    figures.record(8, 10, 1_048_576)
    clock[0] += 500
    figures.record(1, 1, 0)
    assert capsys.readouterr().out.splitlines() == [
        "In steady state.",
        "20 records sent, 40.0 records/sec (4.00 MB/sec), 6.0 ms avg latency, 8.0 ms max latency.",
        "1 records sent, 2.0 records/sec (0.00 MB/sec), 1.0 ms avg latency, 1.0 ms max latency.",
    ]


def test_a_load_that_sent_nothing_has_no_mean(clock: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert clock
    SendFigures(500).print_total()
    assert capsys.readouterr().out.startswith(
        "0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, 0.00 ms max latency, 0 ms 50th"
    )


def test_without_a_limit_there_is_no_pause() -> None:
    assert Pace(-1).pause_s(1_000_000) == 0
    assert 0 < Pace(100).pause_s(200) <= 2
    assert Pace(0).pause_s(1) > 86_400


@pytest.mark.parametrize(
    ("record_bytes", "rate", "records"),
    [(100, -1, 163), (1_024, -1, 16), (1, -1, 1_000), (100_000, -1, 1), (10, 400, 2)],
)
def test_chunks_are_as_large_as_batches_of_java_unless_records_come_slowly(
    record_bytes: int, rate: float, records: int
) -> None:
    assert chunk_records(record_bytes, rate) == records
