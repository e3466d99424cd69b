"""What of the metadata log is not committed yet, and the handing on of what is.

Batches go to a `RaftListener` in order and without gaps, a few at a time, with room for others in between where many
are committed together. The code that appended one waits for its future: it is done when the listener has the batch, or
fails when this node stops leading, for then this node does not know whether it will be committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.protocol.errors import Error, KafkaError
from barnabas.raft.folder.metadata_batches import DecodedBatch, decode_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.ports import ThreadPool
    from barnabas.raft.consensus.core import RaftCore
    from barnabas.raft.folder.snapshots import Snapshot

COMMIT_BYTES = 32 * 1024
"""How much of many batches that were committed together is handed on at a time: a few milliseconds' work."""


class RaftListener(Protocol):
    """Called on the driver's loop; must not block."""

    async def on_commit(self, batches: Sequence[DecodedBatch]) -> None:
        """These batches are committed. They come in order and without gaps, unless `on_snapshot` fills one."""
        ...

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """This node was so far behind that it was given a snapshot: it has everything that was committed before its
        end, and `on_commit` goes on from there."""
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


class _Pending(NamedTuple):
    """A batch in the log that is not known to be committed."""

    end_offset: int
    batch: bytes | DecodedBatch
    committed: asyncio.Future[int] | None

    @property
    def size_bytes(self) -> int:
        return self.batch.size_bytes if isinstance(self.batch, DecodedBatch) else len(self.batch)


class Commits:
    """Use it only on the driver's loop, which runs `run` as a task. `handed_on` is called after each step of it."""

    def __init__(
        self,
        core: RaftCore,
        listener: RaftListener,
        folder: str,
        threads: ThreadPool,
        uncommitted: Sequence[DecodedBatch],
        handed_on: Callable[[], None],
    ) -> None:
        self._core = core
        self._listener = listener
        self._folder = folder
        self._threads = threads
        self._handed_on = handed_on
        self._pending: deque[_Pending] = deque(_Pending(batch.last_offset + 1, batch, None) for batch in uncommitted)
        self._is_due = asyncio.Event()
        self.handing_on = asyncio.Lock()
        """Held while batches or a snapshot go to the listener."""
        self._announced_epoch: int | None = None
        """The epoch last passed to `on_leader`, while this node leads it."""

    @property
    def is_leader(self) -> bool:
        return self._announced_epoch is not None

    @property
    def has_handed_on(self) -> bool:
        """Whether the listener has everything that is known to be committed."""
        return not self._pending or self._pending[0].end_offset > self._core.high_watermark

    @property
    def awaited(self) -> list[asyncio.Future[int]]:
        """What those who appended wait for, in the order of the log."""
        return [pending.committed for pending in self._pending if pending.committed is not None]

    def add(self, end_offset: int, batch: bytes, committed: asyncio.Future[int] | None) -> None:
        """A batch was written, and ends before this offset."""
        self._pending.append(_Pending(end_offset, batch, committed))

    def truncate_to(self, offset: int) -> None:
        while self._pending and self._pending[-1].end_offset > offset:
            pending = self._pending.pop()
            assert pending.committed is None or pending.committed.done(), "only a leader's appends are waited for"

    def restart_at(self, snapshot: Snapshot) -> None:
        """A snapshot takes the place of everything that is not handed on yet. Hold `handing_on` for it."""
        self._pending.clear()
        self._listener.on_snapshot(snapshot)

    def advanced(self) -> None:
        """The high watermark has moved."""
        self._is_due.set()

    async def run(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            async with self.handing_on:
                await self._commit_some()
            if self._is_due.is_set():
                await asyncio.sleep(0)

    async def _commit_some(self) -> None:
        """Hands on what is committed, with room for others in between where that is much."""
        done = self._next_committed(self._core.high_watermark)
        if done:
            await self._listener.on_commit([await self._decode(pending.batch) for pending in done])
        for _ in done:
            self._pending.popleft()
        if self.has_handed_on and self._core.is_active and self._announced_epoch != self._core.epoch:
            self._announced_epoch = self._core.epoch
            self._listener.on_leader(self._core.epoch)
        for pending in done:
            if pending.committed is not None and not pending.committed.done():
                pending.committed.set_result(pending.end_offset - 1)
        if not self.has_handed_on:
            self._is_due.set()
        self._handed_on()

    def _next_committed(self, high_watermark: int) -> list[_Pending]:
        """The oldest of what waits. It waits until it is handed on: see `settled`."""
        oldest: list[_Pending] = []
        size = 0
        for pending in self._pending:
            if pending.end_offset > high_watermark or size >= COMMIT_BYTES:
                break
            oldest.append(pending)
            size += pending.size_bytes
        return oldest

    async def _decode(self, batch: bytes | DecodedBatch) -> DecodedBatch:
        """In a thread, if that takes long."""
        if isinstance(batch, DecodedBatch):
            return batch
        if len(batch) <= COMMIT_BYTES:
            return decode_batch(batch, self._folder)
        return await self._threads.run(decode_batch, batch, self._folder)

    async def settled(self) -> None:
        """Returns when everything appended so far is committed. Raises NOT_CONTROLLER if leadership is lost."""
        last = next((pending.committed for pending in reversed(self._pending) if pending.committed), None)
        if last is not None:
            await asyncio.wait([last])
            last.result()

    def step_down(self) -> None:
        """This node does not lead, or not any more."""
        self.fail_awaited()
        if self._announced_epoch is not None:
            self._announced_epoch = None
            self._listener.on_resign()

    def fail_awaited(self) -> None:
        """Tells waiting requests that the outcome is unknown: what was written may still be committed."""
        for committed in self.awaited:
            if not committed.done():
                committed.set_exception(
                    KafkaError(Error.NOT_CONTROLLER, "This node has given up its leadership of the metadata quorum.")
                )
