"""A group coordinator over real logs, with what it sees of its broker around it."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from barnabas.broker.api.environments import GroupEnvironment
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, CoordinatorEnvironment, partition_of
from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
from barnabas.broker.flusher import Flusher
from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.metadata.image import TopicImage
from barnabas.ports import SystemClock, SystemRandom
from barnabas.protocol import messages as m
from barnabas.protocol.batch import iter_headers
from barnabas.protocol.errors import Error, KafkaError
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import NODE_ID, a_config, a_partition, a_topic, topic_id
from tests.unit.replication.hosting import FaultyDisk, Hosting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.metadata.image import MetadataImage
    from barnabas.protocol.batch import BatchHeader
    from barnabas.replication.hosted import HostedPartition

PARTITIONS = 2
TOPIC = "t"


class FullDisk(FaultyDisk):
    """The real disk, which can run full."""

    __slots__ = ("is_full",)

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def pwrite(self, *arguments: Any) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(*arguments)


class Threads:
    """Work for threads, which can be held up."""

    def __init__(self) -> None:
        self._free = asyncio.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def let_go(self) -> None:
        self._free.set()

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._run(function, *arguments))

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await self._free.wait()
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


class Household:
    """Must be made in a running event loop."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.disk = FullDisk()
        self.hosting = Hosting(root, ManualClock(SystemClock().now_ms()), disk=self.disk)
        self.hosting.open()
        self.config: BrokerConfig = a_config(root, **settings)
        self.loop = asyncio.get_running_loop()
        self.clock = SystemClock()
        self.purgatory = self.hosting.purgatory
        self.replicas = self.hosting.replicas
        self.threads = Threads()
        self.flusher = Flusher(self.disk, self.threads.run, self.hosting.store.report_failure)
        self.environment = CoordinatorEnvironment(
            replicas=self.replicas,
            purgatory=self.purgatory,
            flusher=self.flusher,
            clock=self.clock,
            disk=self.disk,
            loop=self.loop,
            run_in_thread=self.threads.run,
            image=lambda: self.image,
            config=lambda: self.config,
        )
        self.groups = GroupCoordinator(self.environment)

    @property
    def for_group_handlers(self) -> GroupEnvironment:
        unused: Any = None
        return GroupEnvironment(
            groups=self.groups, metadata=self, settings=self, random=SystemRandom(), topic_creations=unused
        )

    async def settled(self) -> None:
        """The metadata is always in effect when a test goes on."""

    @property
    def image(self) -> MetadataImage:
        return self.hosting.image

    async def lead(self, epoch: int = 1, *, leader: int = NODE_ID, replicas: tuple[int, ...] = (NODE_ID,)) -> None:
        """The metadata says who leads the partitions of groups, and in which epoch."""
        partition = a_partition(leader, replicas)._replace(leader_epoch=epoch, partition_epoch=epoch)
        offsets = TopicImage(OFFSETS_TOPIC, topic_id(OFFSETS_TOPIC), (partition,) * PARTITIONS)
        await self.hosting.follow(offsets, a_topic(TOPIC))

    def partition_of(self, group_id: str) -> HostedPartition:
        return self.replicas.partitions_of(OFFSETS_TOPIC)[partition_of(group_id, PARTITIONS)]

    def batches_of(self, group_id: str) -> list[BatchHeader]:
        """What was written to the group's partition."""
        log = self.partition_of(group_id).log
        with open(f"{log.folder}/{0:020}.log", "rb") as file:
            return [header for _, header in iter_headers(file.read())]

    def commit_request(self, group_id: str, offset: int, metadata: str = "") -> m.OffsetCommitRequest:
        request = m.OffsetCommitRequest
        partition = request.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        topic = request.OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id(TOPIC), partitions=[partition])
        return request(group_id=group_id, topics=[topic])

    async def commit(self, group_id: str, offset: int, metadata: str = "") -> int:
        """The error code of the answer."""
        request = self.commit_request(group_id, offset, metadata)
        response: m.OffsetCommitResponse = await self.groups.step(
            group_id, lambda shard, reply_to, now_ms: shard.commit_offsets(request, 9, reply_to, now_ms)
        )
        return response.topics[0].partitions[0].error_code

    async def committed(self, group_id: str) -> int:
        request = m.OffsetFetchRequest
        topic = request.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        asked = request.OffsetFetchRequestGroup(group_id=group_id, topics=[topic])
        answer = await self.groups.read(group_id, lambda shard: shard.fetch_offsets(asked, require_stable=False))
        return answer.topics[0].partitions[0].committed_offset

    async def join(
        self,
        group_id: str,
        member_id: str = "",
        *,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 10_000,
    ) -> m.JoinGroupResponse:
        """In the version that asks for no second join."""
        request = m.JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        client = ClientInfo("client", "/127.0.0.1", 3, f"client-{self.clock.monotonic()}")
        response: m.JoinGroupResponse = await self.groups.step(
            group_id, lambda shard, reply_to, now_ms: shard.join(request, client, reply_to, now_ms)
        )
        return response

    async def sync(self, group_id: str, joined: m.JoinGroupResponse) -> m.SyncGroupResponse:
        """The leader's, who takes everything for itself."""
        request = m.SyncGroupRequest
        assignment = request.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        sync = request(
            group_id=group_id,
            member_id=joined.member_id,
            generation_id=joined.generation_id,
            assignments=[assignment],
        )
        response: m.SyncGroupResponse = await self.groups.step(
            group_id, lambda shard, reply_to, now_ms: shard.sync(sync, reply_to, now_ms)
        )
        return response

    async def heartbeat(self, group_id: str, joined: m.JoinGroupResponse) -> int:
        request = m.HeartbeatRequest(group_id=group_id, member_id=joined.member_id, generation_id=joined.generation_id)
        response: m.HeartbeatResponse = await self.groups.step(
            group_id, lambda shard, reply_to, now_ms: shard.heartbeat(request, reply_to, now_ms)
        )
        return response.error_code

    async def state_of(self, group_id: str) -> str:
        (group,) = await self.groups.read(group_id, lambda shard: shard.describe_groups([group_id], 0))
        return group.group_state

    async def loaded(self) -> None:
        """Returns when no partition of groups is being read any more."""
        await until(self._is_loaded)

    async def _is_loaded(self) -> bool:
        try:
            await self.groups.read_all(lambda _: None)
        except KafkaError as refused:
            if refused.error is Error.COORDINATOR_LOAD_IN_PROGRESS:
                return False
            raise
        return True

    async def stop(self) -> None:
        self.threads.let_go()
        self.groups.close()
        await self.flusher.close()
        self.hosting.stop()


@asynccontextmanager
async def household(root: Path, **settings: str) -> AsyncIterator[Household]:
    """A coordinator that serves its two partitions, until the end of the block. Settings without dots."""
    house = Household(root, **settings)
    try:
        await house.lead()
        await house.loaded()
        yield house
    finally:
        await house.stop()


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 (the condition has no event)
            await asyncio.sleep(0.001)
