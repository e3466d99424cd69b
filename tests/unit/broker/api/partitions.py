"""Partitions with real logs in a folder of the test, as a broker that leads them has them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.net.purgatory import Purgatory
from barnabas.ports import SystemClock, SystemDisk
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.record import Record
from barnabas.replication.hosted import HostedPartition
from barnabas.replication.partition import NO_BROKER_EPOCH, BrokerId, LeaderEpoch, PartitionState, Pulse
from tests.unit.broker.api.stand_ins import NODE_ID, topic_id

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from barnabas.log.segments.segment_list import LogPosition

ANOTHER_NODE = 2


class Partitions:
    """What `ReplicaManager` is to a handler: a way to find partitions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._partitions: dict[tuple[bytes, int], HostedPartition] = {}

    def find_by_name(self, topic: bytes, index: int) -> HostedPartition:
        try:
            return self._partitions[topic, index]
        except KeyError:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {topic!r}-{index}") from None

    def add(self, topic: str, index: int = 0, *, epoch: int = 0, leader: int = NODE_ID) -> HostedPartition:
        """An empty partition. Must be called in a running event loop."""
        log = PartitionLog.create(
            f"{self._folder}/{topic}-{index}",
            topic,
            index,
            topic_id(topic),
            TopicConfig(),
            disk=SystemDisk(),
            clock=SystemClock(),
        )
        state: PartitionState[LogPosition] = PartitionState(BrokerId(NODE_ID), log.end_position, log.end_position)
        purgatory = Purgatory(asyncio.get_running_loop())
        hosted = HostedPartition(topic, topic_id(topic), index, state, log, purgatory)
        self._partitions[topic.encode(), index] = hosted
        lead(hosted, epoch, leader)
        return hosted

    def close(self) -> None:
        for hosted in self._partitions.values():
            hosted.log.close()


def lead(hosted: HostedPartition, epoch: int, leader: int = NODE_ID) -> None:
    """What a broker does when the metadata gives a partition a new leader epoch."""
    replicas = [BrokerId(NODE_ID)]
    hosted.state.follow_metadata(BrokerId(leader), LeaderEpoch(epoch), epoch, replicas, replicas)
    if hosted.state.is_leader:
        hosted.log.begin_epoch(epoch)


def has_copied(hosted: HostedPartition, follower: int, offset: int) -> None:
    """A follower says by its fetch that it has everything before an offset."""
    hosted.follower_fetched(
        BrokerId(follower),
        offset,
        log_start_offset=hosted.log.log_start_offset,
        broker_epoch=NO_BROKER_EPOCH,
        pulse=Pulse(hosted.monotonic_ms()),
    )


def append(hosted: HostedPartition, timestamps: Iterable[int]) -> None:
    """One batch with a record for each timestamp."""
    records = [Record(value=b"v", timestamp=timestamp) for timestamp in timestamps]
    hosted.append(memoryview(bytearray(build_batch(records))), acks=1)
