"""Replicas that move from one data folder of this node to another, while they are written and read.

A move makes a *future log* in the other folder, which copies the log as a follower copies its leader: whole ranges of
batches, as they are. When it has everything, it is synced, and the controller is told that the replica is in the other
folder (`broker/directories`). When the metadata says so, and the future log has everything again, it takes the place of
the log in one turn of the event loop: its folder gets the log's name, and the log's folder is renamed for deletion. So
the controller never believes that a replica is in a folder from which it could not be served, except for a moment, and
a kill at any point leaves one of the two from which the next start goes on (`LogStore.claim`).

What is cut off the log meanwhile is cut off its copy, by the same rules as a follower's. A few moves copy at a time,
in the order of their names (`num.replica.alter.log.dirs.threads`), at
`replica.alter.log.dirs.io.max.bytes.per.second`. What fails is tried again.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.log.batch_validation import UnexpectedOffsetError
from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.follower import UNKNOWN_OFFSET, EpochEnd, truncation_offset
from barnabas.replication.throttle import DEFAULT_QUOTA_WINDOWS, QuotaWindows, ReplicationThrottle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from barnabas.log.folder.data_dir import DataDir
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.segments.open_files import FileRange
    from barnabas.ports import Clock
    from barnabas.protocol.uuids import Uuid
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.log_store import LogStore, OpenDir

logger = logging.getLogger("barnabas.logs")

SLICE_BYTES = 1024 * 1024
"""As much is copied in one turn of the event loop."""
PAUSE_S = 0.1
"""While a move is throttled, or waits for a cut of its log to be settled."""
RETRY_S = 1.0


class MovesEnvironment(NamedTuple):
    clock: Clock
    run_in_thread: Callable[..., Awaitable[Any]]
    """For what writes."""
    load: Callable[[FileRange], Awaitable[None]]
    """Brings a range of a file into the page cache, in a thread."""
    flush: Callable[[PartitionLog], Awaitable[None]]
    """Syncs a log, in a thread."""
    replaced: Callable[[PartitionLog, PartitionLog], None]
    """Called when the second log takes the place of the first."""


class Move:
    """One replica on its way. `log` is None while the future log is being made."""

    __slots__ = (
        "cuts",
        "data_dir",
        "directory",
        "has_failed",
        "hosted",
        "is_accepted",
        "is_announced",
        "loaded",
        "log",
    )

    def __init__(self, hosted: HostedPartition, target: OpenDir) -> None:
        self.hosted = hosted
        self.directory: Uuid = target.directory_id
        self.data_dir: DataDir = target.data_dir
        self.log: PartitionLog | None = None
        self.cuts = -1
        """How often something had been cut off the log when the two were last compared."""
        self.loaded = UNKNOWN_OFFSET
        """The offset whose batches were brought into the page cache last."""
        self.is_announced = False
        """Whether the controller is to believe that the replica is where it goes."""
        self.is_accepted = False
        """Whether it does."""
        self.has_failed = False

    @property
    def may_go_on(self) -> bool:
        return self.log is not None and (self.is_accepted or not self.is_announced)

    def __lt__(self, other: Move) -> bool:
        return (self.hosted.topic, self.hosted.index) < (other.hosted.topic, other.hosted.index)


class ReplicaMoves:
    """To be used on the broker's event loop."""

    def __init__(
        self, store: LogStore, environment: MovesEnvironment, windows: QuotaWindows = DEFAULT_QUOTA_WINDOWS
    ) -> None:
        self.throttle = ReplicationThrottle(windows)
        self.copies_at_once = 1
        self.is_announcing = True
        """Whether the metadata says in which folder a replica is."""
        self.on_place_changed: Callable[[HostedPartition], None] | None = None
        """Called when the controller has to be told of another place than before."""
        self._store = store
        self._environment = environment
        self._moves: dict[HostedPartition, Move] = {}
        self._due: list[Move] = []
        """A heap of moves that wait for their turn; those that are over meanwhile are passed over."""
        self._copying: dict[Move, asyncio.Task[None]] = {}
        self._is_closed = False

    def future_of(self, hosted: HostedPartition) -> PartitionLog | None:
        """The copy of the partition's log in the folder to which it moves, if it does."""
        move = self._moves.get(hosted)
        return None if move is None else move.log

    def futures(self) -> Iterator[tuple[HostedPartition, PartitionLog]]:
        return ((hosted, move.log) for hosted, move in self._moves.items() if move.log is not None)

    def place_of(self, hosted: HostedPartition) -> Uuid:
        """The id of the data folder that the controller is to believe a replica in."""
        move = self._moves.get(hosted)
        if move is not None and move.is_announced:
            return move.directory
        return self._store.directory_of(hosted.log)

    # ── the beginning ────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, hosted: HostedPartition, target: OpenDir) -> None:
        """Begins to move a replica, unless it is there, or on its way there. A move to another folder is called off.
        Raises KafkaError if the move cannot begin."""
        before = self._moves.get(hosted)
        if before is not None and before.data_dir is target.data_dir:
            return
        self.call_off(hosted)
        if self._store.folder_of(hosted.log) is target.data_dir:
            return
        name = TopicPartition(hosted.topic, hosted.index)
        if self._store.offline_paths:
            raise KafkaError(
                Error.KAFKA_STORAGE_ERROR,
                f"Can not create log for {name} because log directories {self._store.offline_paths} are offline",
            )
        move = self._moves[hosted] = Move(hosted, target)
        try:
            await self._store.forget_predecessors([(name, target.data_dir)])
            log = await self._environment.run_in_thread(
                self._store.create_future,
                target.data_dir,
                hosted.topic,
                hosted.topic_id,
                hosted.index,
                hosted.log.config,
            )
        except (OSError, KafkaError) as error:
            if self._is_under_way(move):
                del self._moves[hosted]
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"cannot make a copy of {name}: {error}") from error
        self._store.adopt(log, target.data_dir)
        if not self._is_under_way(move):
            self._store.discard(log, self._environment.clock.now_ms())
            return
        move.log = log
        logger.info("moving %s to %s", hosted, target.data_dir.path)
        self._queue(move)

    def resume(self, hosted: HostedPartition, log: PartitionLog, target: OpenDir) -> None:
        """Goes on with a copy that was found at start."""
        move = self._moves[hosted] = Move(hosted, target)
        move.log = log
        logger.info("resuming the move of %s to %s, from offset %d", hosted, target.data_dir.path, log.log_end_offset)
        self._queue(move)

    def metadata_says(self, hosted: HostedPartition, directory: Uuid | None) -> None:
        """In which data folder the replica is, according to the metadata."""
        move = self._moves.get(hosted)
        if move is None or move.is_accepted == (directory == move.directory):
            return
        move.is_accepted = directory == move.directory
        if move.is_accepted:
            move.is_announced = True
            self._queue(move)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    def call_off(self, hosted: HostedPartition) -> None:
        """The replica stays where it is, or is gone altogether."""
        move = self._moves.pop(hosted, None)
        if move is None:
            return
        if move.log is not None:
            self._store.discard(move.log, self._environment.clock.now_ms())
        logger.info("move of %s to %s cancelled", hosted, move.data_dir.path)
        if move.is_announced:
            self._place_changed(hosted)

    def folder_failed(self, data_dir: DataDir) -> None:
        """A data folder has failed, and the store has let go of its logs. Copies in it are lost. Those of logs in it
        stay, without a move, for the next start: they may lack what was written last."""
        for hosted, move in list(self._moves.items()):
            if move.data_dir is data_dir or self._store.folder_of(hosted.log) is None:
                del self._moves[hosted]
                if move.is_announced and move.data_dir is data_dir:
                    self._place_changed(hosted)

    def was_announced(self, hosted: HostedPartition) -> bool:
        """Whether the controller may believe a replica where it has not arrived."""
        move = self._moves.get(hosted)
        return move is not None and move.is_announced

    async def close(self) -> None:
        self._is_closed = True
        copying = list(self._copying.values())
        for task in copying:
            task.cancel()
        await asyncio.gather(*copying, return_exceptions=True)

    # ── copying ──────────────────────────────────────────────────────────────────────────────────────────────

    def _is_under_way(self, move: Move) -> bool:
        return self._moves.get(move.hosted) is move and not move.hosted.is_removed

    def _place_changed(self, hosted: HostedPartition) -> None:
        if self.on_place_changed is not None and not hosted.is_removed:
            self.on_place_changed(hosted)

    def _queue(self, move: Move) -> None:
        if move not in self._copying:
            heapq.heappush(self._due, move)
            self._start_next()

    def _start_next(self) -> None:
        while self._due and len(self._copying) < self.copies_at_once and not self._is_closed:
            move = heapq.heappop(self._due)
            if self._is_under_way(move) and move.may_go_on and move not in self._copying:
                task = self._copying[move] = asyncio.ensure_future(self._copy(move))
                task.add_done_callback(partial(self._copied, move))

    def _copied(self, move: Move, task: asyncio.Task[None]) -> None:
        del self._copying[move]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("%s cannot be moved", move.hosted, exc_info=error)
        elif self._is_under_way(move) and move.may_go_on:
            # The metadata has changed while the copy made its last step.
            heapq.heappush(self._due, move)
        self._start_next()

    async def _copy(self, move: Move) -> None:
        """Copies until there is nothing to be done before somebody else does something."""
        while self._is_under_way(move) and move.may_go_on:
            try:
                pause_s = await self._take_step(move)
            except (KafkaError, OSError, UnexpectedOffsetError) as error:
                pause_s = RETRY_S
                if not move.has_failed:
                    logger.error("%s cannot be moved to %s, will retry: %s", move.hosted, move.data_dir.path, error)
                move.has_failed = True
            else:
                move.has_failed = False
            # 0 gives others their turn.
            await asyncio.sleep(pause_s)

    async def _take_step(self, move: Move) -> float:
        """Returns how long to wait before the next one."""
        hosted, future = move.hosted, move.log
        assert future is not None, "it has been made"
        log = hosted.log
        future.config = log.config
        if move.cuts != hosted.cuts:
            cuts = hosted.cuts
            if cut_back(future, log):
                await self._settle(future)
            move.cuts = cuts
            return 0
        if self.throttle.is_exceeded(self._environment.clock.monotonic()):
            return PAUSE_S
        is_behind = future.log_end_offset < log.log_start_offset
        offset = max(future.log_end_offset, log.log_start_offset)
        found = log.read(offset, SLICE_BYTES, log.end_position, whole_first_batch=True)
        if found is None:
            if not is_behind:
                return await self._complete(move, future)
            await self._start_over(future, log.log_start_offset)
            return 0
        if move.loaded != offset and log.is_cold(found):
            await self._environment.load(found)
            move.loaded = offset
            return 0
        batches = memoryview(found.file.read(found.position, found.length))
        first_offset = int.from_bytes(batches[:8], "big", signed=True)
        if first_offset < future.log_end_offset or (is_behind and first_offset > future.log_end_offset):
            # A log may start within a batch, which its copy holds whole.
            await self._start_over(future, first_offset)
            return 0
        future.append_at(batches)
        future.advance_log_start(min(log.log_start_offset, future.log_end_offset))
        self.throttle.record(len(batches), self._environment.clock.monotonic())
        if future.log_end_offset == log.log_end_offset:
            # Now, and not in the next turn: others may write in every one.
            return await self._complete(move, future)
        return 0

    async def _start_over(self, future: PartitionLog, offset: int) -> None:
        future.truncate_fully(offset)
        await self._settle(future)

    async def _settle(self, future: PartitionLog) -> None:
        """Brings what was cut off a copy to the device and to the checkpoint, before anything is written in its
        place."""
        for error in (await self._store.reload_producers([future])).values():
            raise error
        await self._environment.flush(future)
        for refused in (await self._store.lower_recovery_points([future])).values():
            raise refused

    async def _complete(self, move: Move, future: PartitionLog) -> float:
        """The copy has everything at the moment."""
        hosted = move.hosted
        if not move.is_announced:
            # What has been on the device for long must be there in the copy as well, before it is all that there is.
            await self._environment.flush(future)
            if self._is_under_way(move):
                move.is_announced = True
                move.is_accepted = not self.is_announcing
                self._place_changed(hosted)
            return 0
        if hosted.has_unsettled_cut:
            return PAUSE_S
        log = hosted.log
        self._store.replace(log, future, self._environment.clock.now_ms())
        hosted.replace_log(future)
        self._environment.replaced(log, future)
        del self._moves[hosted]
        logger.info("%s has moved to %s", hosted, move.data_dir.path)
        self._place_changed(hosted)
        return 0


def cut_back(future: PartitionLog, log: PartitionLog) -> bool:
    """Cuts off a copy what the log does not have. True if there was anything."""
    has_cut = False
    while future.log_end_offset > future.log_start_offset:
        latest = future.latest_epoch
        known = EpochEnd(*log.end_offset_for_epoch(latest))
        if known.epoch == latest and future.log_end_offset <= known.end_offset:
            break
        end = future.log_end_offset
        if known.end_offset != UNKNOWN_OFFSET:
            offset = truncation_offset(known, EpochEnd(*future.end_offset_for_epoch(known.epoch)), end)
        else:
            offset = future.end_offset_for_epoch(latest - 1)[1]
        if 0 <= offset < end:
            future.truncate_to(offset)
        else:
            future.truncate_fully(log.log_start_offset)
        has_cut = True
    if future.log_end_offset > log.log_end_offset:
        future.truncate_to(log.log_end_offset)
        has_cut = True
    return has_cut
