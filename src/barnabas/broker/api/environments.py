"""The parts of the broker that handlers work with, one environment for each family of APIs.

A handler's first parameter is the environment of its family, so its signature says what it can touch. The broker makes
one of each (`broker/broker`), and `registry.routes_for` connects them with the handlers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from barnabas.broker.api.admin.metadata_answer import MetadataAnswers
    from barnabas.broker.api.admin.topic_creations import TopicCreations
    from barnabas.broker.api.fetch.fetch_sessions import FetchSessions
    from barnabas.broker.api.fetch.timestamp_search import TimestampSearch
    from barnabas.broker.api.produce.batch_opener import BatchOpener
    from barnabas.broker.api.produce.produce_lanes import Lanes
    from barnabas.broker.controller_channel import ForwardingChannel
    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from barnabas.broker.coordinators.transaction_markers import MarkerWriter
    from barnabas.broker.coordinators.transaction_verification import TransactionVerification
    from barnabas.broker.flusher import Flusher
    from barnabas.broker.producer_ids import ProducerIds
    from barnabas.broker.telemetry.client_instances import ClientInstances
    from barnabas.broker.telemetry.metrics_folder import MetricsFolder
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.metadata.image import MetadataImage
    from barnabas.net.parts import FilePart
    from barnabas.net.purgatory import Purgatory
    from barnabas.ports import Clock, Disk, Random
    from barnabas.replication.log_store import LogStore
    from barnabas.replication.replica_manager import ReplicaManager


class CurrentMetadata(Protocol):
    """The metadata that is in effect on this broker."""

    @property
    def image(self) -> MetadataImage: ...

    async def settled(self) -> None:
        """Returns when all metadata that was committed until now is in effect."""
        ...


class CurrentConfig(Protocol):
    """The broker's configuration. It is replaced when a dynamic setting changes."""

    @property
    def config(self) -> BrokerConfig: ...


@dataclass(frozen=True, slots=True)
class ProduceEnvironment:
    replicas: ReplicaManager
    lanes: Lanes
    transactions: TransactionVerification
    opener: BatchOpener
    flusher: Flusher
    purgatory: Purgatory
    settings: CurrentConfig


@dataclass(frozen=True, slots=True)
class FetchEnvironment:
    """For reading from partitions: records, offsets, leader epochs."""

    replicas: ReplicaManager
    sessions: FetchSessions
    purgatory: Purgatory
    clock: Clock
    settings: CurrentConfig
    timestamps: TimestampSearch
    warm: Callable[[Sequence[FilePart], Callable[[BaseException | None], None]], None]
    """Loads file ranges into the page cache in a thread, and then calls back."""


@dataclass(frozen=True, slots=True)
class GroupEnvironment:
    groups: GroupCoordinator
    metadata: CurrentMetadata
    settings: CurrentConfig
    random: Random
    topic_creations: TopicCreations


@dataclass(frozen=True, slots=True)
class TransactionEnvironment:
    transactions: TransactionCoordinator
    verification: TransactionVerification
    markers: MarkerWriter
    producer_ids: ProducerIds
    groups: GroupCoordinator
    replicas: ReplicaManager
    metadata: CurrentMetadata
    settings: CurrentConfig


@dataclass(frozen=True, slots=True)
class StorageEnvironment:
    """For what partitions take on disk: where they are, and what is to go."""

    replicas: ReplicaManager
    store: LogStore
    purgatory: Purgatory
    disk: Disk
    run_in_thread: Callable[..., Awaitable[Any]]
    """For what waits for the device."""


@dataclass(frozen=True, slots=True)
class AdminEnvironment:
    """For describing the cluster, its topics and its settings, and for having the controller change them."""

    node_id: int
    cluster_id: str
    metadata: CurrentMetadata
    settings: CurrentConfig
    channel: ForwardingChannel
    topic_creations: TopicCreations
    answers: MetadataAnswers


@dataclass(frozen=True, slots=True)
class TelemetryEnvironment:
    """For metrics that clients push. There is none where nothing receives them."""

    metadata: CurrentMetadata
    settings: CurrentConfig
    instances: ClientInstances
    receiver: MetricsFolder
    clock: Clock
    random: Random

    def now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)
