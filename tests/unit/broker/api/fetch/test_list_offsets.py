"""ListOffsets: places in a real log, and what keeps a client from learning them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.api.fetch.list_offsets import list_offsets
from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.ports import SystemClock, SystemDisk
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.broker.api.partitions import ANOTHER_NODE, Partitions, append, lead
from tests.unit.broker.api.stand_ins import a_broker, an_image, caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.ports import Disk

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
NOWHERE = (Error.NONE, -1, -1, -1)

Place = tuple[int, int, int, int]
"""Error, offset, timestamp, leader epoch."""


def three_batches(partitions: Partitions) -> None:
    """Offsets 0 and 1 at 1000 and 3000 in epoch 0, 2 at 5000 and 3 at 4000 in epoch 2."""
    hosted = partitions.add("t")
    append(hosted, [1000, 3000])
    lead(hosted, 2)
    append(hosted, [5000])
    append(hosted, [4000])


def ask(
    folder: Path,
    *asked: tuple[int, int] | tuple[int, int, int],
    topic: str = "t",
    version: int = 11,
    isolation: int = 0,
    replica: int = -1,
    prepare: Callable[[Partitions], None] = three_batches,
    disk: Disk | None = None,
) -> list[Place]:
    """Asks for (partition, timestamp) or (partition, timestamp, leader epoch that the client believes in)."""

    async def answer() -> m.ListOffsetsResponse:
        partitions = Partitions(folder)
        prepare(partitions)
        request = m.ListOffsetsRequest(
            replica_id=replica,
            isolation_level=isolation,
            topics=[
                m.ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        m.ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=one[0],
                            timestamp=one[1],
                            current_leader_epoch=one[2] if len(one) == 3 else -1,
                        )
                        for one in asked
                    ],
                )
            ],
        )
        response = await list_offsets(
            a_broker(an_image(), replicas=partitions, disk=disk).fetch, request, caller(version)
        )
        partitions.close()
        return codec.decode(m.ListOffsetsResponse, codec.encode(response, version), version)

    (answered,) = asyncio.run(answer()).topics
    assert answered.name == topic
    return [(p.error_code, p.offset, p.timestamp, p.leader_epoch) for p in answered.partitions]


@pytest.mark.parametrize(
    ("timestamp", "place"),
    [
        (LATEST, (Error.NONE, 4, -1, 2)),
        (EARLIEST, (Error.NONE, 0, -1, 0)),
        (MAX_TIMESTAMP, (Error.NONE, 2, 5000, 2)),
        (EARLIEST_LOCAL, (Error.NONE, 0, -1, 0)),
        (LATEST_TIERED, NOWHERE),
        (EARLIEST_PENDING, NOWHERE),
        (0, (Error.NONE, 0, 1000, 0)),
        (1001, (Error.NONE, 1, 3000, 0)),
        (3500, (Error.NONE, 2, 5000, 2)),
        (5000, (Error.NONE, 2, 5000, 2)),
        (5001, NOWHERE),
    ],
)
def test_places_in_a_log(tmp_path: Path, timestamp: int, place: Place) -> None:
    assert ask(tmp_path, (0, timestamp)) == [place]


@pytest.mark.parametrize(
    ("timestamp", "place"),
    [
        (LATEST, (Error.NONE, 0, -1, 3)),
        (EARLIEST, (Error.NONE, 0, -1, 3)),
        (MAX_TIMESTAMP, NOWHERE),
        (0, NOWHERE),
    ],
)
def test_places_in_an_empty_log(tmp_path: Path, timestamp: int, place: Place) -> None:
    def empty(partitions: Partitions) -> None:
        partitions.add("t", epoch=3)

    assert ask(tmp_path, (0, timestamp), prepare=empty) == [place]


@pytest.mark.parametrize(
    ("timestamp", "first_version"),
    [(LATEST, 1), (EARLIEST, 1), (MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING, 11)],
)
def test_special_places_may_be_asked_for_from_their_version_on(
    tmp_path: Path, timestamp: int, first_version: int
) -> None:
    for version in range(1, 12):
        folder = tmp_path / str(version)
        folder.mkdir()
        ((error, *_),) = ask(folder, (0, timestamp), version=version)
        assert error == (Error.NONE if version >= first_version else Error.UNSUPPORTED_VERSION), version


def test_no_version_knows_other_negative_timestamps(tmp_path: Path) -> None:
    assert ask(tmp_path, (0, -7)) == [(Error.UNSUPPORTED_VERSION, -1, -1, -1)]


def test_leader_epochs_are_answered_from_v4_on(tmp_path: Path) -> None:
    assert ask(tmp_path, (0, LATEST), version=3) == [(Error.NONE, 4, -1, -1)]


def test_consumers_are_not_told_of_what_is_above_the_high_watermark(tmp_path: Path) -> None:
    def with_uncommitted_tail(partitions: Partitions) -> None:
        three_batches(partitions)
        state = partitions.find_by_name(b"t", 0).state
        state.high_watermark = state.high_watermark._replace(offset=2)

    def ask_there(timestamp: int, replica: int = -1) -> list[Place]:
        folder = tmp_path / f"{timestamp}{replica}"
        folder.mkdir()
        return ask(folder, (0, timestamp), replica=replica, prepare=with_uncommitted_tail)

    assert ask_there(LATEST) == [(Error.NONE, 2, -1, 2)]
    assert ask_there(3500) == ask_there(MAX_TIMESTAMP) == [NOWHERE]
    assert ask_there(1001) == [(Error.NONE, 1, 3000, 0)]
    assert ask_there(LATEST, ANOTHER_NODE) == [(Error.NONE, 4, -1, 2)]


def test_committed_and_uncommitted_readers_see_the_same_without_transactions(tmp_path: Path) -> None:
    assert ask(tmp_path, (0, LATEST), isolation=1) == [(Error.NONE, 4, -1, 2)]


def test_an_isolation_level_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert ask(tmp_path, (0, LATEST), isolation=2) == [(Error.UNKNOWN_SERVER_ERROR, -1, -1, -1)]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, Error.NONE), (2, Error.NONE), (1, Error.FENCED_LEADER_EPOCH), (3, Error.UNKNOWN_LEADER_EPOCH)],
)
def test_clients_with_another_idea_of_the_leader_epoch_are_fenced(tmp_path: Path, epoch: int, error: Error) -> None:
    assert ask(tmp_path, (0, LATEST, epoch))[0][0] == error


def test_unknown_partitions_and_those_led_elsewhere_are_told_apart(tmp_path: Path) -> None:
    def one_led_elsewhere(partitions: Partitions) -> None:
        partitions.add("t", 0, leader=ANOTHER_NODE)

    answers = ask(tmp_path, (0, LATEST), (1, LATEST), prepare=one_led_elsewhere)
    assert [error for error, *_ in answers] == [Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_partition_that_is_named_twice_is_refused_once(tmp_path: Path) -> None:
    assert ask(tmp_path, (0, LATEST), (0, EARLIEST)) == [(Error.INVALID_REQUEST, -1, -1, -1)]


class WatchedDisk(SystemDisk):
    """Knows in which threads files were opened."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, int]] = []

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self.opened.append((path, threading.get_ident()))
        return super().open(path, flags, mode)


@pytest.mark.parametrize(
    ("timestamp", "place"),
    [(1020, (Error.NONE, 20, 1020, 0)), (MAX_TIMESTAMP, (Error.NONE, 49, 1049, 0)), (2000, NOWHERE)],
)
def test_the_time_indexes_of_many_segments_are_not_read_on_the_event_loop(
    tmp_path: Path, timestamp: int, place: Place
) -> None:
    disk = WatchedDisk()

    def fifty_segments_from_disk(partitions: Partitions) -> None:
        hosted = partitions.add("t")
        log = hosted.log
        for number in range(50):
            append(hosted, [1000 + number])
            log.roll(log.log_end_offset)
        log.close()
        hosted.log = PartitionLog.open(
            log.folder,
            "t",
            0,
            TopicConfig(),
            disk=disk,
            clock=SystemClock(),
            recovery_point=log.recovery_point,
            log_start_offset=0,
            clean_shutdown=True,
        )
        disk.opened.clear()

    assert ask(tmp_path, (0, timestamp), prepare=fifty_segments_from_disk, disk=disk) == [place]
    threads = [thread for path, thread in disk.opened if path.endswith(".timeindex")]
    assert len(threads) >= 20
    assert threads.count(threading.get_ident()) <= 2
