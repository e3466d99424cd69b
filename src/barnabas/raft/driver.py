"""Runs a `RaftCore`: makes durable what it decides, and tells a listener what is committed.

Appends are written at once and synced in a thread. While one sync runs, further appends are written behind it and
share the next one, so that any number of requests in flight cost two syncs. An append that cannot be written (a full
disk) costs the leadership, and with it everything that was not yet committed; the node tries to lead again when its
election timeout has passed. A sync that fails is the end: nobody knows any longer what is on the device.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.protocol.errors import Error, KafkaError
from barnabas.raft.batches import DecodedBatch, control_batch, data_batch, decode_batch, leader_change_messages
from barnabas.raft.core import AppendFailed, Flushed, LeaderChange, Propose, RaftCore, Ready, Resign, Role
from barnabas.raft.quorum_state import write_quorum_state

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from concurrent.futures import Executor

    from barnabas.metadata.versions import VersionedRecord
    from barnabas.ports import Clock, Disk
    from barnabas.raft.batches import VoterNode
    from barnabas.raft.core import Entry, HardState
    from barnabas.raft.log import MetadataLog

logger = logging.getLogger("barnabas.raft")

_HARMLESS_SYNC_ERRORS = (errno.EMFILE, errno.ENFILE)
"""A file could not even be opened: nothing on the device is in doubt."""

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""What Kafka's voters fetch at once."""


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


class Prepared(NamedTuple):
    """A batch with the place in the log that it gets if it is the next to be appended."""

    base_offset: int
    epoch: int
    record_count: int
    batch: bytes


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
        static_voters: Sequence[int] = (),
    ) -> None:
        """`static_voters` are the ids of the voters where the log does not name them."""
        self._core = core
        self._log = log
        self._voters = voters
        self._listener = listener
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._static_voters = static_voters
        self._pending: deque[_Pending] = deque()
        self._is_dirty = asyncio.Event()
        self._has_stepped_down = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._announced_epoch: int | None = None
        """The epoch that the listener was told this node leads."""

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
        """Stops after what was appended has been synced."""
        waiting = [pending.committed for pending in self._pending if pending.committed is not None]
        if waiting:
            await asyncio.wait(waiting)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail_pending()

    def prepare(self, records: Sequence[VersionedRecord]) -> Prepared:
        """Makes a batch of records for the end of the log. Raises NOT_CONTROLLER where this node does not lead."""
        if not self.is_leader:
            raise KafkaError(Error.NOT_CONTROLLER, "This node does not lead the metadata quorum.")
        base_offset, epoch = self._core.log_end_offset, self._core.epoch
        batch = data_batch(records, base_offset=base_offset, epoch=epoch, timestamp_ms=self._clock.now_ms())
        if len(batch) > BATCH_BYTES_MAX:
            raise KafkaError(
                Error.RECORD_LIST_TOO_LARGE,
                f"The metadata records of this request take {len(batch)} bytes, and at most {BATCH_BYTES_MAX} are "
                "written at once: divide the request.",
            )
        return Prepared(base_offset, epoch, len(records), batch)

    def append(self, prepared: Prepared) -> asyncio.Future[int]:
        """Appends what was prepared last. The future is done, with the last record's offset, when it is committed.

        It fails when leadership is lost before. Raises NOT_CONTROLLER, and gives the leadership up, where the batch
        cannot be written.
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
        """Gives the leadership up. What was appended may yet be committed, in a later epoch."""
        self._core.step(Resign())
        self._step_down()

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
            await self._wait_for_deadline()

    async def _wait_for_deadline(self) -> None:
        """Until the next tick is due. Stepping down moves that, so it is looked at again."""
        while (remaining_ms := (self._core.deadline_ms or 0) - self._now_ms()) > 0:
            self._has_stepped_down.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(remaining_ms / 1000):
                    await self._has_stepped_down.wait()

    async def _handle(self, ready: Ready) -> None:
        """Does what the core asks, in the order it asks for."""
        if ready.hard_state is not None:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._executor, self._write_quorum_state, ready.hard_state)
            except OSError as error:
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
        assert not ready.messages, "a quorum of one has nobody to write to"

    def _write_quorum_state(self, hard_state: HardState) -> None:
        write_quorum_state(self._disk, self._log.folder, hard_state, self._static_voters)

    def _write(self, entry: Entry, batch: bytes, committed: asyncio.Future[int] | None) -> bool:
        """Writes an entry; if that fails, this node leads no more."""
        try:
            self._log.append(batch)
        except (KafkaError, OSError) as error:
            self._give_up(error)
            return False
        self._pending.append(_Pending(entry.base_offset + entry.record_count, batch, committed))
        self._is_dirty.set()
        return True

    async def _run_syncs(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            try:
                flush = self._log.prepare_flush()
                await loop.run_in_executor(self._executor, flush.run, self._disk)
            except (KafkaError, OSError) as error:
                if isinstance(error, OSError) and error.errno not in _HARMLESS_SYNC_ERRORS:
                    raise
                self._give_up(error)
                continue
            self._log.flushed(flush)
            ready = self._core.step(Flushed(flush.end_offset))
            if ready.high_watermark is not None:
                self._commit(ready.high_watermark)

    def _commit(self, high_watermark: int) -> None:
        done = []
        while self._pending and self._pending[0].end_offset <= high_watermark:
            done.append(self._pending.popleft())
        self._listener.on_commit([decode_batch(pending.batch, self._log.folder) for pending in done])
        if self._core.role is Role.LEADER and self._announced_epoch != self._core.epoch:
            self._announced_epoch = self._core.epoch
            self._listener.on_leader(self._core.epoch)
        for pending in done:
            if pending.committed is not None and not pending.committed.done():
                pending.committed.set_result(pending.end_offset - 1)

    def _give_up(self, error: Exception) -> None:
        """Something could not be written, and nothing that was is in doubt: the next election tries again."""
        logger.warning("cannot write to %s, so this node does not lead: %s", self._log.folder, error)
        self._core.step(AppendFailed(self._log.end))
        self._step_down()

    def _step_down(self) -> None:
        self._fail_pending()
        self._has_stepped_down.set()
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


def _note_exception(committed: asyncio.Future[int]) -> None:
    """Who no longer waits for a commit need not hear that it failed."""
    if not committed.cancelled():
        committed.exception()
