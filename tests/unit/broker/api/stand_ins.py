"""What a handler sees of its broker, without a node around it: image, configuration, a controller's answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker.api.admin.metadata_answer import MetadataAnswers
from barnabas.broker.api.admin.topic_creations import TopicCreations
from barnabas.broker.api.api_versions import ApiVersionsAnswers
from barnabas.broker.api.environments import (
    AdminEnvironment,
    FetchEnvironment,
    GroupEnvironment,
    TransactionEnvironment,
)
from barnabas.broker.api.fetch.fetch_sessions import FetchSessions
from barnabas.broker.api.fetch.timestamp_search import TimestampSearch
from barnabas.broker.api.registry import ROUTES
from barnabas.broker.producer_ids import ProducerIds
from barnabas.config.broker_config import BrokerConfig
from barnabas.metadata.image import (
    BrokerImage,
    Endpoint,
    FeaturesImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from barnabas.net.dispatch import Caller
from barnabas.net.endpoint import Listener
from barnabas.net.purgatory import Purgatory
from barnabas.ports import SystemClock, SystemDisk, SystemProcesses, SystemRandom
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.ports import Disk
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.envelopes import ForwardedClient
    from barnabas.raft.image_publisher import ImagePublisher

NODE_ID = 1
CLUSTER_ID = "cluster-0123456789abcd"
FOLDER = Uuid(b"the data folder.")

Answer = Callable[[Any], "Message | Awaitable[Message]"]


class ScriptedChannel:
    """A controller that answers as it is told to, and remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[Any] = []
        self._answer = answer

    async def send(self, request: Message) -> Message:
        self.requests.append(request)
        answer = self._answer(request)
        return await answer if isinstance(answer, Awaitable) else answer

    async def forward(self, request: Message, client: ForwardedClient) -> Message:
        return await self.send(request)


async def has_followed() -> None:
    """A broker whose partitions and settings are as its image says."""


def no_controller(request: Message) -> Message:
    raise AssertionError(f"nobody should ask the controller: {request}")


def a_config(folder: Path | str = "/nowhere", **overrides: str) -> BrokerConfig:
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    config, _ = BrokerConfig.for_single_node(data_dir=str(folder), port=9092, overrides=settings)
    return config


class BrokerStandIn:
    """The environments of handlers, without what a test of theirs has no use for. Must be made in a running loop."""

    def __init__(
        self, image: MetadataImage, answer: Answer, config: BrokerConfig, replicas: object, disk: Disk
    ) -> None:
        self.image = image
        self.config = config
        self.settled: Callable[[], Coroutine[Any, Any, None]] = has_followed
        loop = asyncio.get_running_loop()
        in_thread = partial(loop.run_in_executor, None)
        purgatory = Purgatory(loop)
        unused: Any = None
        hosted: Any = replicas
        self.channel = ScriptedChannel(answer)
        self.producer_ids = ProducerIds(NODE_ID, self.channel, lambda: self.image)
        self.topic_creations = TopicCreations(self.channel, self)
        self.publisher = SimpleNamespace(kraft_version=1, image=image)
        self.versions = ApiVersionsAnswers(self, cast("ImagePublisher", self.publisher), ROUTES)
        self.fetch = FetchEnvironment(
            replicas=hosted,
            sessions=FetchSessions(0, purgatory, SystemRandom()),
            purgatory=purgatory,
            clock=SystemClock(),
            settings=self,
            timestamps=TimestampSearch(disk, in_thread, SystemProcesses()),
            warm=unused,
        )
        self.groups = GroupEnvironment(
            groups=unused, metadata=self, settings=self, random=SystemRandom(), topic_creations=self.topic_creations
        )
        self.transactions = TransactionEnvironment(
            transactions=unused,
            verification=unused,
            markers=unused,
            producer_ids=self.producer_ids,
            groups=unused,
            replicas=hosted,
            metadata=self,
            settings=self,
        )
        self.admin = AdminEnvironment(
            node_id=NODE_ID,
            cluster_id=CLUSTER_ID,
            metadata=self,
            settings=self,
            channel=self.channel,
            topic_creations=self.topic_creations,
            answers=MetadataAnswers(),
        )

    def offset_in_effect(self, newest: int) -> int:
        return newest


def a_broker(
    image: MetadataImage,
    *,
    answer: Answer = no_controller,
    config: BrokerConfig | None = None,
    replicas: object = None,
    disk: Disk | None = None,
) -> BrokerStandIn:
    return BrokerStandIn(image, answer, config or a_config(), replicas, disk or SystemDisk())


def asked(broker: BrokerStandIn) -> list[Any]:
    """What the controller was asked."""
    return broker.channel.requests


def caller(version: int, listener_name: str = "PLAINTEXT") -> Caller:
    header = RequestHeader(0, version, 7, "client", 0)
    listener = Listener(listener_name, "PLAINTEXT", "", 0)
    return Caller(header, "127.0.0.1", listener)


def a_registration(
    broker_id: int = NODE_ID,
    *,
    endpoints: Mapping[str, int] | None = None,
    fenced: bool = False,
    rack: str | None = None,
    folders: tuple[Uuid, ...] = (FOLDER,),
) -> BrokerImage:
    ports = {"PLAINTEXT": 9092} if endpoints is None else endpoints
    return BrokerImage(
        id=broker_id,
        epoch=5,
        incarnation_id=Uuid(bytes(16)),
        endpoints=tuple(Endpoint(name, f"host-{broker_id}", port, 0) for name, port in ports.items()),
        features={},
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=folders,
    )


def a_partition(
    leader: int = NODE_ID, replicas: tuple[int, ...] = (NODE_ID,), isr: tuple[int, ...] | None = None
) -> PartitionImage:
    return PartitionImage(
        replicas=replicas,
        directories=(FOLDER,) * len(replicas),
        isr=replicas if isr is None else isr,
        leader=leader,
        leader_epoch=3,
        partition_epoch=4,
    )


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"\1")[-16:])


def a_topic(name: str, partitions: int = 1) -> TopicImage:
    return TopicImage(name, topic_id(name), (a_partition(),) * partitions)


def an_image(
    topics: Iterable[TopicImage] = (), brokers: Iterable[BrokerImage] | None = None, *, offset: int = 42
) -> MetadataImage:
    topics = list(topics)
    registrations = [a_registration()] if brokers is None else brokers
    return MetadataImage(
        cluster_id=CLUSTER_ID,
        offset=offset,
        features=FeaturesImage(30, {"group.version": 1}),
        brokers={broker.id: broker for broker in registrations},
        topics=TopicsImage({t.name: t for t in topics}, {t.topic_id: t for t in topics}),
    )
