"""Runs a `RaftCore`: makes its decisions durable, and tells a listener what is committed.

Appends are written at once and synced in a thread. While one sync runs, further appends are written and share the
next one, so any number of requests in flight cost two syncs. If an append finds no space, the node gives up its
leadership and with it everything that was not yet committed; it tries to lead again after its election timeout. A
failed sync is fatal, and so is a device that takes no writes: it is no longer known what is on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.log.flush import is_failed_sync, is_failed_write
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error, KafkaError
from barnabas.raft.core import AppendFailed, Flushed, LeaderChange, Propose, RaftCore, Ready, Resign, Role
from barnabas.raft.metadata_batches import (
    DecodedBatch,
    control_batch,
    decode_batch,
    encode_data,
    leader_change_messages,
)
from barnabas.raft.quorum_state import write_quorum_state

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from barnabas.metadata.versions import VersionedRecord
    from barnabas.ports import Clock, Disk, ThreadPool
    from barnabas.protocol.record import Record
    from barnabas.raft.core import Entry, HardState
    from barnabas.raft.metadata_batches import VoterNode
    from barnabas.raft.metadata_log import MetadataLog

logger = logging.getLogger("barnabas.raft")

COMMIT_BYTES = 32 * 1024
"""How much of many batches that were committed together is handed on at a time: a few milliseconds' work."""

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""The most that Kafka's voters fetch at once."""


class RaftListener(Protocol):
    """Called on the driver's loop; must not block."""

    async def on_commit(self, batches: Sequence[DecodedBatch]) -> None:
        """These batches are committed. They come in order and without gaps."""
        ...

    def on_leader(self, epoch: int) -> None:
        """This node leads, and everything before its epoch has been passed to `on_commit`."""
        ...

    def on_resign(self) -> None:
        """This node no longer leads. What it appended and has not seen in `on_commit` may never be committed."""
        ...

    def on_failure(self, error: Exception) -> None:
        """The log can no longer be trusted; the driver has stopped."""
        ...


class Prepared(NamedTuple):
    """A batch with its position in the log, provided that it is appended next."""

    base_offset: int
    epoch: int
    record_count: int
    batch: bytes


class _Pending(NamedTuple):
    end_offset: int
    batch: bytes
    committed: asyncio.Future[int] | None


class RaftDriver:
    """Use it only on one event loop. `threads` must have a thread available for syncing."""

    def __init__(
        self,
        core: RaftCore,
        log: MetadataLog,
        voters: Sequence[VoterNode],
        listener: RaftListener,
        *,
        disk: Disk,
        clock: Clock,
        threads: ThreadPool,
        static_voters: Sequence[int] = (),
    ) -> None:
        """`static_voters` are the ids of the voters if these are not in the log."""
        self._core = core
        self._log = log
        self._voters = voters
        self._listener = listener
        self._disk = disk
        self._clock = clock
        self._threads = threads
        self._static_voters = static_voters
        self._pending: deque[_Pending] = deque()
        self._is_dirty = asyncio.Event()
        self._has_stepped_down = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._announced_epoch: int | None = None
        """The epoch last passed to `on_leader`, while this node leads it."""

    @property
    def is_leader(self) -> bool:
        return self._announced_epoch is not None

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def next_offset(self) -> int:
        """The offset that the next appended record gets."""
        return self._core.log_end_offset

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._guarded(self._run_elections), name="raft elections"),
            asyncio.create_task(self._guarded(self._run_syncs), name="raft syncs"),
        ]

    async def close(self) -> None:
        """Stops once everything that was appended has been synced."""
        waiting = [pending.committed for pending in self._pending if pending.committed is not None]
        if waiting:
            await asyncio.wait(waiting)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail_pending()

    def encode(self, records: Sequence[VersionedRecord]) -> list[Record]:
        return encode_data(records, self._clock.now_ms())

    def prepare(self, records: Sequence[VersionedRecord]) -> Prepared:
        """Builds a batch of records for the end of the log. Raises NOT_CONTROLLER if this node does not lead."""
        return self.prepare_encoded(self.encode(records))

    def prepare_encoded(self, records: Sequence[Record]) -> Prepared:
        if not self.is_leader:
            raise KafkaError(Error.NOT_CONTROLLER, "This node does not lead the metadata quorum.")
        base_offset, epoch = self._core.log_end_offset, self._core.epoch
        batch = build_batch(records, base_offset=base_offset, leader_epoch=epoch)
        if len(batch) > BATCH_BYTES_MAX:
            raise KafkaError(
                Error.RECORD_LIST_TOO_LARGE,
                f"The metadata records of this request take {len(batch)} bytes, but at most {BATCH_BYTES_MAX} can be "
                "written at once. Split the request.",
            )
        return Prepared(base_offset, epoch, len(records), batch)

    def append(self, prepared: Prepared) -> asyncio.Future[int]:
        """Appends the batch that was prepared last. The future gets the offset of its last record on commit.

        The future fails if leadership is lost before that. If the batch cannot be written, this node gives up its
        leadership, and NOT_CONTROLLER is raised.
        """
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        committed.add_done_callback(_note_exception)
        (entry,) = self._core.step(Propose(prepared.batch, prepared.record_count)).entries
        assert (entry.base_offset, entry.epoch) == (prepared.base_offset, prepared.epoch), "prepared for another place"
        if not self._write(entry, prepared.batch, committed):
            raise KafkaError(
                Error.NOT_CONTROLLER, "This node could not write the metadata log and has given up its leadership."
            )
        return committed

    def resign(self) -> None:
        """Gives up the leadership. What was appended may still be committed, in a later epoch."""
        self._core.step(Resign())
        self._step_down()

    async def settled(self) -> None:
        """Returns when everything appended so far is committed. Raises NOT_CONTROLLER if leadership is lost."""
        last = next((pending.committed for pending in reversed(self._pending) if pending.committed), None)
        if last is not None:
            await asyncio.wait([last])
            last.result()

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """The log can no longer be trusted."""
        if isinstance(error, OSError) and error.filename is None:
            error = OSError(error.errno, error.strerror, self._log.folder).with_traceback(error.__traceback__)
        logger.critical("the metadata log has failed, stopping the controller: %s", error, exc_info=error)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._step_down()
        self._listener.on_failure(error)

    async def _run_elections(self) -> None:
        while True:
            await self._handle(self._core.tick(self._now_ms()))
            await self._wait_for_deadline()

    async def _wait_for_deadline(self) -> None:
        """Waits until the next tick is due. Stepping down changes the deadline, so it is checked again."""
        while (remaining_ms := (self._core.deadline_ms or 0) - self._now_ms()) > 0:
            self._has_stepped_down.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(remaining_ms / 1000):
                    await self._has_stepped_down.wait()

    async def _handle(self, ready: Ready) -> None:
        """Does what the core asks for, in the required order."""
        if ready.hard_state is not None:
            try:
                await self._threads.run(self._write_quorum_state, ready.hard_state)
            except OSError as error:
                # The file is written anew, so that a sync of it that found no space may be tried again.
                if is_failed_write(error):
                    raise
                self._give_up(error)
                return
        for entry in ready.entries:
            assert isinstance(entry.payload, LeaderChange), "a tick appends nothing else"
            batch = control_batch(
                leader_change_messages(entry.payload, self._voters),
                base_offset=entry.base_offset,
                epoch=entry.epoch,
                timestamp_ms=self._clock.now_ms(),
            )
            if not self._write(entry, batch, None):
                return
        assert not ready.messages, "a quorum of one sends no messages"

    def _write_quorum_state(self, hard_state: HardState) -> None:
        write_quorum_state(self._disk, self._log.folder, hard_state, self._static_voters)

    def _write(self, entry: Entry, batch: bytes, committed: asyncio.Future[int] | None) -> bool:
        """Writes an entry. If that fails, this node gives up its leadership."""
        try:
            self._log.append(batch)
        except (KafkaError, OSError) as error:
            device_error = _device_error_in(error)
            if device_error is None:
                self._give_up(error)
            else:
                self._fail(device_error)
            return False
        self._pending.append(_Pending(entry.base_offset + entry.record_count, batch, committed))
        self._is_dirty.set()
        return True

    async def _run_syncs(self) -> None:
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            try:
                flush = self._log.prepare_flush()
                await self._threads.run(flush.run, self._disk)
            except (KafkaError, OSError) as error:
                device_error = error if is_failed_sync(error) else _device_error_in(error)
                if device_error is not None:
                    raise device_error from None
                self._give_up(error)
                continue
            self._log.flushed(flush)
            ready = self._core.step(Flushed(flush.end_offset))
            if ready.high_watermark is not None:
                await self._commit(ready.high_watermark)

    async def _commit(self, high_watermark: int) -> None:
        """Hands on what is committed, with room for others in between where that is much."""
        while done := self._next_committed(high_watermark):
            await self._listener.on_commit([await self._decode(pending.batch) for pending in done])
            for _ in done:
                self._pending.popleft()
            is_all = not self._pending or self._pending[0].end_offset > high_watermark
            if is_all and self._core.role is Role.LEADER and self._announced_epoch != self._core.epoch:
                self._announced_epoch = self._core.epoch
                self._listener.on_leader(self._core.epoch)
            for pending in done:
                if pending.committed is not None and not pending.committed.done():
                    pending.committed.set_result(pending.end_offset - 1)
            if not is_all:
                await asyncio.sleep(0)

    def _next_committed(self, high_watermark: int) -> list[_Pending]:
        """The oldest of what waits. It waits until it is handed on: see `settled`."""
        oldest: list[_Pending] = []
        size = 0
        for pending in self._pending:
            if pending.end_offset > high_watermark or size >= COMMIT_BYTES:
                break
            oldest.append(pending)
            size += len(pending.batch)
        return oldest

    async def _decode(self, batch: bytes) -> DecodedBatch:
        """In a thread, if that takes long."""
        if len(batch) <= COMMIT_BYTES:
            return decode_batch(batch, self._log.folder)
        return await self._threads.run(decode_batch, batch, self._log.folder)

    def _give_up(self, error: Exception) -> None:
        """A write failed, but what was written before is intact: the next election tries again."""
        logger.warning("cannot write to %s, giving up leadership: %s", self._log.folder, error)
        self._core.step(AppendFailed(self._log.end))
        self._step_down()

    def _step_down(self) -> None:
        self._fail_pending()
        self._has_stepped_down.set()
        if self._announced_epoch is not None:
            self._announced_epoch = None
            self._listener.on_resign()

    def _fail_pending(self) -> None:
        """Tells waiting requests that the outcome is unknown: what was written may still be committed."""
        for pending in self._pending:
            if pending.committed is not None and not pending.committed.done():
                pending.committed.set_exception(
                    KafkaError(Error.NOT_CONTROLLER, "This node has given up its leadership of the metadata quorum.")
                )

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _device_error_in(error: KafkaError | OSError) -> OSError | None:
    """What the log says of its device, in its own words or in those of the disk."""
    for each in (error, error.__cause__):
        if isinstance(each, OSError) and is_failed_write(each):
            return each
    return None


def _note_exception(committed: asyncio.Future[int]) -> None:
    """Marks the exception as retrieved: it is not an error if nothing waits for the commit any longer."""
    if not committed.cancelled():
        committed.exception()
