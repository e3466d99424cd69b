"""OffsetForLeaderEpoch: where leader epochs of a real log end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.api.fetch.offset_for_leader_epoch import offset_for_leader_epoch
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.broker.api.partitions import ANOTHER_NODE, Partitions, append, lead
from tests.unit.broker.api.stand_ins import a_broker, an_image, caller

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = (Error.NONE, -1, -1)


def ask(
    folder: Path, topic: str, partition: int, epoch: int, current_epoch: int = -1, version: int = 4
) -> tuple[int, int, int]:
    """The error, the epoch and its end, of a log with offsets 0 and 1 in epoch 1 and offset 2 in epoch 4."""

    async def answer() -> m.OffsetForLeaderEpochResponse:
        partitions = Partitions(folder)
        hosted = partitions.add("t", epoch=1)
        append(hosted, [1, 2])
        lead(hosted, 4)
        append(hosted, [3])
        partitions.add("elsewhere", leader=ANOTHER_NODE)
        asked = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current_epoch
        )
        request = m.OffsetForLeaderEpochRequest(
            topics=[m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        )
        response = offset_for_leader_epoch(a_broker(an_image(), replicas=partitions).fetch, request, caller(version))
        partitions.close()
        return codec.decode(m.OffsetForLeaderEpochResponse, codec.encode(response, version), version)

    (answered,) = asyncio.run(answer()).topics
    (end,) = answered.partitions
    assert (answered.topic, end.partition) == (topic, partition)
    return end.error_code, end.leader_epoch, end.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (4, (Error.NONE, 4, 3)),
        (1, (Error.NONE, 1, 2)),
        (3, (Error.NONE, 1, 2)),
        (0, (Error.NONE, 0, 0)),
        (5, NOTHING),
        (-1, NOTHING),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(
    tmp_path: Path, epoch: int, end: tuple[int, int, int], version: int
) -> None:
    assert ask(tmp_path, "t", 0, epoch, version=version) == end


@pytest.mark.parametrize(
    ("current_epoch", "error"), [(4, Error.NONE), (3, Error.FENCED_LEADER_EPOCH), (5, Error.UNKNOWN_LEADER_EPOCH)]
)
def test_readers_with_another_idea_of_the_leader_are_fenced(tmp_path: Path, current_epoch: int, error: Error) -> None:
    assert ask(tmp_path, "t", 0, 1, current_epoch)[0] == error


def test_partitions_that_this_broker_does_not_lead_are_refused(tmp_path: Path) -> None:
    assert ask(tmp_path, "elsewhere", 0, 0) == (Error.NOT_LEADER_OR_FOLLOWER, -1, -1)
    (tmp_path / "again").mkdir()
    assert ask(tmp_path / "again", "nobody", 0, 0) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
