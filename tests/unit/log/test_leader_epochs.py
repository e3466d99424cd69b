"""Leader epochs: where each began, and where one ended for those who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig

from .logs import batch, create, files_of, put_to_sleep, read_records, reopen

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.log.partition_log import PartitionLog
    from barnabas.testing.clock import ManualClock


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> PartitionLog:
    """Epochs 2, 5 and 6 with three records each."""
    log = create(tmp_path, clock, TopicConfig(segment_bytes=200))
    for epoch in (2, 5, 6):
        for _ in range(3):
            log.append_as_leader(batch(b"x" * 20), epoch)
    return log


def test_each_epoch_is_noted_with_its_first_offset_in_kafkas_file(log: PartitionLog) -> None:
    assert log.epochs.entries == [(2, 0), (5, 3), (6, 6)]
    assert log.latest_epoch == 6
    assert files_of(log)["leader-epoch-checkpoint"] == b"0\n3\n2 0\n5 3\n6 6\n"


def test_an_epoch_without_records_leaves_only_its_successor(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    log.begin_epoch(0)
    assert log.epochs.entries == [(0, 0)]
    assert "leader-epoch-checkpoint" not in files_of(log)
    log.begin_epoch(1)
    assert log.epochs.entries == [(1, 0)]
    log.append_as_leader(batch(b"x"), 1)
    assert files_of(log)["leader-epoch-checkpoint"] == b"0\n1\n1 0\n"
    log.begin_epoch(1)
    assert log.epochs.entries == [(1, 0)]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 0)),
        (1, (1, 0)),
        (2, (2, 3)),
        (3, (2, 3)),
        (4, (2, 3)),
        (5, (5, 6)),
        (6, (6, 9)),
        (7, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_the_start_of_the_next(log: PartitionLog, epoch: int, answer: tuple[int, int]) -> None:
    assert log.end_offset_for_epoch(epoch) == answer


def test_a_log_without_epochs_knows_of_none(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    assert log.latest_epoch == -1
    assert log.end_offset_for_epoch(0) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (2, 2), (3, 5), (8, 6), (99, 6)])
def test_the_epoch_of_an_offset(log: PartitionLog, offset: int, epoch: int) -> None:
    assert log.epochs.epoch_of(offset) == epoch


def test_truncation_forgets_epochs_that_began_later(log: PartitionLog, clock: ManualClock) -> None:
    assert log.truncate_to(5)
    assert log.epochs.entries == [(2, 0), (5, 3)]
    assert [record.offset for record in read_records(log)] == [0, 1, 2, 3, 4]
    assert log.append_as_leader(batch(b"new"), 7).base_offset == 5
    log.close()
    again = reopen(log, clock, clean_shutdown=True)
    assert again.epochs.entries == [(2, 0), (5, 3), (7, 5)]
    assert [record.offset for record in read_records(again)] == [0, 1, 2, 3, 4, 5]


def test_truncation_beyond_the_end_changes_nothing_but_an_epoch_without_records(log: PartitionLog) -> None:
    log.begin_epoch(9)
    assert not log.truncate_to(50)
    assert log.epochs.entries == [(2, 0), (5, 3), (6, 6)]
    assert log.log_end_offset == 9


def test_truncation_before_the_start_begins_the_log_anew(log: PartitionLog) -> None:
    log.advance_log_start(7)
    log.apply_retention(log.log_end_offset)
    assert log.segments.all[0].base_offset > 1
    assert log.truncate_to(1)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (1, 1, [])
    assert log.append_as_leader(batch(b"x"), 8).base_offset == 1


def test_truncation_takes_a_batch_that_straddles_the_offset_along(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock)
    log.append_as_leader(batch(b"a"), 0)
    log.append_as_leader(batch(b"b", b"c", b"d"), 0)
    log.truncate_to(2)
    assert log.log_end_offset == 1
    assert [record.value for record in read_records(log)] == [b"a"]


def test_a_recovered_log_keeps_the_epochs_of_what_is_left(log: PartitionLog, clock: ManualClock) -> None:
    put_to_sleep(again := reopen(log, clock, clean_shutdown=False))
    assert again.epochs.entries == [(2, 0), (5, 3), (6, 6)]
    with open(again.segments.active.log_path, "r+b") as file:
        file.truncate(0)
    for segment in again.segments.all[5:]:
        with open(segment.log_path, "r+b") as file:
            file.truncate(0)
    cut = reopen(log, clock, clean_shutdown=False)
    assert cut.epochs.entries == [entry for entry in [(2, 0), (5, 3), (6, 6)] if entry[1] < cut.log_end_offset]
