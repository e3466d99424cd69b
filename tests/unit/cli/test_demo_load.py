"""The demo notices what is missing, changed or slow."""

from __future__ import annotations

from itertools import pairwise

import pytest

from barnabas.cli import demo_load
from barnabas.cli.command_line import CommandError
from barnabas.protocol.errors import Error


def test_values_have_their_size_and_their_number() -> None:
    values = [demo_load.value_of(number) for number in (0, 1, 999_999)]
    assert {len(value) for value in values} == {demo_load.VALUE_BYTES}
    assert [int(value[: demo_load.NUMBER_DIGITS]) for value in values] == [0, 1, 999_999]
    assert all(a < b for a, b in pairwise(values))


def test_rates_follow_from_count_and_time() -> None:
    tally = demo_load.Tally(records=1_000, checksum=0, seconds=0.5)
    assert tally.records_per_second == 2_000
    assert tally.megabytes_per_second == pytest.approx(0.2)


def test_the_same_records_pass() -> None:
    demo_load.require_same(demo_load.Tally(3, 42, 1.0), demo_load.Tally(3, 42, 9.0))


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        (demo_load.Tally(2, 42, 1.0), "3 records went in, 2 came out"),
        (demo_load.Tally(3, 43, 1.0), "what came out is not what went in"),
    ],
)
def test_missing_and_changed_records_do_not(read: demo_load.Tally, complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        demo_load.require_same(demo_load.Tally(3, 42, 1.0), read)


def test_a_percentile_is_one_of_the_values() -> None:
    hundred = [float(value) for value in range(100, 0, -1)]
    assert demo_load.percentile(hundred, 0.5) == 51.0
    assert demo_load.percentile(hundred, 0.99) == 100.0
    assert demo_load.percentile([7.0], 0.99) == 7.0


def test_an_error_code_is_named() -> None:
    demo_load.require_no_error("Produce", Error.NONE)
    with pytest.raises(CommandError, match="Produce failed: NOT_LEADER_OR_FOLLOWER"):
        demo_load.require_no_error("Produce", Error.NOT_LEADER_OR_FOLLOWER)
