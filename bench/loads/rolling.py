"""A rolling restart of all members of one large group: how long until everybody is settled again.

Members leave and come back a wave at a time, as a deployment does it, and the next wave waits until the group is
settled: every partition has an owner, everybody is in the same generation or epoch, and shares differ by one at most.
All members live on one event loop, each with a connection of its own, so that each moment has one answer to who owns
what.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

from bench.loads.channel import GROUP, Channel, await_coordinator
from bench.loads.classic_member import ClassicMember
from bench.loads.consumer_member import ConsumerMember
from bench.loads.meter import Meter
from bench.loads.ownership import Ownership

SETTLE_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class RollingLoad:
    host: str
    port: int
    broker_pid: int
    group: str
    protocol: str
    """`classic` or `consumer`, as Kafka's clients call them in `group.protocol`."""
    topic: str
    topic_id: str
    partitions: int
    members: int
    waves: int
    session_timeout_ms: int
    heartbeat_seconds: float


class NotSettledError(RuntimeError):
    """The group did not come to rest in time."""


class Member(Protocol):
    epoch: int
    owned: set[int]

    def begin_to_leave(self) -> None: ...
    async def run(self) -> None: ...


def run(load: RollingLoad) -> dict[str, float]:
    return asyncio.run(_run(load))


async def _run(load: RollingLoad) -> dict[str, float]:
    ownership = Ownership(load.partitions, load.session_timeout_ms / 1000)
    async with asyncio.TaskGroup() as tasks:
        group = _Group(load, ownership, tasks)
        await group.prepare()
        for _ in range(load.members):
            await group.add()
        await group.settle()
        meter = Meter(load.broker_pid)
        for _ in range(load.waves):
            await group.replace_oldest(load.members // load.waves)
            await group.settle()
        figures = meter.figures(load.members)
        group.end()
    return figures | {"longest_idle_seconds": ownership.longest_idle_seconds}


class _Group:
    def __init__(self, load: RollingLoad, ownership: Ownership, tasks: asyncio.TaskGroup) -> None:
        self._load = load
        self._ownership = ownership
        self._tasks = tasks
        self._members: list[tuple[Member, asyncio.Task[None]]] = []

    async def prepare(self) -> None:
        channel = await Channel.open(self._load.host, self._load.port)
        await await_coordinator(channel, self._load.group, GROUP)
        await channel.close()

    async def add(self) -> None:
        channel = await Channel.open(self._load.host, self._load.port)
        kind = ClassicMember if self._load.protocol == "classic" else ConsumerMember
        member: Member = kind(self._load, self._ownership, channel)
        self._members.append((member, self._tasks.create_task(member.run())))

    async def replace_oldest(self, count: int) -> None:
        """So many leave; when all are gone, as many new ones come."""
        leaving, self._members = self._members[:count], self._members[count:]
        for member, _ in leaving:
            member.begin_to_leave()
        await asyncio.gather(*(task for _, task in leaving))
        for _ in range(count):
            await self.add()

    async def settle(self) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while not self._is_settled():
            if time.monotonic() > deadline:
                raise NotSettledError(f"the group of {self._load.members} did not settle in {SETTLE_SECONDS_MAX:.0f} s")
            self._ownership.check_idle()
            await asyncio.sleep(LOOK_SECONDS)

    def end(self) -> None:
        for member, _ in self._members:
            member.begin_to_leave()

    def _is_settled(self) -> bool:
        if not self._ownership.is_complete:
            return False
        epochs = {member.epoch for member, _ in self._members}
        sizes = [len(member.owned) for member, _ in self._members]
        return len(epochs) == 1 and -1 not in epochs and max(sizes) - min(sizes) <= 1
