"""One reader with a fetch session over many partitions, and one writer: a record goes in, and its fetch comes out.

What is measured is what a fetch costs that finds news in one of very many partitions, as a follower's does.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from typing import Any

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import from_text
from bench.loads.channel import Channel
from bench.loads.meter import Meter
from bench.wire import ProduceReply, WireError, produce_frame, record_batch

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 8
LATEST = -1
NOBODY = -1
MAX_WAIT_MS = 5_000
PARTITION_BYTES_MAX = 1 << 20
FETCH_BYTES_MAX = 50 << 20
STRIDE = 7
"""Neighbours in the order of writing are no neighbours in the session."""


@dataclass(frozen=True, slots=True)
class SessionLoad:
    host: str
    port: int
    broker_pid: int
    topic: str
    topic_id: str
    partitions: int
    seconds: float


def run(load: SessionLoad) -> dict[str, float]:
    return asyncio.run(_run(load))


async def _run(load: SessionLoad) -> dict[str, float]:
    reader = await Channel.open(load.host, load.port)
    writer = await Channel.open(load.host, load.port)
    offsets = await _ends(reader, load)
    session = _Session(reader, load)
    await session.open(offsets)
    frames = [
        produce_frame(load.topic, [index], record_batch([b"x" * 100], int(time.time() * 1000)))
        for index in range(load.partitions)
    ]
    reply = ProduceReply.of(load.topic)
    meter = Meter(load.broker_pid)
    fetches = 0
    for number in itertools.count():
        if meter.elapsed_seconds() >= load.seconds:
            break
        index = number * STRIDE % load.partitions
        answer = await writer.exchange(frames[index])
        if error := reply.first_error(b"1234" + answer):
            raise WireError(f"Produce to {load.topic}-{index} was refused with error code {error}")
        fetches += 1
        await session.fetch_one(index)
    figures = meter.figures(fetches)
    await reader.close()
    await writer.close()
    return figures


async def _ends(channel: Channel, load: SessionLoad) -> list[int]:
    request = m.ListOffsetsRequest
    partitions = [
        request.ListOffsetsPartition(partition_index=index, current_leader_epoch=NOBODY, timestamp=LATEST)
        for index in range(load.partitions)
    ]
    asked = request(replica_id=NOBODY, topics=[request.ListOffsetsTopic(name=load.topic, partitions=partitions)])
    answer = await channel.send(asked, LIST_OFFSETS_VERSION)
    ends = {each.partition_index: each.offset for each in answer.topics[0].partitions}
    return [ends[index] for index in range(load.partitions)]


class _Session:
    def __init__(self, channel: Channel, load: SessionLoad) -> None:
        self._channel = channel
        self._topic_id = from_text(load.topic_id)
        self._offsets: list[int] = []
        self._id = 0
        self._epoch = 0
        self._moved: list[int] = []
        """Partitions whose offset the broker has not been told yet."""

    async def open(self, offsets: list[int]) -> None:
        self._offsets = offsets
        answer = await self._fetch(range(len(offsets)), max_wait_ms=0)
        if not answer.session_id:
            raise WireError("the broker opened no fetch session")
        self._id = answer.session_id

    async def fetch_one(self, index: int) -> None:
        """Returns when the record that was written to this partition has come."""
        while True:
            moved, self._moved = self._moved, []
            answer = await self._fetch(moved, max_wait_ms=MAX_WAIT_MS)
            for topic in answer.responses:
                for partition in topic.partitions:
                    if partition.error_code:
                        raise WireError(f"partition {partition.partition_index}: error code {partition.error_code}")
                    if partition.records:
                        self._offsets[partition.partition_index] += 1
                        self._moved.append(partition.partition_index)
            if index in self._moved:
                return

    async def _fetch(self, indexes: Any, *, max_wait_ms: int) -> Any:
        request = m.FetchRequest
        partitions = [
            request.FetchPartition(
                partition=index,
                current_leader_epoch=NOBODY,
                fetch_offset=self._offsets[index],
                last_fetched_epoch=NOBODY,
                log_start_offset=NOBODY,
                partition_max_bytes=PARTITION_BYTES_MAX,
            )
            for index in indexes
        ]
        topics = [request.FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else []
        answer = await self._channel.send(
            request(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=FETCH_BYTES_MAX,
                session_id=self._id,
                session_epoch=self._epoch,
                topics=topics,
            ),
            FETCH_VERSION,
        )
        if answer.error_code != Error.NONE:
            raise WireError(f"a fetch of the session was refused with error code {answer.error_code}")
        self._epoch += 1
        return answer
