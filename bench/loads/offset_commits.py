"""Offset commits: several groups, each committing one offset after the other, as many as the coordinator answers.

The frames are encoded once. The first answer of each is decoded; every later one must be the same to the byte.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from barnabas.net.frames import request_frame
from barnabas.protocol import messages as m
from bench.loads.channel import CLIENT_ID, GROUP, Channel, await_coordinator, until_coordinated
from bench.loads.meter import Meter
from bench.wire import WireError

VERSION = 8


@dataclass(frozen=True, slots=True)
class OffsetCommitsLoad:
    host: str
    port: int
    broker_pid: int
    topic: str
    partitions: int
    connections: int
    seconds: float


def run(load: OffsetCommitsLoad) -> dict[str, float]:
    return asyncio.run(_run(load))


async def _run(load: OffsetCommitsLoad) -> dict[str, float]:
    committers = [await _Committer.join(load, number) for number in range(load.connections)]
    meter = Meter(load.broker_pid)
    commits = sum(await asyncio.gather(*(each.commit_until(meter, load.seconds) for each in committers)))
    figures = meter.figures(commits)
    for each in committers:
        await each.channel.close()
    return figures


class _Committer:
    def __init__(self, channel: Channel, frame: bytes, answer: bytes) -> None:
        self.channel = channel
        self._frame = frame
        self._answer = answer

    @staticmethod
    async def join(load: OffsetCommitsLoad, number: int) -> _Committer:
        channel = await Channel.open(load.host, load.port)
        group = f"{load.topic}-{number}"
        await await_coordinator(channel, group, GROUP)
        request = commit_request(group, load.topic, load.partitions)

        async def ask() -> tuple[int, Any]:
            answer = await channel.send(request, VERSION)
            errors = {each.error_code for topic in answer.topics for each in topic.partitions}
            return max(errors), answer

        await until_coordinated(ask)
        frame = request_frame(request, VERSION, 0, CLIENT_ID)
        return _Committer(channel, frame, await channel.exchange(frame))

    async def commit_until(self, meter: Meter, seconds: float) -> int:
        commits = 0
        while meter.elapsed_seconds() < seconds:
            if await self.channel.exchange(self._frame) != self._answer:
                raise WireError("an offset commit was answered otherwise than the first one")
            commits += 1
        return commits


def commit_request(group: str, topic: str, partitions: int) -> m.OffsetCommitRequest:
    """An offset for every partition, by someone who is no member."""
    request = m.OffsetCommitRequest
    wanted = [
        request.OffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in range(partitions)
    ]
    return request(group_id=group, topics=[request.OffsetCommitRequestTopic(name=topic, partitions=wanted)])
