"""Runs a `RaftCore`: makes its decisions durable, sends its messages, and tells a listener what is committed.

Appends are written at once and synced in a thread. While one sync runs, further appends are written and share the
next one, so any number of requests in flight cost two syncs. What is written may be read by others (`log_readers`)
before it is synced; what is committed goes to the listener (`commits`).

If an append finds no space, the node gives up its leadership and with it everything that was not yet committed; it
tries to lead again after its election timeout. A failed sync is fatal, and so is a device that takes no writes: it is
no longer known what is on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.log.flush import is_failed_sync, is_failed_write
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error, KafkaError
from barnabas.raft.commits import Commits
from barnabas.raft.consensus.messages import (
    NO_NODE,
    AppendFailed,
    FetchSnapshotResponse,
    Flushed,
    LogTrimmed,
    Propose,
    RequestFailed,
    Resign,
    Role,
    SnapshotLoaded,
    SnapshotUnusable,
)
from barnabas.raft.current_leader import CurrentLeader, QuorumLeader
from barnabas.raft.folder import snapshot_download
from barnabas.raft.folder.metadata_batches import encode_data, encode_entry
from barnabas.raft.folder.snapshots import CorruptCheckpointError
from barnabas.raft.hard_state_writer import HardStateWriter
from barnabas.raft.log_readers import LogReaders

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from barnabas.metadata.versions import VersionedRecord
    from barnabas.ports import Clock, Disk, ThreadPool
    from barnabas.protocol.record import Record
    from barnabas.raft.commits import RaftListener
    from barnabas.raft.consensus.core import RaftCore
    from barnabas.raft.consensus.messages import (
        Entry,
        FetchRequest,
        FetchResponse,
        Inbound,
        Outbound,
        Ready,
        Request,
        Response,
        SnapshotPart,
    )
    from barnabas.raft.consensus.voter_sets import VoterEndpoint
    from barnabas.raft.folder.metadata_batches import DecodedBatch
    from barnabas.raft.folder.metadata_log import MetadataLog
    from barnabas.raft.folder.snapshots import Snapshot

logger = logging.getLogger("barnabas.raft")

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""The most that Kafka's voters fetch at once."""

HAND_OVER_S = 5.0
"""How long a leader that stops waits for its last records to be committed."""

COMPLAINT_MS = 5_000
"""How often a disk that takes no writes for the time being is complained about."""

_MESSAGES = "raft messages"
_REQUEST = "raft request"


class RequestError(Exception):
    """A request to another node got no response."""

    def __init__(self, reason: str, *, is_unreachable: bool) -> None:
        super().__init__(reason)
        self.is_unreachable = is_unreachable


class NotDurableError(Exception):
    """What an answer would promise cannot be made durable for now."""


class Transport(Protocol):
    """The way to other nodes."""

    async def ask(self, outbound: Outbound) -> Response:
        """Raises RequestError if there is no response."""
        ...


class Prepared(NamedTuple):
    """A batch with its position in the log, provided that it is appended next."""

    base_offset: int
    epoch: int
    record_count: int
    batch: bytes


class RaftDriver:
    """Use it only on one event loop. `threads` must have a thread available for syncing."""

    def __init__(
        self,
        core: RaftCore,
        log: MetadataLog,
        listener: RaftListener,
        *,
        disk: Disk,
        clock: Clock,
        threads: ThreadPool,
        transport: Transport | None = None,
        uncommitted: Sequence[DecodedBatch] = (),
        static_voters: Sequence[int] = (),
        listener_name: str = "",
        current_leader: CurrentLeader | None = None,
        linger_ms: int = 0,
    ) -> None:
        """`uncommitted` are the batches in the log that the core does not know to be committed, and `static_voters`
        the ids of the voters if these are not in the log. A node that is alone needs no `transport`. A leader gathers
        appends for `linger_ms` before it syncs them."""
        self._core = core
        self._log = log
        self._listener = listener
        self._disk = disk
        self._clock = clock
        self._threads = threads
        self._transport = transport
        self._listener_name = listener_name
        self.current_leader = current_leader or CurrentLeader()
        self._states = HardStateWriter(disk, log.folder, threads, static_voters)
        self._commits = Commits(core, listener, log.folder, threads, uncommitted, self._wake_next_steps)
        self._readers = LogReaders(log, clock, threads, self.handle)
        self._linger_s = linger_ms / 1000
        self._is_dirty = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_steps: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_stopped = False
        self._next_complaint_ms = 0
        self._installing = asyncio.Lock()

    @property
    def core(self) -> RaftCore:
        """To look at; whoever steps it also has to do what it says."""
        return self._core

    @property
    def log(self) -> MetadataLog:
        """To look at, up to the core's high watermark for what is committed."""
        return self._log

    @property
    def is_leader(self) -> bool:
        return self._commits.is_leader

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def next_offset(self) -> int:
        """The offset that the next appended record gets."""
        return self._core.log_end_offset

    @property
    def has_handed_on(self) -> bool:
        """Whether the listener has everything that is known to be committed."""
        return self._commits.has_handed_on

    def start(self) -> None:
        self._spawn(self._run_syncs, "raft syncs")
        self._spawn(self._commits.run, "raft commits")
        if self._core.log.durable_end < self._core.log_end_offset:
            self._is_dirty.set()
        self._tick()

    async def close(self) -> None:
        """Stops once everything that was appended has been committed, or cannot be. A leader tells the others."""
        await self.hand_over()
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._states.close()
        self._readers.close()
        self._commits.fail_awaited()

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
        (entry,) = self._core.step(Propose(prepared.batch, prepared.record_count), self._now_ms()).entries
        assert (entry.base_offset, entry.epoch) == (prepared.base_offset, prepared.epoch), "prepared for another place"
        if not self._write([entry], committed):
            raise KafkaError(
                Error.NOT_CONTROLLER, "This node could not write the metadata log and has given up its leadership."
            )
        return committed

    def resign(self) -> None:
        """Gives up the leadership. What was appended may still be committed, in a later epoch."""
        self._step(Resign())

    async def settled(self) -> None:
        """Returns when everything appended so far is committed. Raises NOT_CONTROLLER if leadership is lost."""
        await self._commits.settled()

    async def next_step(self, seconds: float) -> None:
        """Returns when anything has happened, or after so many seconds."""
        step: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next_steps.append(step)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await step

    # Requests of other nodes

    async def handle(self, request: Request) -> Response:
        """The answer to a request, once what it promises is durable. NotDurableError if it cannot be for now."""
        ready = self._step(request)
        try:
            is_durable = await self._is_state_durable()
        except OSError as error:
            self._fail(error)
            is_durable = False
        if not is_durable:
            raise NotDurableError(f"{self._log.folder} cannot be written to")
        assert ready.reply is not None, f"{type(request).__name__} is not answered"
        return ready.reply

    async def fetch(self, request: FetchRequest, max_wait_ms: int, max_bytes: int) -> tuple[FetchResponse, bytes]:
        """What follows the log of a reader. Waits until there is something, or its high watermark is out of date."""
        return await self._readers.fetch(request, max_wait_ms, max_bytes)

    def log_trimmed(self) -> None:
        """There are other snapshots than before, and perhaps the log starts later."""
        snapshots = self._log.snapshots
        oldest, newest = (snapshots[0], snapshots[-1]) if snapshots else (None, None)
        self._step(LogTrimmed(self._log.start_offset, oldest, newest))

    # What the core says

    def _tick(self) -> None:
        self._timer = None
        self._act(self._core.tick(self._now_ms()))

    def _step(self, message: Inbound) -> Ready:
        try:
            ready = self._core.step(message, self._now_ms())
            self._act(ready)
        except Exception as error:
            self._fail(error)
            raise
        return ready

    def _act(self, ready: Ready) -> None:
        """Does what the core asks for, in the required order."""
        if ready.hard_state is not None:
            self._states.put(ready.hard_state)
        if ready.truncate_to is not None and not self._truncate_to(ready.truncate_to):
            return
        if ready.role is not None:
            self._role_changed(ready.role)
        if ready.entries and not self._write(ready.entries):
            return
        if ready.snapshot_part is not None:
            self._spawn(self._take_part, "raft snapshot", ready.snapshot_part)
        if ready.messages or ready.hard_state is not None:
            self._spawn(self._send_all, _MESSAGES, ready.messages)
        if ready.high_watermark is not None:
            self._readers.wake()
            self._commits.advanced()
        self._publish_leader()
        self._arm()
        self._wake_next_steps()

    def _wake_next_steps(self) -> None:
        waiting, self._next_steps = self._next_steps, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _role_changed(self, role: Role) -> None:
        if role is not Role.LEADER:
            self._commits.step_down()
            self._readers.wake()
        logger.log(
            logging.INFO if len(self._core.voters) > 1 else logging.DEBUG,
            "node %d is %s in epoch %d of the metadata quorum%s",
            self._core.local.id,
            role.value,
            self._core.epoch,
            f", which node {self._core.leader_id} leads" if role is Role.FOLLOWER else "",
        )

    def _publish_leader(self) -> None:
        core = self._core
        is_led = core.role in (Role.LEADER, Role.FOLLOWER)
        endpoint = self._endpoint_of(core.leader_endpoints) if is_led else None
        self.current_leader.publish(QuorumLeader(core.leader_id if is_led else NO_NODE, core.epoch, endpoint))

    def _endpoint_of(self, endpoints: Sequence[VoterEndpoint]) -> VoterEndpoint | None:
        named = (endpoint for endpoint in endpoints if endpoint.name == self._listener_name)
        return next(named, endpoints[0] if endpoints else None)

    def _arm(self) -> None:
        deadline_ms = self._core.deadline_ms
        if self._is_stopped or deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                # It looks again when it is over: a deadline that moves on with every message costs no timer.
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_s = max(deadline_ms - self._now_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._is_stopped:
            return
        try:
            if (self._core.deadline_ms or 0) <= self._now_ms():
                self._tick()
            else:
                self._arm()
        except Exception as error:
            self._fail(error)

    async def _send_all(self, messages: Sequence[Outbound]) -> None:
        if not await self._is_state_durable():
            for outbound in messages:
                self._step(RequestFailed(outbound.to, outbound.request, is_unreachable=False))
            return
        for outbound in messages:
            self._spawn(self._send, _REQUEST, outbound)

    async def _is_state_durable(self) -> bool:
        """Waits for that. If it cannot be, this node gives up its leadership."""
        try:
            await self._states.durable()
        except OSError as error:
            # The file is written anew, so that a sync of it that found no space may be tried again.
            if is_failed_write(error):
                raise
            self._give_up(error)
            return False
        return True

    async def _send(self, outbound: Outbound) -> None:
        assert self._transport is not None, "a node that is alone sends nothing"
        answer: Inbound
        try:
            answer = await self._transport.ask(outbound)
        except RequestError as error:
            answer = RequestFailed(outbound.to, outbound.request, error.is_unreachable)
        if isinstance(answer, FetchSnapshotResponse):
            # What came before has to be written first, so that it does not pile up.
            async with self._installing:
                pass
        self._step(answer)

    # Writing and syncing

    def _write(self, entries: Sequence[Entry], committed: asyncio.Future[int] | None = None) -> bool:
        """Writes entries. If that fails, this node gives up its leadership."""
        batches = [encode_entry(entry, self._clock.now_ms()) for entry in entries]
        try:
            self._log.append(batches[0] if len(batches) == 1 else b"".join(batches))
        except (KafkaError, OSError) as error:
            device_error = _device_error_in(error)
            if device_error is None:
                self._give_up(error)
            else:
                self._fail(device_error)
            return False
        for entry, batch in zip(entries, batches, strict=True):
            self._commits.add(entry.base_offset + entry.record_count, batch, committed)
        self._is_dirty.set()
        self._readers.wake()
        return True

    def _truncate_to(self, offset: int) -> bool:
        if offset < self._log.end.offset:
            logger.info("truncating the metadata log to offset %d, where the leader's differs", offset)
        self._commits.truncate_to(offset)
        try:
            self._log.truncate_to(offset)
        except (KafkaError, OSError) as error:
            # What the log ends with is no longer known.
            self._fail(error)
            return False
        return True

    async def _run_syncs(self) -> None:
        while True:
            await self._is_dirty.wait()
            if self._linger_s and self._core.role is Role.LEADER:
                await asyncio.sleep(self._linger_s)
            self._is_dirty.clear()
            if not await self._is_state_durable():
                await self._sync_later()
                continue
            try:
                flush = self._log.prepare_flush()
                await self._threads.run(flush.run, self._disk)
            except (KafkaError, OSError) as error:
                device_error = error if is_failed_sync(error) else _device_error_in(error)
                if device_error is not None:
                    raise device_error from None
                self._give_up(error)
                await self._sync_later()
                continue
            if self._log.flushed(flush):
                self._step(Flushed(flush.end_offset))
            else:
                self._is_dirty.set()

    async def _sync_later(self) -> None:
        await asyncio.sleep(self._core.timeouts.election_ms / 1000)
        self._is_dirty.set()

    # Snapshots of the leader

    async def _take_part(self, part: SnapshotPart) -> None:
        async with self._installing:
            try:
                await self._threads.run(snapshot_download.write_part, self._disk, self._log.folder, part)
                if not part.is_last:
                    return
                snapshot = await self._threads.run(
                    snapshot_download.complete, self._disk, self._log.folder, part.snapshot
                )
            except (OSError, CorruptCheckpointError) as error:
                if is_failed_write(error):
                    raise
                logger.warning("the snapshot that node %d sent cannot be used: %s", self._core.leader_id, error)
                self._step(SnapshotUnusable())
                return
            async with self._commits.handing_on:
                doomed = self._load(snapshot)
            for path in doomed:
                with contextlib.suppress(FileNotFoundError):
                    await self._threads.run(self._disk.unlink, path)

    def _load(self, snapshot: Snapshot) -> Sequence[str]:
        """Puts a snapshot in the place of the log and of everything that is not handed on yet. Returns files that are
        no longer needed."""
        if snapshot.id.end_offset <= self._core.high_watermark:
            self._step(SnapshotUnusable())
            return ()
        doomed = self._log.restart_at(snapshot.id)
        logger.info("starting from the snapshot at offset %d", snapshot.id.end_offset)
        self._commits.restart_at(snapshot)
        self._step(SnapshotLoaded(snapshot.id, snapshot.kraft_version, snapshot.voters))
        return doomed

    # Giving up

    async def hand_over(self) -> None:
        """Waits until everything that was appended has been committed, or cannot be. A leader of several voters then
        resigns, and waits until the others know it, or a moment."""
        if waiting := self._commits.awaited:
            await asyncio.wait(waiting, timeout=HAND_OVER_S if len(self._core.voters) > 1 else None)
        if self._core.role is not Role.LEADER or len(self._core.voters) == 1 or self._is_stopped:
            return
        self.resign()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._core.timeouts.election_ms / 1000):
                while under_way := [task for task in self._tasks if task.get_name() in (_MESSAGES, _REQUEST)]:
                    await asyncio.wait(under_way)

    def _spawn(self, work: Callable[..., Coroutine[Any, Any, None]], name: str, *arguments: object) -> None:
        if self._is_stopped:
            return
        task = asyncio.create_task(self._guarded(work, *arguments), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        try:
            await work(*arguments)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """The log can no longer be trusted."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if isinstance(error, OSError) and error.filename is None:
            error = OSError(error.errno, error.strerror, self._log.folder).with_traceback(error.__traceback__)
        logger.critical("the metadata log has failed, stopping the controller: %s", error, exc_info=error)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._commits.step_down()
        self._readers.close()
        self._listener.on_failure(error)

    def _give_up(self, error: Exception) -> None:
        """A write failed, but what was written before is intact: the next election, or request, tries again."""
        is_due = self._core.role is Role.LEADER or self._now_ms() >= self._next_complaint_ms
        if is_due:
            self._next_complaint_ms = self._now_ms() + COMPLAINT_MS
        logger.log(
            logging.WARNING if is_due else logging.DEBUG,
            "cannot write to %s, %s: %s",
            self._log.folder,
            "giving up leadership" if self._core.role is Role.LEADER else "neither voting nor following for now",
            error,
        )
        self._step(AppendFailed(self._log.end))

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
