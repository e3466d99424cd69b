"""A broker: its parts, what each of them is given of the others, and its way from the first image to a clean end.

Starting goes from the inside out: logs, registration, chores. Stopping goes the other way, so that nothing is
acknowledged that is not on its way to the disk. The listeners are opened and closed by the node that runs the broker.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.api.admin.metadata_answer import MetadataAnswers
from barnabas.broker.api.admin.topic_creations import TopicCreations
from barnabas.broker.api.api_versions import ApiVersionsAnswers
from barnabas.broker.api.environments import (
    AdminEnvironment,
    FetchEnvironment,
    GroupEnvironment,
    ProduceEnvironment,
    StorageEnvironment,
    TelemetryEnvironment,
    TransactionEnvironment,
)
from barnabas.broker.api.fetch.fetch_sessions import FetchSessions
from barnabas.broker.api.fetch.timestamp_search import TimestampSearch
from barnabas.broker.api.produce.batch_opener import BatchOpener
from barnabas.broker.api.produce.produce_lanes import Lanes
from barnabas.broker.api.registry import served_in
from barnabas.broker.broker_peers import BrokerPeers
from barnabas.broker.cleaner import LogCleaner
from barnabas.broker.coordinators.coordinator_spec import CoordinatorEnvironment
from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
from barnabas.broker.coordinators.marker_delivery import MarkerDelivery
from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
from barnabas.broker.coordinators.transaction_markers import MarkerWriter
from barnabas.broker.coordinators.transaction_verification import TransactionVerification
from barnabas.broker.directories import Directories
from barnabas.broker.flusher import Flusher
from barnabas.broker.image_subscriber import ImageSubscriber
from barnabas.broker.lifecycle import NO_EPOCH, BrokerIdentity, BrokerLifecycle
from barnabas.broker.live_config import LiveConfig
from barnabas.broker.maintenance import Maintenance
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.telemetry.client_instances import ClientInstances
from barnabas.broker.telemetry.metrics_folder import MetricsFolder
from barnabas.config.topic_config import resolve_topic_config
from barnabas.log.folder.data_dir import plain_path
from barnabas.metadata.image import MetadataImage
from barnabas.net.peer import PeerEnvironment
from barnabas.net.purgatory import Purgatory
from barnabas.replication.log_store import LogStore
from barnabas.replication.replica_manager import ReplicaManager, ReplicationEnvironment
from barnabas.replication.replica_moves import MovesEnvironment, ReplicaMoves
from barnabas.replication.throttle import QuotaWindows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from barnabas.broker.controller_channel import ForwardingChannel
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.folder.checkpoints import TopicPartition
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.segments.open_files import FileRange
    from barnabas.metadata.image import Endpoint, MetadataDelta
    from barnabas.net.parts import FilePart
    from barnabas.net.peer import Peer
    from barnabas.ports import Clock, Disk, Network, Processes, Random, Threads
    from barnabas.raft.image_publisher import ImagePublisher
    from barnabas.replication.log_store import OpenDir, UnusableDir

logger = logging.getLogger("barnabas.broker")

CONNECTION_RATE = "connection_creation_rate"
READER_THREADS = 8
"""Threads for reads that wait for the device. Those for writes are `background.threads`."""


class BrokerEnvironment(NamedTuple):
    """What a broker works with."""

    cluster_id: str
    dirs: Sequence[OpenDir]
    unusable_dirs: Sequence[UnusableDir]
    metadata_folder: str
    """The folder that holds the metadata log, which may be one of them."""
    publisher: ImagePublisher
    channel: ForwardingChannel
    clock: Clock
    disk: Disk
    network: Network
    random: Random
    threads: Threads
    processes: Processes
    on_configured: Callable[[BrokerConfig], None]
    """Called with each new configuration."""
    on_connection_quotas: Callable[[Mapping[str | None, int]], None]
    """Called with the connections that each address may open in a second, when that has changed."""
    on_failure: Callable[[BaseException], None]
    """Called with a failure after which the broker cannot be trusted: the node must stop."""


class Broker:
    def __init__(self, config: BrokerConfig, environment: BrokerEnvironment) -> None:
        self._environment = environment
        self._node_id = config.node_id
        self._loop = asyncio.get_running_loop()
        self._settings = LiveConfig(config, self._configured)
        self._clock, self._disk, self._random = environment.clock, environment.disk, environment.random
        self._publisher, self._channel = environment.publisher, environment.channel
        self._writers = environment.threads.pool("writes", config.background_threads)
        self._readers = environment.threads.pool("reads", READER_THREADS)
        self._purgatory = Purgatory(self._loop)
        self._fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, self._purgatory, self._random
        )
        self._client_instances = ClientInstances()
        self._store = LogStore(environment.dirs, self.run_in_thread, self._log_rolled, environment.unusable_dirs)
        self._flusher = Flusher(self._disk, self.run_in_thread, self._store.report_failure)
        self._peers = self._broker_peers()
        self._replicas = ReplicaManager(
            self._node_id,
            self._store,
            self._purgatory,
            self._clock,
            self.run_in_thread,
            self._replica_moves(config),
            ReplicationEnvironment(
                loop=self._loop,
                connect=self._connect_to_leader,
                controller=self._channel,
                broker_epoch=lambda: NO_EPOCH if self._lifecycle is None else self._lifecycle.epoch,
                flush=self._flusher.flush,
            ),
            quota_windows=QuotaWindows(
                config.replication_quota_window_num, config.replication_quota_window_size_seconds
            ),
        )
        self._metadata = ImageSubscriber(MetadataImage(environment.cluster_id), self._apply_image)
        self._following: asyncio.Task[None] | None = None
        self._topic_creations = TopicCreations(self._channel, self._settings)
        self._producer_ids = ProducerIds(self._node_id, self._channel, lambda: self._metadata.image)
        coordinators = self._coordinator_environment()
        self._groups = GroupCoordinator(coordinators)
        self._markers = MarkerWriter(coordinators, self._groups)
        self._delivery = MarkerDelivery(self._node_id, coordinators, self._markers, self._peers)
        self._transactions = TransactionCoordinator(coordinators, self._delivery, self._producer_ids)
        self._verification = TransactionVerification(self._node_id, coordinators, self._transactions, self._peers)
        self._connection_quotas: dict[str | None, int] = {}
        self._metadata.listeners += [
            self._peers.image_changed,
            self._delivery.image_changed,
            self._follow_connection_quotas,
        ]
        self._directories = Directories(
            self._node_id,
            environment.metadata_folder,
            self._store,
            self._replicas,
            self._publisher,
            self._channel,
            environment.on_failure,
        )
        self._has_controller = True
        self._maintenance = Maintenance(
            self._store,
            self._replicas,
            self._flusher,
            self._settings,
            clock=self._clock,
            disk=self._disk,
            run_in_thread=self.run_in_thread,
        )
        self._cleaner = LogCleaner(
            self._store,
            self._replicas,
            self._flusher,
            self._settings,
            disk=self._disk,
            processes=environment.processes,
            on_replaced=self._maintenance.watch_deletions,
        )
        self._lifecycle: BrokerLifecycle | None = None
        self._previous_epoch = NO_EPOCH
        """Of the last clean stop, if all that the folders hold was closed by it."""

    def _coordinator_environment(self) -> CoordinatorEnvironment:
        return CoordinatorEnvironment(
            replicas=self._replicas,
            purgatory=self._purgatory,
            flusher=self._flusher,
            clock=self._clock,
            disk=self._disk,
            loop=self._loop,
            run_in_thread=self.read_in_thread,
            image=lambda: self._metadata.image,
            config=lambda: self._settings.config,
        )

    def _replica_moves(self, config: BrokerConfig) -> ReplicaMoves:
        async def load_range(found: FileRange) -> None:
            self._disk.read_in_order(found.file.fd)
            await self.read_in_thread(self._disk.load, found.file.fd, found.position, found.length)

        return ReplicaMoves(
            self._store,
            MovesEnvironment(
                clock=self._clock,
                run_in_thread=self.run_in_thread,
                load=load_range,
                flush=self._flusher.flush,
                replaced=self._flusher.replaced,
            ),
            QuotaWindows(
                config.alter_log_dirs_replication_quota_window_num,
                config.alter_log_dirs_replication_quota_window_size_seconds,
            ),
        )

    def _broker_peers(self) -> BrokerPeers:
        return BrokerPeers(
            PeerEnvironment.of(self._loop, self._environment.network, self._random),
            image=lambda: self._metadata.image,
            config=lambda: self._settings.config,
        )

    def _connect_to_leader(self, broker_id: int, purpose: str) -> Peer | None:
        timeout_s = self._settings.config.replica_socket_timeout_ms / 1000
        settings = self._peers.settings(purpose)._replace(request_timeout_s=timeout_s)
        return self._peers.connect(broker_id, purpose, settings)

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def replicas(self) -> ReplicaManager:
        return self._replicas

    @property
    def purgatory(self) -> Purgatory:
        """Where produce and fetch requests wait."""
        return self._purgatory

    @property
    def fetch_sessions(self) -> FetchSessions:
        return self._fetch_sessions

    @property
    def client_instances(self) -> ClientInstances:
        """The clients that push metrics."""
        return self._client_instances

    @property
    def store(self) -> LogStore:
        return self._store

    @property
    def flusher(self) -> Flusher:
        return self._flusher

    @property
    def groups(self) -> GroupCoordinator:
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinator:
        return self._transactions

    @property
    def cleaner(self) -> LogCleaner:
        return self._cleaner

    def environments(self) -> tuple[object, ...]:
        """The environments of this broker's handlers, one for each family of APIs."""
        environments = (
            *self._environments_of_data(),
            *self._environments_of_admin(),
            *self._environment_of_telemetry(),
        )
        routes = served_in([ApiVersionsAnswers, *map(type, environments)])
        return (ApiVersionsAnswers(self._metadata, self._publisher, routes), *environments)

    def _environments_of_data(self) -> tuple[object, ...]:
        return (
            ProduceEnvironment(
                replicas=self._replicas,
                lanes=Lanes(self._replicas),
                transactions=self._verification,
                opener=BatchOpener(self._environment.processes, self._clock),
                flusher=self._flusher,
                purgatory=self._purgatory,
                settings=self._settings,
            ),
            FetchEnvironment(
                replicas=self._replicas,
                sessions=self._fetch_sessions,
                purgatory=self._purgatory,
                clock=self._clock,
                settings=self._settings,
                timestamps=TimestampSearch(self._disk, self.read_in_thread, self._environment.processes),
                warm=self.warm,
            ),
            GroupEnvironment(
                groups=self._groups,
                metadata=self._metadata,
                settings=self._settings,
                random=self._random,
                topic_creations=self._topic_creations,
            ),
            TransactionEnvironment(
                transactions=self._transactions,
                verification=self._verification,
                markers=self._markers,
                producer_ids=self._producer_ids,
                groups=self._groups,
                replicas=self._replicas,
                metadata=self._metadata,
                settings=self._settings,
            ),
        )

    def _environments_of_admin(self) -> tuple[object, ...]:
        return (
            AdminEnvironment(
                node_id=self._node_id,
                cluster_id=self._environment.cluster_id,
                metadata=self._metadata,
                settings=self._settings,
                channel=self._channel,
                topic_creations=self._topic_creations,
                answers=MetadataAnswers(),
            ),
            StorageEnvironment(
                replicas=self._replicas,
                store=self._store,
                purgatory=self._purgatory,
                disk=self._disk,
                run_in_thread=self.read_in_thread,
            ),
        )

    def _environment_of_telemetry(self) -> tuple[object, ...]:
        folder = self._settings.config.barnabas_client_telemetry_dir
        if not folder:
            return ()
        receiver = MetricsFolder(folder, self._disk, self.run_in_thread, self._environment.processes)
        return (
            TelemetryEnvironment(
                metadata=self._metadata,
                settings=self._settings,
                instances=self._client_instances,
                receiver=receiver,
                clock=self._clock,
                random=self._random,
            ),
        )

    def run_in_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """For work that writes: syncs, checkpoints, creation and removal of logs."""
        return self._writers.run(function, *arguments)

    def read_in_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """For reads that somebody waits for. They have threads of their own, so that slow syncs do not hold them up."""
        return self._readers.run(function, *arguments)

    def warm(self, parts: Sequence[FilePart], done: Callable[[BaseException | None], None]) -> None:
        """Loads file ranges into the page cache in a thread, so that sending them does not wait for the device."""
        for part in parts:
            self._disk.read_in_order(part.file.fd)
        warming = self.read_in_thread(load, self._disk, parts)
        warming.add_done_callback(lambda future: done(future.exception()))

    # ── start ────────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self) -> None:
        """Takes images from the publisher from now on, the first of them at once."""
        publisher = self._publisher
        publisher.attach(self._loop)
        publisher.add_listener(self._metadata.image_published)
        initial = publisher.image
        self._settings.follow(initial)
        self._metadata.image_published(initial, initial.diff(self._metadata.image))

    def open_logs(self) -> asyncio.Future[int]:
        """Opens every log that the folders hold, in threads. Returns the broker epoch of the last clean stop."""
        return self.run_in_thread(self._open_logs, self._publisher.image)

    async def start(self, endpoints: Sequence[Endpoint], previous_epoch: int) -> None:
        """Registers with the controller and returns when clients can be served at `endpoints`."""
        self._directories.opened()
        self._lifecycle = BrokerLifecycle(
            self._identity(endpoints, previous_epoch),
            self._channel,
            self._publisher,
            self._metadata,
            heartbeat_interval_ms=self._settings.config.broker_heartbeat_interval_ms,
            registration_timeout_ms=self._settings.config.initial_broker_registration_timeout_ms,
            folder_failure_timeout_ms=self._settings.config.log_dir_failure_timeout_ms,
            cordoned_directories=lambda: self._store.cordoned_ids,
            on_failure=self._environment.on_failure,
        )
        await self._lifecycle.register_first()
        await self._lifecycle.seen()
        # Not before: until the controller knows of this life, the metadata speaks of the one before, which may have led
        # partitions and written to them what is lost by now.
        self._following = asyncio.ensure_future(self._metadata.run())
        self._following.add_done_callback(self._following_ended)
        self._directories.registered(self._lifecycle)
        # Who is unfenced is elected, and is to lead at once.
        await self._lifecycle.prepare(self._metadata.settled())
        await self._lifecycle.unfence()
        await self._metadata.settled()
        self._store.set_unclaimed_aside()
        self._maintenance.start()
        self._cleaner.start()

    def advertise(self, endpoints: Sequence[Endpoint]) -> None:
        """The cluster is to know that clients are served at these, if the broker is registered."""
        if self._lifecycle is not None:
            self._lifecycle.advertise(tuple(endpoints))

    def beat_now(self) -> None:
        """The controller hears of this broker at once, if it is registered."""
        if self._lifecycle is not None:
            self._lifecycle.beat_now()

    def _open_logs(self, image: MetadataImage) -> int:
        def config_of(partition: TopicPartition) -> TopicConfig:
            return resolve_topic_config(image.configs.of_topic(partition.topic), self._settings.config)

        self._previous_epoch = self._store.open(
            config_of,
            threads=self._environment.threads,
            threads_per_dir=self._settings.config.num_recovery_threads_per_data_dir,
            producer_expiration_ms=self._settings.config.producer_id_expiration_ms,
            on_progress=log_progress,
        )
        return self._previous_epoch

    def _identity(self, endpoints: Sequence[Endpoint], previous_epoch: int) -> BrokerIdentity:
        return BrokerIdentity(
            self._node_id,
            self._environment.cluster_id,
            self._random.uuid(),
            tuple(endpoints),
            tuple(open_dir.directory_id for open_dir in self._store.online),
            self._settings.config.broker_rack,
            previous_epoch,
        )

    def _log_rolled(self, log: PartitionLog) -> None:
        self._flusher.flush_soon(log)

    def controller_failed(self, error: Exception) -> None:
        """The controller of this node is gone, perhaps with the folder of its log."""
        self._has_controller = False
        if isinstance(error, OSError):
            self._directories.metadata_log_failed(error)

    def _configured(self, config: BrokerConfig) -> None:
        if self._store.cordon(map(plain_path, config.cordoned_log_dirs)) and self._lifecycle is not None:
            self._lifecycle.beat_now()
        self._cleaner.reconfigure(config)
        self._environment.on_configured(config)

    # ── following the metadata ───────────────────────────────────────────────────────────────────────────────

    async def _apply_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._settings.follow(image)
        self._groups.reconfigure(self._settings.config)
        await self._replicas.apply(image, delta, self._settings.config)
        if delta.deleted_topics:
            await self._groups.topics_deleted(delta.deleted_topics)
        self._directories.say_where_partitions_are()

    def _follow_connection_quotas(self, image: MetadataImage, _delta: MetadataDelta) -> None:
        quotas = {
            name: int(values[CONNECTION_RATE])
            for ((kind, name), *others), values in image.client_quotas.items()
            if kind == "ip" and not others and CONNECTION_RATE in values
        }
        if quotas != self._connection_quotas:
            self._connection_quotas = quotas
            self._environment.on_connection_quotas(quotas)

    def _following_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._environment.on_failure(error)

    # ── stop ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def leave(self, take_step: TakeStep) -> None:
        """Gives up leadership and answers all requests that wait, while there are still connections to take the
        answers."""
        await take_step(self._cleaner.stop())
        await take_step(self._maintenance.stop())
        if self._lifecycle is not None:
            # Without a controller, nobody can grant a controlled shutdown.
            is_controlled = self._has_controller and self._settings.config.controlled_shutdown_enable
            await take_step(self._lifecycle.stop() if is_controlled else self._lifecycle.abandon())
        await take_step(self._replicas.stop_replicating())
        await take_step(self._directories.close())
        self._transactions.close()
        self._groups.close()
        self._delivery.close()
        self._verification.close()
        self._purgatory.complete_all()
        self._purgatory.close()

    async def close(self, take_step: TakeStep) -> None:
        """Writes and syncs everything. Call it when no connection is left."""
        await take_step(self._peers.close())
        await take_step(self._producer_ids.close())
        await take_step(self._topic_creations.close())
        await take_step(self._environment.processes.close())
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await take_step(self._flusher.close())
        epoch = self._lifecycle.epoch if self._lifecycle is not None else NO_EPOCH
        if epoch == NO_EPOCH:
            # It was never registered in this life: what it had in sync when it last was, it still has.
            epoch = self._previous_epoch
        await take_step(self.run_in_thread(self._store.close, self._replicas.high_watermarks(), epoch))

    def release(self) -> None:
        """Stops taking images and ends the threads. Call it after the quorum has stopped."""
        self._publisher.detach()
        self._writers.shutdown()
        self._readers.shutdown()


if TYPE_CHECKING:
    TakeStep = Callable[[Awaitable[None]], Awaitable[None]]
    """Takes one step of the shutdown; if it fails, the others are taken all the same."""


def load(disk: Disk, parts: Sequence[FilePart]) -> None:
    for part in parts:
        disk.load(part.file.fd, part.position, part.length)


def log_progress(opened: int, total: int) -> None:
    if opened == total or opened % 1000 == 0:
        logger.info("opened %d of %d logs", opened, total)
