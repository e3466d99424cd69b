"""Runs a `RaftCore`: makes durable what it decides, and tells a listener what is committed.

Appends are written at once and synced in a thread. While one sync runs, further appends are written behind it and
share the next one, so that any number of requests in flight cost two syncs. An append that cannot be written (a full
disk) costs the leadership, and with it everything that was not yet committed; the node tries to lead again when its
election timeout has passed. A sync that fails is the end: nobody knows any longer what is on the device.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.protocol.errors import Error, KafkaError
from barnabas.raft.batches import DecodedBatch, control_batch, data_batch, decode_batch, leader_change_messages
from barnabas.raft.core import AppendFailed, Flushed, LeaderChange, Propose, RaftCore, Ready, Role
from barnabas.raft.quorum_state import write_quorum_state

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from concurrent.futures import Executor

    from barnabas.metadata.versions import VersionedRecord
    from barnabas.ports import Clock, Disk
    from barnabas.raft.batches import VoterNode
    from barnabas.raft.core import Entry
    from barnabas.raft.log import MetadataLog

logger = logging.getLogger("barnabas.raft")


class RaftListener(Protocol):
    """Called on the driver's loop; must not block."""

    def on_commit(self, batches: Sequence[DecodedBatch]) -> None:
        """Batches, in order and without gaps, that no failure of a minority can take back."""
        ...

    def on_leader(self, epoch: int) -> None:
        """This node leads, and everything before its epoch has come by `on_commit`."""
        ...

    def on_resign(self) -> None:
        """This node leads no more. What it appended and `on_commit` has not brought may never come."""
        ...

    def on_failure(self, error: Exception) -> None:
        """The log cannot be trusted any longer; the driver has stopped."""
        ...


class Appended(NamedTuple):
    base_offset: int
    committed: asyncio.Future[int]
    """Done, with the offset of the last record, when all of them are committed; fails when leadership is lost."""


class _Pending(NamedTuple):
    end_offset: int
    batch: bytes
    committed: asyncio.Future[int] | None


class RaftDriver:
    """To be used on one event loop. `executor` has a thread to spare for syncing."""

    def __init__(
        self,
        core: RaftCore,
        log: MetadataLog,
        voters: Sequence[VoterNode],
        listener: RaftListener,
        *,
        disk: Disk,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self._core = core
        self._log = log
        self._voters = voters
        self._listener = listener
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._pending: deque[_Pending] = deque()
        self._is_dirty = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._announced_epoch: int | None = None
        """The epoch that the listener was told this node leads."""

    @property
    def log(self) -> MetadataLog:
        return self._log

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

    @property
    def unsynced_batches(self) -> int:
        return len(self._pending)

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._guarded(self._run_elections), name="raft elections"),
            asyncio.create_task(self._guarded(self._run_syncs), name="raft syncs"),
        ]

    async def close(self) -> None:
        """Stops after what was appended has been synced."""
        waiting = [pending.committed for pending in self._pending if pending.committed is not None]
        if waiting:
            await asyncio.wait(waiting)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail_pending()

    def append(self, records: Sequence[VersionedRecord]) -> Appended:
        """Appends records as one batch. Raises NOT_CONTROLLER where this node does not lead or cannot write."""
        if not self.is_leader:
            raise KafkaError(Error.NOT_CONTROLLER, "This node does not lead the metadata quorum.")
        committed = asyncio.get_running_loop().create_future()
        ready = self._core.step(Propose(records, len(records)))
        (entry,) = ready.entries
        if not self._write(entry, committed):
            raise KafkaError(
                Error.NOT_CONTROLLER, "This node could not write the metadata log and has given up its leadership."
            )
        return Appended(entry.base_offset, committed)

    async def settled(self) -> None:
        """Returns when everything that was appended so far is committed. Raises NOT_CONTROLLER if it never may be."""
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
            logger.critical("the metadata log has failed and the controller stops: %s", error, exc_info=error)
            self._step_down()
            self._listener.on_failure(error)

    async def _run_elections(self) -> None:
        while True:
            await self._handle(self._core.tick(self._now_ms()))
            deadline_ms = self._core.deadline_ms
            assert deadline_ms is not None
            await asyncio.sleep(max(deadline_ms - self._now_ms(), 0) / 1000)

    async def _handle(self, ready: Ready) -> None:
        """Does what the core asks, in the order it asks for."""
        if ready.hard_state is not None:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(
                    self._executor, write_quorum_state, self._disk, self._log.folder, ready.hard_state
                )
            except OSError as error:
                logger.warning("cannot write the quorum state of %s: %s", self._log.folder, error)
                self._core.step(AppendFailed(self._log.end))
                return
        for entry in ready.entries:
            if not self._write(entry, None):
                return
        assert not ready.messages, "a quorum of one has nobody to write to"

    def _write(self, entry: Entry, committed: asyncio.Future[int] | None) -> bool:
        """Writes an entry; if that fails, this node leads no more."""
        try:
            batch = self._encode(entry)
            self._log.append(batch)
        except (KafkaError, OSError) as error:
            logger.warning("cannot append to %s, giving up the leadership: %s", self._log.folder, error)
            self._core.step(AppendFailed(self._log.end))
            self._step_down()
            return False
        self._pending.append(_Pending(entry.base_offset + entry.record_count, batch, committed))
        self._is_dirty.set()
        return True

    def _encode(self, entry: Entry) -> bytes:
        now_ms = self._clock.now_ms()
        if isinstance(entry.payload, LeaderChange):
            messages = leader_change_messages(entry.payload, self._voters)
            return control_batch(messages, base_offset=entry.base_offset, epoch=entry.epoch, timestamp_ms=now_ms)
        records: Sequence[VersionedRecord] = entry.payload  # type: ignore[assignment]
        return data_batch(records, base_offset=entry.base_offset, epoch=entry.epoch, timestamp_ms=now_ms)

    async def _run_syncs(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            flush = self._log.prepare_flush()
            await loop.run_in_executor(self._executor, flush.run, self._disk)
            self._log.flushed(flush)
            ready = self._core.step(Flushed(flush.end_offset))
            if ready.high_watermark is not None:
                self._commit(ready.high_watermark)

    def _commit(self, high_watermark: int) -> None:
        done = []
        while self._pending and self._pending[0].end_offset <= high_watermark:
            done.append(self._pending.popleft())
        self._listener.on_commit([decode_batch(pending.batch) for pending in done])
        if self._core.role is Role.LEADER and self._announced_epoch != self._core.epoch:
            self._announced_epoch = self._core.epoch
            self._listener.on_leader(self._core.epoch)
        for pending in done:
            if pending.committed is not None and not pending.committed.done():
                pending.committed.set_result(pending.end_offset - 1)

    def _step_down(self) -> None:
        self._fail_pending()
        if self._announced_epoch is not None:
            self._announced_epoch = None
            self._listener.on_resign()

    def _fail_pending(self) -> None:
        """Whoever waits learns that the outcome is unknown: what was written may yet be committed."""
        for pending in self._pending:
            if pending.committed is not None and not pending.committed.done():
                pending.committed.set_exception(
                    KafkaError(Error.NOT_CONTROLLER, "This node has given up its leadership of the metadata quorum.")
                )

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
