"""Ranges, limits and splits: nothing is read twice, nothing is left out, limits hold."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.raw_options import OptionError
from barnabas.spark.read.data_loss import (
    DataLossError,
    ends_moved_back,
    partitions_gone,
    ranges_gone,
    starts_missed,
    within,
)
from barnabas.spark.read.offset_ranges import (
    OffsetRange,
    count_between,
    cut,
    is_worth_a_batch,
    limit_end,
    plan_ranges,
    split_ranges,
    without_missed,
)
from barnabas.spark.read.topic_positions import EARLIEST, GroupOffsets, SpecificOffsets

if TYPE_CHECKING:
    from barnabas.spark.read.topic_positions import Offsets, TopicPartition

PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5))
SIZES = st.integers(1, 10_000) | st.integers(1, 2**50)


@st.composite
def positions(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    """Two positions in the same partitions, the second of which is nowhere before the first."""
    start = draw(st.dictionaries(PLACES, st.integers(0, 2**60), max_size=12))
    return start, {place: offset + draw(st.just(0) | SIZES) for place, offset in start.items()}


@st.composite
def ranges(draw: st.DrawFn) -> list[OffsetRange]:
    start, end = draw(positions())
    return plan_ranges(start, end)


def offsets_of(pieces: list[OffsetRange]) -> dict[TopicPartition, list[tuple[int, int]]]:
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for each in pieces:
        found.setdefault((each.topic, each.partition), []).append((each.start, each.end))
    return found


@given(positions())
def test_there_is_one_range_for_each_partition_with_something_to_read(both: tuple[Offsets, Offsets]) -> None:
    start, end = both
    assert {((each.topic, each.partition), each.start, each.end) for each in plan_ranges(start, end)} == {
        (place, start[place], stop) for place, stop in end.items() if stop > start[place]
    }


@given(ranges(), st.none() | st.integers(1, 50), st.none() | st.integers(1, 2**40))
def test_pieces_cover_a_range_exactly_and_never_overlap(
    whole: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    # So many pieces that they would not fit into memory are not what this is about.
    if max_records is not None:
        max_records = max(max_records, 1 + sum(each.size for each in whole) // 1_000)
    pieces = split_ranges(whole, min_partitions=min_partitions, max_records=max_records)
    assert all(each.size > 0 for each in pieces)
    assert max_records is None or all(each.size <= max_records for each in pieces)
    by_place = offsets_of(pieces)
    assert by_place.keys() == offsets_of(whole).keys()
    for each in whole:
        bounds = by_place[each.topic, each.partition]
        assert bounds[0][0] == each.start
        assert bounds[-1][1] == each.end
        assert all(before[1] == after[0] for before, after in pairwise(bounds))


@given(ranges(), st.integers(1, 50))
def test_there_are_about_as_many_pieces_as_wanted(whole: list[OffsetRange], min_partitions: int) -> None:
    pieces = split_ranges(whole, min_partitions=min_partitions)
    if len(whole) >= min_partitions:
        assert pieces == whole
    else:
        assert len(pieces) <= min_partitions + 2 * len(whole)
        if whole and all(each.size >= min_partitions for each in whole):
            assert len(pieces) >= min_partitions - len(whole)


def test_a_large_partition_is_cut_into_more_pieces_than_a_small_one() -> None:
    pieces = split_ranges([OffsetRange("a", 0, 0, 900), OffsetRange("a", 1, 0, 100)], min_partitions=10)
    assert [each.partition for each in pieces] == [0] * 9 + [1]
    assert {each.size for each in pieces} == {100}


@given(st.integers(0, 2**60), SIZES, st.integers(1, 100))
def test_the_sizes_of_pieces_differ_by_one_at_most(start: int, size: int, count: int) -> None:
    sizes = [each.size for each in cut(OffsetRange("a", 0, start, start + size), count)]
    assert len(sizes) == min(count, size)
    assert max(sizes) - min(sizes) <= 1


@given(positions(), st.integers(1, 2**40))
def test_a_batch_stays_within_its_limit_and_starves_no_partition(both: tuple[Offsets, Offsets], most: int) -> None:
    start, latest = both
    end = limit_end(start, latest, most)
    behind = [place for place in start if latest[place] > start[place]]
    assert end.keys() == latest.keys()
    assert all(start[place] <= end[place] <= latest[place] for place in end)
    assert all(end[place] > start[place] for place in behind)
    assert count_between(start, end) <= max(most, len(behind))
    if most >= count_between(start, latest):
        assert end == latest


@given(positions(), st.integers(1, 2**40))
def test_a_limited_query_gets_to_the_end(both: tuple[Offsets, Offsets], most: int) -> None:
    start, latest = both
    most = max(most, count_between(start, latest) // 20 + 1)
    for _ in range(200):
        if start == latest:
            return
        start = limit_end(start, latest, most)
    raise AssertionError("the end is not reached")


def test_a_limit_is_shared_by_how_much_waits() -> None:
    start = {("a", 0): 100, ("a", 1): 0, ("a", 2): 7}
    latest = {("a", 0): 1000, ("a", 1): 100, ("a", 2): 7}
    assert limit_end(start, latest, 100) == {("a", 0): 189, ("a", 1): 10, ("a", 2): 7}


@pytest.mark.parametrize(
    ("waiting", "since_ms", "expected"),
    [(10, 0, True), (9, 0, False), (9, 999, False), (9, 1_000, True), (9, None, True), (1, 5_000, True)],
)
def test_a_batch_waits_for_enough_records_but_not_forever(waiting: int, since_ms: int | None, expected: bool) -> None:
    assert is_worth_a_batch(waiting, 10, since_ms, 1_000) is expected


def test_a_partition_that_is_gone_is_named_with_the_offset_up_to_which_it_was_read() -> None:
    (loss,) = partitions_gone({("a", 0): 5, ("a", 1): 6}, [("a", 0), ("a", 2)])
    assert str(loss).startswith("a-1: it was read up to offset 6 and is no longer there: it was deleted")


def test_an_end_before_what_was_read_is_a_loss() -> None:
    (loss,) = ends_moved_back({("a", 0): 5, ("a", 1): 6}, {("a", 0): 5, ("a", 1): 2, ("a", 2): 0})
    assert str(loss).startswith("a-1: it was read up to offset 6 and now ends at offset 2")


def test_records_that_retention_removed_are_named_by_their_offsets() -> None:
    wanted = [OffsetRange("a", 0, 5, 20), OffsetRange("a", 1, 5, 20), OffsetRange("a", 2, 5, 20)]
    earliest = {("a", 0): 5, ("a", 1): 10, ("a", 2): 30}
    first, second = starts_missed(wanted, earliest)
    assert "offsets 5 to 9 were to be read, but the log now starts at offset 10" in str(first)
    assert "offsets 5 to 19 were to be read, but the log now starts at offset 30" in str(second)
    assert without_missed(wanted, earliest) == [OffsetRange("a", 0, 5, 20), OffsetRange("a", 1, 10, 20)]


def test_a_range_of_a_partition_that_is_gone_is_a_loss() -> None:
    (loss,) = ranges_gone([OffsetRange("a", 0, 5, 20), OffsetRange("b", 0, 1, 2)], {("b", 0)})
    assert str(loss) == "a-0: offsets 5 to 19 were to be read, but it no longer exists"


NAMED = {("a", 0): 3, ("a", 1): 50, ("a", 2): 10}
BOUNDS = dict.fromkeys(NAMED, 5), dict.fromkeys(NAMED, 20)


def test_offsets_that_a_partition_does_not_have_are_moved_to_the_nearest_that_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = within(NAMED, SpecificOffsets(NAMED), "startingOffsets", BOUNDS, fail_on_data_loss=False)
    assert taken == {("a", 0): 5, ("a", 1): 20, ("a", 2): 10}
    assert "a-0: offset 3 is requested, but the log goes from 5 to 20; a-1: offset 50 is" in caplog.text


def test_an_offset_that_a_person_named_and_a_partition_does_not_have_is_a_mistake_in_the_option() -> None:
    with pytest.raises(OptionError) as raised:
        within(NAMED, SpecificOffsets(NAMED), "endingOffsets", BOUNDS, fail_on_data_loss=True)
    assert str(raised.value) == (
        "option endingOffsets names offsets that do not exist: "
        "a-0: offset 3 is requested, but the log goes from 5 to 20; "
        "a-1: offset 50 is requested, but the log goes from 5 to 20; "
        "with failOnDataLoss=false the nearest ones are used"
    )


def test_an_offset_that_a_group_committed_and_a_partition_does_not_have_is_lost() -> None:
    with pytest.raises(DataLossError, match="a-0: offset 3 is requested, but the log goes from 5 to 20"):
        within(NAMED, GroupOffsets(), "startingOffsets", BOUNDS, fail_on_data_loss=True)


def test_the_earliest_offset_is_no_mistake_where_it_has_moved_since() -> None:
    named = SpecificOffsets({("a", 0): EARLIEST})
    assert within({("a", 0): 3}, named, "startingOffsets", BOUNDS, fail_on_data_loss=True) == {("a", 0): 5}


def test_offsets_of_partitions_that_are_gone_are_left_out() -> None:
    assert within({("b", 0): 3}, GroupOffsets(), "startingOffsets", BOUNDS, fail_on_data_loss=True) == {}


def test_an_error_about_lost_data_says_what_is_lost_and_what_can_be_done() -> None:
    error = DataLossError(partitions_gone({("a", 0): 5}, []))
    assert "a-0: it was read up to offset 5" in str(error)
    assert "failOnDataLoss" in str(error)
