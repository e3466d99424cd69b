"""A whole controller in its thread, with a broker that lives beside it, on a real or a simulated disk."""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec

from barnabas.broker.image_subscriber import ImageSubscriber
from barnabas.broker.lifecycle import NO_EPOCH, BrokerIdentity, BrokerLifecycle
from barnabas.controller.controller_node import ControllerNode, ControllerOptions, Environment
from barnabas.controller.decisions.context import Settings
from barnabas.metadata.image import Endpoint, MetadataImage
from barnabas.node.controller_channel import QuorumChannel
from barnabas.ports import Clock, SystemClock, SystemRandom, SystemThreads
from barnabas.protocol.uuids import Uuid
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.format import format_metadata
from barnabas.raft.folder.metadata_log import MetadataLogLimits
from barnabas.raft.image_publisher import ImagePublisher
from tests.unit.controller.cluster import CLUSTER_ID, RULES, creation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from barnabas.metadata.image import MetadataDelta
    from barnabas.ports import Disk
    from barnabas.protocol import messages as m

P = ParamSpec("P")

DIRECTORY = Uuid(b"directory of one")
CONTROLLER = Endpoint("CONTROLLER", "127.0.0.1", 9093, 0)
PLAINTEXT = Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0)
QUIET = MetadataLogLimits(idle_interval_ms=3_600_000)
"""No records but those that a test asks for."""


def in_event_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def format_folder(disk: Disk, folder: str) -> None:
    voter = VoterNode(1, DIRECTORY, (VoterEndpoint(CONTROLLER.name, CONTROLLER.host, CONTROLLER.port),))
    format_metadata(disk, folder, voter, now_ms=SystemClock().now_ms())


class Node:
    """What a test needs of a running node."""

    def __init__(
        self, disk: Disk, folder: str, limits: MetadataLogLimits, clock: Clock | None, **settings: Any
    ) -> None:
        self.failures: list[Exception] = []
        self.publisher = ImagePublisher(CLUSTER_ID)
        values = {"node_id": 1, "cluster_id": CLUSTER_ID, "sole_broker_id": 1, **settings}
        options = ControllerOptions(folder, DIRECTORY, Settings(**values), limits)
        environment = Environment(
            self.publisher,
            RULES,
            disk,
            clock or SystemClock(),
            SystemRandom(),
            SystemThreads(),
            self.failures.append,
        )
        self.controller = ControllerNode(options, environment, SystemThreads().loop_thread("controller"))
        self.channel = QuorumChannel(1, self.publisher, self.controller.current_leader, self.controller, None)

    @property
    def image(self) -> MetadataImage:
        return self.publisher.image

    async def create_topic(self, name: str, partitions: int = 1) -> m.CreateTopicsResponse.CreatableTopicResult:
        response: m.CreateTopicsResponse = await self.channel.send(creation(name, partitions))
        return response.topics[0]

    def lifecycle(self, previous_epoch: int = NO_EPOCH, heartbeat_interval_ms: int = 2000) -> BrokerLifecycle:
        identity = BrokerIdentity(
            1, CLUSTER_ID, SystemRandom().uuid(), (PLAINTEXT,), (DIRECTORY,), previous_epoch=previous_epoch
        )
        return BrokerLifecycle(
            identity, self.channel, self.publisher, at_once(), heartbeat_interval_ms=heartbeat_interval_ms
        )


def at_once() -> ImageSubscriber:
    """For a broker without logs, where images are in effect when they have come."""

    async def apply(_image: MetadataImage, _delta: MetadataDelta) -> None:
        """Nothing is to be done."""

    return ImageSubscriber(MetadataImage(CLUSTER_ID), apply)


async def join(lifecycle: BrokerLifecycle) -> None:
    """A broker's way into the cluster, up to the heartbeat that unfences it."""
    await lifecycle.register_first()
    await lifecycle.seen()
    await lifecycle.unfence()


@asynccontextmanager
async def running(
    disk: Disk,
    folder: str,
    *,
    limits: MetadataLogLimits = QUIET,
    clock: Clock | None = None,
    endpoint: Endpoint = CONTROLLER,
    **settings: Any,
) -> AsyncIterator[Node]:
    """A node whose controller leads. It is stopped at the end, the broker's life left to the test."""
    node = Node(disk, folder, limits, clock, **settings)
    node.controller.open()
    node.publisher.attach(asyncio.get_running_loop())
    await node.controller.start([endpoint])
    try:
        yield node
    finally:
        await node.controller.stop()
        node.publisher.detach()


@asynccontextmanager
async def with_broker(disk: Disk, folder: str, **options: Any) -> AsyncIterator[Node]:
    """A node whose broker is unfenced, and that stops without a controlled shutdown, as if it were killed."""
    async with running(disk, folder, **options) as node:
        lifecycle = node.lifecycle()
        await join(lifecycle)
        try:
            yield node
        finally:
            await lifecycle.abandon()
