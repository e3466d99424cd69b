"""The metadata quorum as a node without a controller sees it: it follows the log, and never votes.

    observer = QuorumObserver(options, environment, thread)
    observer.open()                # reads the folder into the publisher; raises if it must not be used
    await observer.start()         # returns when it has caught up with the leader
    observer.current_leader        # who leads, for any event loop
    await observer.stop()

It runs on an event loop of its own, as a controller does, so that nothing that the broker does delays it. What is
committed goes into the image publisher; snapshots keep the log short here too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.raft.current_leader import CurrentLeader
from barnabas.raft.folder.metadata_log import MetadataLog, MetadataLogLimits, metadata_folder
from barnabas.raft.quorum_client import (
    OpenedQuorum,
    QuorumClient,
    QuorumEnvironment,
    QuorumIdentity,
    QuorumSettings,
    read_quorum,
)
from barnabas.raft.snapshotter import Snapshotter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.ports import Clock, Disk, LoopThread, Network, Random, Threads
    from barnabas.raft.folder.metadata_batches import DecodedBatch
    from barnabas.raft.folder.snapshots import Snapshot
    from barnabas.raft.image_publisher import ImagePublisher

logger = logging.getLogger("barnabas.raft")

_THREADS = 2
"""One for syncing the log, one for writing snapshots."""


class ObserverOptions(NamedTuple):
    data_folder: str
    identity: QuorumIdentity
    quorum: QuorumSettings
    limits: MetadataLogLimits = MetadataLogLimits()


class ObserverEnvironment(NamedTuple):
    publisher: ImagePublisher
    disk: Disk
    clock: Clock
    random: Random
    threads: Threads
    network: Network
    on_failure: Callable[[Exception], None]
    """Called in the quorum's thread when the metadata log can no longer be trusted. The node must stop."""


class QuorumObserver:
    """Call `open`, then `start`, then `stop`, which also ends the thread."""

    def __init__(self, options: ObserverOptions, environment: ObserverEnvironment, thread: LoopThread) -> None:
        self._options = options
        self._environment = environment
        self._folder = metadata_folder(options.data_folder)
        self._opened: OpenedQuorum | None = None
        self._thread: LoopThread | None = thread
        self._follower: _Follower | None = None
        self.current_leader = CurrentLeader()
        """Who leads the metadata quorum. May be followed from any event loop."""

    def open(self) -> None:
        """Reads the folder into the image publisher. Never writes to the folder. May block."""
        options = self._options
        opened = read_quorum(self._environment.disk, self._folder, options.identity.key, options.quorum)
        self._environment.publisher.restore(self._folder, opened.content.snapshot, opened.committed)
        self._opened = opened

    async def start(self) -> None:
        """Returns when everything that the leader says is committed has been replayed."""
        assert self._opened is not None, "open comes before start"
        assert self._thread is not None, "stopped"
        try:
            await asyncio.wrap_future(self._thread.submit(self._start(self._opened)))
        except (Exception, asyncio.CancelledError):
            await self.stop()
            raise
        self._opened = None

    async def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            if self._follower is not None:
                await asyncio.wrap_future(thread.submit(self._follower.close()))
        finally:
            await thread.stop()

    @property
    def quorum_client(self) -> QuorumClient | None:
        """This node's part in the quorum; None before it has started."""
        return None if self._follower is None else self._follower.client

    async def _start(self, opened: OpenedQuorum) -> None:
        # Repairing the log may block for a while, but nothing else runs on this thread yet.
        environment = self._environment
        log = MetadataLog.open(
            self._folder, opened.content, self._options.limits, disk=environment.disk, clock=environment.clock
        )
        self._follower = _Follower(self._options, environment, opened, log, self.current_leader)
        await self._follower.start()


class _Follower:
    """What runs on the quorum's loop."""

    def __init__(
        self,
        options: ObserverOptions,
        environment: ObserverEnvironment,
        opened: OpenedQuorum,
        log: MetadataLog,
        current_leader: CurrentLeader,
    ) -> None:
        self._publisher = environment.publisher
        self._on_failure = environment.on_failure
        self._log = log
        self._threads = environment.threads.pool("metadata disk", _THREADS)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.client = QuorumClient(
            opened,
            log,
            options.identity,
            options.quorum,
            self,
            QuorumEnvironment(environment.disk, environment.clock, environment.random, environment.network),
            self._threads,
            asyncio.get_running_loop(),
            current_leader,
        )
        self._snapshotter = Snapshotter(
            log,
            lambda: self._publisher.committed,
            self.client.voters_at,
            options.limits,
            opened.content,
            on_completed=self.client.driver.log_trimmed,
            disk=environment.disk,
            clock=environment.clock,
            threads=self._threads,
        )

    async def start(self) -> None:
        self.client.start()
        caught_up = asyncio.ensure_future(self.client.caught_up())
        try:
            await asyncio.wait({caught_up, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            await caught_up
        finally:
            caught_up.cancel()
            # It may have failed in the moment in which the start was given up, or failed otherwise: one is told.
            await asyncio.gather(caught_up, return_exceptions=True)

    async def close(self) -> None:
        await self.client.close()
        await self._snapshotter.close()
        try:
            await self._threads.run(self._log.close)
        finally:
            self._threads.shutdown()

    async def on_commit(self, batches: Sequence[DecodedBatch]) -> None:
        await self._publisher.follow(batches)
        self._snapshotter.committed(batches)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self._publisher.load(snapshot)

    def on_leader(self, epoch: int) -> None:
        raise AssertionError(f"an observer leads epoch {epoch}")

    def on_resign(self) -> None:
        """It never led."""

    def on_failure(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()
        self._on_failure(error)
