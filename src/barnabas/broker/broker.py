"""A broker: what its handlers and chores work with, and its way from the first image to a clean end.

Starting goes from the inside out: logs, registration, chores. Stopping goes the other way, so that nothing is
acknowledged that is not on its way to the disk. The listeners are opened and closed by whoever runs the broker.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.api.api_state import ApiState
from barnabas.broker.coordinators.coordinator_spec import CoordinatorEnvironment
from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
from barnabas.broker.coordinators.transaction_markers import MarkerWriter
from barnabas.broker.directories import Directories
from barnabas.broker.flusher import Flusher
from barnabas.broker.image_subscriber import ImageSubscriber
from barnabas.broker.lifecycle import NO_EPOCH, BrokerIdentity, BrokerLifecycle
from barnabas.broker.maintenance import Maintenance
from barnabas.broker.producer_ids import ProducerIds
from barnabas.config.topic_config import resolve_topic_config
from barnabas.config.values import ConfigError
from barnabas.metadata.image import MetadataImage
from barnabas.net.purgatory import Purgatory
from barnabas.replication.log_store import LogStore
from barnabas.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from barnabas.broker.controller_channel import ControllerChannel
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.folder.checkpoints import TopicPartition
    from barnabas.log.partition_log import PartitionLog
    from barnabas.metadata.image import Endpoint, MetadataDelta
    from barnabas.net.parts import FilePart
    from barnabas.ports import Clock, Disk, Processes, Random, Threads
    from barnabas.raft.image_publisher import ImagePublisher
    from barnabas.replication.log_store import OpenDir

logger = logging.getLogger("barnabas.broker")

READER_THREADS = 8
"""For readers that wait for the device. Those of writers are `background.threads`."""


class BrokerEnvironment(NamedTuple):
    """What a broker works with."""

    cluster_id: str
    dirs: Sequence[OpenDir]
    metadata_folder: str
    """The one of them that holds the metadata log."""
    publisher: ImagePublisher
    channel: ControllerChannel
    clock: Clock
    disk: Disk
    random: Random
    threads: Threads
    processes: Processes
    on_configured: Callable[[BrokerConfig], None]
    """Told of each configuration that comes into force."""
    on_failure: Callable[[BaseException], None]
    """Told what has failed without which the broker cannot be trusted. The node must stop."""


class Broker:
    """Attributes without an underscore are for handlers and chores."""

    def __init__(self, config: BrokerConfig, environment: BrokerEnvironment) -> None:
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = environment.cluster_id
        self.loop = asyncio.get_running_loop()
        self.clock = environment.clock
        self.disk = environment.disk
        self.random = environment.random
        self.processes = environment.processes
        self.purgatory = Purgatory(self.loop)
        self.fetch_bytes_max = config.fetch_max_bytes
        self._static_config = config
        self._environment = environment
        self._writers = environment.threads.pool("writes", config.background_threads)
        self._readers = environment.threads.pool("reads", READER_THREADS)
        self.store = LogStore(environment.dirs, self.run_in_thread, self._log_rolled)
        self.flusher = Flusher(self.disk, self.run_in_thread, self.store.report_failure)
        self.replicas = ReplicaManager(self.node_id, self.store, self.purgatory, self.clock, self.run_in_thread)
        self.metadata = environment.publisher
        self.channel = environment.channel
        self._subscriber = ImageSubscriber(MetadataImage(self.cluster_id), self._apply_image)
        self._following: asyncio.Task[None] | None = None
        self.api = ApiState(self)
        self.producer_ids = ProducerIds(self.node_id, self.channel, lambda: self.image)
        coordinators = self._coordinator_environment()
        self.groups = GroupCoordinator(coordinators)
        self.markers = MarkerWriter(coordinators, self.groups)
        self.transactions = TransactionCoordinator(coordinators, self.markers, self.producer_ids)
        self._directories = Directories(self, environment.metadata_folder.rstrip("/") or "/")
        self._has_controller = True
        self._maintenance = Maintenance(self)
        self._lifecycle: BrokerLifecycle | None = None

    @property
    def image(self) -> MetadataImage:
        """The newest metadata whose consequences are all in place here."""
        return self._subscriber.image

    async def settled(self) -> None:
        """Returns when all metadata that was committed until now is in effect here."""
        await self._subscriber.settled()

    def _coordinator_environment(self) -> CoordinatorEnvironment:
        return CoordinatorEnvironment(
            replicas=self.replicas,
            purgatory=self.purgatory,
            flusher=self.flusher,
            clock=self.clock,
            disk=self.disk,
            loop=self.loop,
            run_in_thread=self.read_in_thread,
            image=lambda: self.image,
            config=lambda: self.config,
        )

    def run_in_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """For what writes: syncs, checkpoints, creation and removal of logs."""
        return self._writers.run(function, *arguments)

    def read_in_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """For what somebody waits to read. These threads are its own, so that slow syncs stop no reader."""
        return self._readers.run(function, *arguments)

    def warm(self, parts: Sequence[FilePart], done: Callable[[BaseException | None], None]) -> None:
        """Brings file ranges into the page cache in a thread, so that sending them does not wait for the device."""
        for part in parts:
            self.disk.read_in_order(part.file.fd)
        warming = self.read_in_thread(load, self.disk, parts)
        warming.add_done_callback(lambda future: done(future.exception()))

    # ── start ────────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self) -> None:
        """Takes images from the publisher from now on, the first of them at once."""
        publisher = self.metadata
        publisher.attach(self.loop)
        publisher.add_listener(self._subscriber.image_published)
        initial = publisher.image
        self._take_dynamic_config(initial)
        self._subscriber.image_published(initial, initial.diff(self._subscriber.image))

    def open_logs(self) -> asyncio.Future[int]:
        """Opens every log that the folders hold, in threads. Gives the broker epoch of the last clean stop."""
        return self.run_in_thread(self._open_logs, self.metadata.image)

    async def start(self, endpoints: Sequence[Endpoint], previous_epoch: int) -> None:
        """Registers with the controller and returns when clients can be served at `endpoints`."""
        self._following = asyncio.ensure_future(self._subscriber.run())
        self._following.add_done_callback(self._following_ended)
        self._lifecycle = BrokerLifecycle(
            self._identity(endpoints, previous_epoch),
            self.channel,
            self.metadata,
            heartbeat_interval_ms=self.config.broker_heartbeat_interval_ms,
            on_failure=self._environment.on_failure,
        )
        await self._lifecycle.start()
        self._directories.registered(self._lifecycle)
        await self.settled()
        self.store.set_unclaimed_aside()
        self._maintenance.start()

    def _open_logs(self, image: MetadataImage) -> int:
        def config_of(partition: TopicPartition) -> TopicConfig:
            return resolve_topic_config(image.configs.of_topic(partition.topic), self.config)

        return self.store.open(
            config_of,
            threads=self._environment.threads,
            threads_per_dir=self.config.num_recovery_threads_per_data_dir,
            producer_expiration_ms=self.config.producer_id_expiration_ms,
            on_progress=log_progress,
        )

    def _identity(self, endpoints: Sequence[Endpoint], previous_epoch: int) -> BrokerIdentity:
        return BrokerIdentity(
            self.node_id,
            self.cluster_id,
            self.random.uuid(),
            tuple(endpoints),
            tuple(open_dir.directory_id for open_dir in self.store.online),
            self.config.broker_rack,
            previous_epoch,
        )

    def _log_rolled(self, log: PartitionLog) -> None:
        self.flusher.flush_soon(log)

    def fail(self, error: BaseException) -> None:
        """Something has failed without which the broker cannot be trusted: the node stops."""
        self._environment.on_failure(error)

    def controller_failed(self, error: Exception) -> None:
        """The controller of this node is gone, perhaps with the folder of its log."""
        self._has_controller = False
        if isinstance(error, OSError):
            self._directories.metadata_log_failed(error)

    # ── following the metadata ───────────────────────────────────────────────────────────────────────────────

    async def _apply_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._take_dynamic_config(image)
        self.groups.reconfigure(self.config)
        await self.replicas.apply(image, delta, self.config)
        if delta.deleted_topics:
            self.groups.topics_deleted(delta.deleted_topics)
        self._directories.say_where_partitions_are()

    def _take_dynamic_config(self, image: MetadataImage) -> None:
        cluster_default, own = image.configs.of_broker(""), image.configs.of_broker(self.node_id)
        try:
            config = self._static_config.with_dynamic(cluster_default, own)
        except ConfigError as error:
            logger.error("the dynamic configuration is not taken over: %s", error)
            return
        for name, reason in config.ignored_dynamic.items():
            if self.config.ignored_dynamic.get(name) != reason:
                logger.warning("the dynamic setting %s has no effect: %s", name, reason)
        self.config = config
        self.fetch_bytes_max = config.fetch_max_bytes
        self._environment.on_configured(config)

    def _following_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._environment.on_failure(error)

    # ── stop ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def leave(self, take_step: TakeStep) -> None:
        """Gives up leadership and answers whoever waits. Connections are still there to take the answers."""
        await take_step(self._maintenance.stop())
        if self._lifecycle is not None:
            # Without a controller nobody could let this broker go.
            await take_step(self._lifecycle.stop() if self._has_controller else self._lifecycle.abandon())
        await take_step(self._directories.close())
        self.transactions.close()
        self.groups.close()
        self.purgatory.complete_all()
        self.purgatory.close()

    async def close(self, take_step: TakeStep) -> None:
        """Writes and syncs everything. To be called when no connection is left."""
        await take_step(self.producer_ids.close())
        await take_step(self.api.close())
        await take_step(self.processes.close())
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await take_step(self.flusher.close())
        epoch = self._lifecycle.epoch if self._lifecycle is not None else NO_EPOCH
        offsets = {hosted.log: hosted.state.high_watermark.offset for hosted in self.replicas}
        await take_step(self.run_in_thread(self.store.close, offsets, epoch))

    def release(self) -> None:
        """Takes no more images and ends the threads. To be called when the quorum has stopped."""
        self.metadata.detach()
        self._writers.shutdown()
        self._readers.shutdown()


if TYPE_CHECKING:
    TakeStep = Callable[[Awaitable[None]], Awaitable[None]]
    """Takes one step of stopping; one that fails keeps none of the others from being taken."""


def load(disk: Disk, parts: Sequence[FilePart]) -> None:
    for part in parts:
        disk.load(part.file.fd, part.position, part.length)


def log_progress(opened: int, total: int) -> None:
    if opened == total or opened % 1000 == 0:
        logger.info("opened %d of %d logs", opened, total)
