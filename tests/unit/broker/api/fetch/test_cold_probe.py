"""A disk that fails while a fetch asks whether a range is in memory costs that partition an error code."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

from barnabas.broker.api.fetch.fetch_partitions import FetchEntry, read_partition
from barnabas.config.topic_config import TopicConfig
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import a_topic
from tests.unit.log.logs import batch
from tests.unit.replication.hosting import FaultyDisk, Hosting

if TYPE_CHECKING:
    from pathlib import Path


class Unreadable(FaultyDisk):
    __slots__ = ()

    def is_resident(self, fd: int, offset: int, length: int) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_partition_that_cannot_be_read_is_answered_with_its_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock(), disk=Unreadable())
        hosting.open()
        await hosting.follow(a_topic("t"))
        (hosted,) = hosting.replicas
        hosted.log.config = TopicConfig(segment_bytes=1000)
        for _ in range(5):
            hosted.append(batch(b"x" * 500), 1)
        entry = FetchEntry(b"t", m.FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20))
        entry.hosted = hosted
        assert read_partition(entry, False, 1 << 20, True).error == Error.KAFKA_STORAGE_ERROR
        hosting.crash()

    asyncio.run(scenario())
