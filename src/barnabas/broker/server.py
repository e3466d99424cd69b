"""A node: start → serve → shutdown.

`Broker` is a running node and what its handlers work with; `run` is what `barnabas start` calls. Starting goes from
the inside out: ports, folders, metadata, logs, registration, and last the doors open. Stopping goes the other way, so
that nothing is acknowledged that is not on its way to the disk.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import uvloop

from barnabas.broker.api import register_all
from barnabas.broker.api.state import ApiState
from barnabas.broker.controller import ControllerNode, ControllerOptions, Environment
from barnabas.broker.controller_channel import LocalControllerChannel
from barnabas.broker.controller_rules import BrokerConfigRules, controller_settings, metadata_limits
from barnabas.broker.doors import Doors
from barnabas.broker.flushing import Flusher
from barnabas.broker.folders import Folders, open_folders
from barnabas.broker.groups.coordinator import GroupCoordinator
from barnabas.broker.image_follower import ImageFollower
from barnabas.broker.lifecycle import BrokerIdentity, BrokerLifecycle
from barnabas.broker.maintenance import Maintenance
from barnabas.broker.metadata_loader import MetadataLoader
from barnabas.broker.transactions.coordinator import TransactionCoordinator
from barnabas.config.topic import resolve_topic_config
from barnabas.config.values import ConfigError
from barnabas.metadata.image import Endpoint, MetadataImage
from barnabas.ports import SystemClock, SystemDisk, SystemRandom
from barnabas.replication.log_store import LogStore
from barnabas.replication.purgatory import Purgatory
from barnabas.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from barnabas.broker.parts import FilePart
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.listeners import Listener
    from barnabas.config.topic import TopicConfig
    from barnabas.log.checkpoints import TopicPartition
    from barnabas.metadata.image import MetadataDelta
    from barnabas.ports import Disk

logger = logging.getLogger("barnabas.node")

ECHO_SECONDS = 0.25
PLAINTEXT_PROTOCOL = 0


class Broker:
    """One running node. Attributes without an underscore are for handlers and chores."""

    def __init__(self, config: BrokerConfig, folders: Folders, doors: Doors) -> None:
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = folders.cluster_id
        self.loop = asyncio.get_running_loop()
        self.clock = SystemClock()
        self.disk = SystemDisk()
        self.random = SystemRandom()
        self.purgatory = Purgatory(self.loop)
        self.fetch_bytes_max = config.fetch_max_bytes
        self._static_config = config
        self._folders = folders
        self._doors = doors
        self._threads = ThreadPoolExecutor(config.background_threads, thread_name_prefix="io")
        self.flusher = Flusher(self.disk, self.run_in_thread)
        self.store = LogStore(folders.dirs, self.run_in_thread, self.flusher.flush_soon)
        self.replicas = ReplicaManager(self.node_id, self.store, self.purgatory, self.clock, self.run_in_thread)
        self.metadata = MetadataLoader(self.cluster_id)
        self.controller = ControllerNode(
            self._controller_options(),
            Environment(
                self.metadata,
                BrokerConfigRules(config),
                self.disk,
                self.clock,
                self.random,
                self._fail_from_thread,
            ),
        )
        self.channel = LocalControllerChannel(self.controller, self.metadata)
        self._follower = ImageFollower(MetadataImage(self.cluster_id), self._apply_image)
        self._following: asyncio.Task[None] | None = None
        self.api = ApiState(self)
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self._maintenance = Maintenance(self)
        self._lifecycle: BrokerLifecycle | None = None
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def image(self) -> MetadataImage:
        """The newest metadata whose consequences are all in place here."""
        return self._follower.image

    async def settled(self) -> None:
        """Returns when all metadata that was committed until now is in effect here."""
        await self._follower.settled()

    def run_in_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return self.loop.run_in_executor(self._threads, function, *arguments)

    def warm(self, parts: Sequence[FilePart], done: Callable[[BaseException | None], None]) -> None:
        """Brings file ranges into the page cache in a thread, so that sending them does not wait for the device."""
        for part in parts:
            self.disk.read_in_order(part.file.fd)
        warming = self.run_in_thread(load, self.disk, parts)
        warming.add_done_callback(lambda future: done(future.exception()))

    # ── start ────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Returns when clients are served. A folder that must not be served is refused before it is written to."""
        self.controller.open()
        self.metadata.attach(self.loop)
        self.metadata.add_listener(self._follower.image_published)
        initial = self.metadata.image
        self._take_dynamic_config(initial)
        self._follower.image_published(initial, initial.diff(self._follower.image))
        opening = self.run_in_thread(self._open_logs, initial)
        try:
            await self.controller.start(self._endpoints(self._doors.advertised_controller))
        finally:
            previous_epoch = await opening
        self._following = asyncio.ensure_future(self._follower.run())
        self._following.add_done_callback(self._task_ended)
        self._lifecycle = BrokerLifecycle(
            self._identity(previous_epoch),
            self.channel,
            self.metadata,
            heartbeat_interval_ms=self.config.broker_heartbeat_interval_ms,
            on_failure=self._fail,
        )
        await self._lifecycle.start()
        await self.settled()
        self.store.set_unclaimed_aside()
        self._maintenance.start()
        self._doors.open(self)
        gc.collect()
        gc.freeze()

    def _open_logs(self, image: MetadataImage) -> int:
        def config_of(partition: TopicPartition) -> TopicConfig:
            return resolve_topic_config(image.configs.of_topic(partition.topic), self.config)

        return self.store.open(
            config_of,
            threads_per_dir=self.config.num_recovery_threads_per_data_dir,
            producer_expiration_ms=self.config.producer_id_expiration_ms,
            on_progress=log_progress,
        )

    def _controller_options(self) -> ControllerOptions:
        return ControllerOptions(
            self._folders.metadata_folder,
            self._folders.metadata_directory_id,
            controller_settings(self.config, cluster_id=self.cluster_id, sole_broker_id=self.node_id),
            metadata_limits(self.config),
        )

    def _identity(self, previous_epoch: int) -> BrokerIdentity:
        return BrokerIdentity(
            self.node_id,
            self.cluster_id,
            self.random.uuid(),
            self._endpoints(self._doors.advertised),
            tuple(open_dir.directory_id for open_dir in self._folders.dirs),
            self.config.broker_rack,
            previous_epoch,
        )

    def _endpoints(self, listeners: Iterable[Listener]) -> tuple[Endpoint, ...]:
        return tuple(Endpoint(each.name, each.host, each.port, PLAINTEXT_PROTOCOL) for each in listeners)

    # ── following the metadata ───────────────────────────────────────────────────────────────────────────────

    async def _apply_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._take_dynamic_config(image)
        self.groups.reconfigure(self.config)
        await self.replicas.apply(image, delta, self.config)
        if delta.deleted_topics:
            self.groups.topics_deleted(delta.deleted_topics)

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
        self._doors.configure(config)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail_from_thread(self, error: Exception) -> None:
        self.loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        """Something without which the node cannot be trusted has failed."""
        logger.critical("the node stops: %s", error, exc_info=error)
        self._failure = error
        self._stopping.set()

    # ── serve, and shut down ─────────────────────────────────────────────────────────────────────────────────

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return self._doors.advertised

    def request_stop(self) -> None:
        self._stopping.set()

    async def stop_requested(self) -> None:
        """Returns when the node shall stop; raises what made it fail."""
        await self._stopping.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """A clean end: leadership is given up, clients are let go, everything is written and synced. A step that
        fails is logged and does not keep the others from being taken."""
        epoch = self._lifecycle.epoch if self._lifecycle is not None else -1
        self._doors.stop_accepting()
        await self._take_step(self._maintenance.stop())
        if self._lifecycle is not None:
            await self._take_step(self._lifecycle.stop())
        self.transactions.close()
        self.groups.close()
        self.purgatory.complete_all()
        self.purgatory.close()
        await self._take_step(self._doors.close())
        await self._take_step(self.api.close())
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._take_step(self.flusher.close())
        offsets = {hosted.log: hosted.state.high_watermark.offset for hosted in self.replicas}
        await self._take_step(self.run_in_thread(self.store.close, offsets, epoch))
        await self._take_step(self.controller.stop())
        self.metadata.detach()
        self._threads.shutdown()
        if self._failure is None:
            logger.info("stopped cleanly")

    async def _take_step(self, step: Awaitable[None]) -> None:
        try:
            await step
        except Exception as error:
            logger.exception("a step of stopping failed")
            self._failure = self._failure or error


def load(disk: Disk, parts: Sequence[FilePart]) -> None:
    for part in parts:
        disk.load(part.file.fd, part.position, part.length)


def log_progress(opened: int, total: int) -> None:
    if opened == total or opened % 1000 == 0:
        logger.info("opened %d of %d logs", opened, total)


def run(config: BrokerConfig, *, on_ready: Callable[[Iterable[Listener]], None]) -> int:
    """Runs a node until it is told to stop. Returns the exit code; what cannot start raises."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, on_ready))


async def _run(config: BrokerConfig, on_ready: Callable[[Iterable[Listener]], None]) -> int:
    register_all()
    doors = Doors(config, asyncio.get_running_loop())
    doors.bind()
    try:
        folders = open_folders(
            config, doors.advertised_controller, disk=SystemDisk(), clock=SystemClock(), random=SystemRandom()
        )
    except BaseException:
        doors.stop_accepting()
        raise
    broker = Broker(config, folders, doors)
    signals = Signals(broker)
    try:
        return await _serve(broker, on_ready)
    finally:
        await broker.stop()
        folders.unlock()
        signals.close()


async def _serve(broker: Broker, on_ready: Callable[[Iterable[Listener]], None]) -> int:
    """Starts the node and waits until it shall stop, which may come before it has started."""
    starting = asyncio.ensure_future(broker.start())
    stop_requested = asyncio.ensure_future(broker.stop_requested())
    try:
        await asyncio.wait({starting, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            on_ready(broker.listeners)
        await stop_requested
    finally:
        for task in (starting, stop_requested):
            task.cancel()
        await asyncio.gather(starting, stop_requested, return_exceptions=True)
    return 0


class Signals:
    """The first SIGTERM or SIGINT asks for a clean stop, the second forces the end. Programs that watch over others
    may send the same signal to a process and again to its group: such an echo is no second wish."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._first: tuple[signal.Signals, float] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            broker.loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        now = self._broker.loop.time()
        if self._first is None:
            self._first = number, now
            logger.info("%s: stopping", number.name)
            self._broker.request_stop()
        elif self._first[0] is not number or now - self._first[1] > ECHO_SECONDS:
            logger.warning("%s again: stopping at once", number.name)
            os._exit(1)

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._broker.loop.remove_signal_handler(number)
