"""How far a log may be cleaned, how dirty it is, and which segments become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.log.cleaning.grouping import SegmentSizes, group_segments
from tests.unit.log.cleaning.cleanings import COMPACTED, clean, put, roll
from tests.unit.log.logs import create

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.log.partition_log import PartitionLog
    from barnabas.testing.clock import ManualClock


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> PartitionLog:
    """Five segments of ten records, a minute apart, and the active one, which is empty."""
    log = create(tmp_path, clock, COMPACTED)
    for _ in range(5):
        put(log, *((b"%d" % number, b"value") for number in range(10)))
        roll(log)
        clock.advance_ms(60_000)
    return log


@pytest.mark.parametrize(("high_watermark", "end_offset"), [(50, 50), (49, 40), (40, 40), (39, 30), (5, 0)])
def test_no_segment_is_cleaned_that_is_not_committed_as_a_whole(
    log: PartitionLog, high_watermark: int, end_offset: int
) -> None:
    assert log.dirt(high_watermark).end_offset == end_offset


def test_no_segment_is_cleaned_that_has_records_of_less_than_the_least_age(log: PartitionLog) -> None:
    log.config = COMPACTED._replace(min_compaction_lag_ms=150_000)
    assert log.dirt(50).end_offset == 30
    log.config = COMPACTED._replace(min_compaction_lag_ms=1_000_000)
    dirt = log.dirt(50)
    assert dirt.end_offset == dirt.dirty_bytes == 0


def test_the_ratio_is_that_of_dirty_bytes_to_all_that_would_be_read(log: PartitionLog) -> None:
    size = log.segments.all[0].size
    assert log.dirt(50).ratio == 1.0
    log.first_dirty_offset = 20
    dirt = log.dirt(40)
    assert (dirt.clean_bytes, dirt.dirty_bytes) == (2 * size, 2 * size)
    assert dirt.is_enough(0.49)
    assert not dirt.is_enough(0.5)


def test_a_clean_log_is_not_cleaned_again(log: PartitionLog) -> None:
    clean(log)
    dirt = log.dirt(50)
    assert (dirt.dirty_bytes, dirt.ratio, dirt.is_enough(0.0)) == (0, 0.0, False)


def test_a_record_that_has_waited_for_too_long_makes_the_ratio_irrelevant(
    log: PartitionLog, clock: ManualClock
) -> None:
    log.first_dirty_offset = 40
    log.config = COMPACTED._replace(max_compaction_lag_ms=90_000)
    assert not log.dirt(50).is_enough(0.9)
    clock.advance_ms(60_000)
    assert log.dirt(50).is_enough(0.9)
    log.first_dirty_offset = 50
    assert not log.dirt(50).is_enough(0.0)


@pytest.mark.parametrize(("first_dirty", "found"), [(None, 10), (5, 10), (20, 20), (51, 10)])
def test_a_first_dirty_offset_beyond_the_log_counts_for_nothing(
    log: PartitionLog, first_dirty: int | None, found: int
) -> None:
    log.advance_log_start(10)
    log.first_dirty_offset = first_dirty
    assert log.dirt(50).first_dirty_offset == found


def sizes(*bytes_: int, index_bytes: int = 0, step: int = 10) -> list[SegmentSizes]:
    return [SegmentSizes(n * step, (n + 1) * step, size, index_bytes) for n, size in enumerate(bytes_)]


@pytest.mark.parametrize(
    ("segments", "groups"),
    [
        ([], []),
        (sizes(100), [1]),
        (sizes(200), [1]),
        (sizes(40, 60, 1), [2, 1]),
        (sizes(10, 10, 10, 80, 10), [3, 2]),
        (sizes(0, 0, 100), [3]),
        (sizes(10, 10, 10, index_bytes=5), [2, 1]),
        (sizes(10, 10, 10, step=2**30), [2, 1]),
        (sizes(10, 10, 0, step=2**30), [3]),
        (sizes(*[0] * 600), [250, 250, 100]),
    ],
)
def test_neighbours_become_one_as_long_as_they_fit(segments: list[SegmentSizes], groups: list[int]) -> None:
    found = group_segments(segments, segment_bytes_max=100, index_bytes_max=10)
    assert [len(group) for group in found] == groups
    assert [segment for group in found for segment in group] == segments
