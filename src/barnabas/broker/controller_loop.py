"""The controller on the quorum's event loop: raft below, the state machine above, the timers beside.

A request is decided against the state with all appended records, its records are appended and applied at once, and
the reply waits until they are committed. When leadership is lost, the state is dropped with everything uncommitted in
it; the next leadership builds it anew from the committed image.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.controller_snapshots import Snapshotter
from barnabas.metadata.controller.bootstrap import activation_records
from barnabas.metadata.controller.context import MAX_RECORDS_PER_BATCH, Context
from barnabas.metadata.controller.decide import decide, refusal
from barnabas.metadata.controller.leadership import fence
from barnabas.metadata.controller.state import ControllerState
from barnabas.metadata.registrations import addresses_as, features_as
from barnabas.metadata.versions import SUPPORTED_FEATURES, VersionedRecord
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.raft.batches import VoterEndpoint, VoterNode
from barnabas.raft.core import RaftCore, Voter
from barnabas.raft.driver import RaftDriver
from barnabas.raft.log import MetadataLog, MetadataLogLimits
from barnabas.raft.quorum_state import read_quorum_state

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from barnabas.broker.metadata_loader import MetadataLoader
    from barnabas.metadata.controller.context import ConfigRules, Settings
    from barnabas.metadata.image import Endpoint
    from barnabas.ports import Clock, Disk, Random
    from barnabas.protocol.structs import Message
    from barnabas.protocol.uuids import Uuid
    from barnabas.raft.batches import DecodedBatch
    from barnabas.raft.log import FolderContent

logger = logging.getLogger("barnabas.controller")

MAX_REQUESTS_IN_FLIGHT = 1000
"""Requests that wait for their commit; further ones wait until they may be decided."""
_THREADS = 2
"""One for syncing the log, one for writing snapshots."""


class ControllerOptions(NamedTuple):
    data_folder: str
    directory_id: Uuid
    """Of the data folder, as meta.properties has it."""
    settings: Settings
    limits: MetadataLogLimits = MetadataLogLimits()


class Environment(NamedTuple):
    """What the controller works with."""

    loader: MetadataLoader
    rules: ConfigRules
    disk: Disk
    clock: Clock
    random: Random
    on_failure: Callable[[Exception], None]
    """Called in the quorum's thread when the metadata log cannot be trusted any longer. The node must stop."""


class Reply(NamedTuple):
    response: Message
    offset: int
    """Where the log stood when the response became true: an image that contains this offset shows it."""


class QuorumController:
    """To be made and used on the quorum's loop."""

    def __init__(
        self,
        options: ControllerOptions,
        environment: Environment,
        content: FolderContent,
        log: MetadataLog,
        *,
        endpoints: Sequence[Endpoint],
        bootstrap: Sequence[VersionedRecord],
    ) -> None:
        self._options = options
        self._settings = options.settings
        self._environment = environment
        self._loader = environment.loader
        self._log = log
        self._endpoints = endpoints
        self._bootstrap = bootstrap
        self._incarnation_id = environment.random.uuid()
        self._state: ControllerState | None = None
        self._active: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slots = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="metadata disk")
        voters = self._voters(content)
        self._driver = self._make_driver(content, voters)
        self._snapshotter = Snapshotter(
            log,
            lambda: self._loader.committed,
            voters if content.kraft_version else None,
            options.limits,
            content,
            disk=environment.disk,
            clock=environment.clock,
            executor=self._executor,
        )

    async def start(self) -> None:
        """Returns when this node leads and has registered itself as a controller."""
        self._driver.start()
        self._spawn(self._write_no_ops(), "metadata no-ops")
        self._spawn(self._fence_expired_brokers(), "broker sessions")
        await self._active

    async def close(self) -> None:
        """Commits what was appended and closes the log."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._driver.close()
        await self._snapshotter.close()
        self._state = None
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._log.close)
        finally:
            self._executor.shutdown()

    async def handle(self, request: Message) -> Reply:
        """Decides on a request and returns when the decision is committed."""
        async with self._slots:
            try:
                return await self._decide(request)
            except KafkaError as error:
                refused = error
            except Exception:
                logger.exception("a %s could not be decided", type(request).__name__)
                refused = KafkaError(Error.UNKNOWN_SERVER_ERROR, "The controller failed; the node's log says why.")
            return Reply(refusal(request, refused), self._loader.committed.offset)

    async def _decide(self, request: Message) -> Reply:
        state = self._active_state()
        decision = decide(state, request, self._context())
        if decision.contact is not None:
            state.touch(decision.contact)
        if decision.records:
            await self._append(decision.records)
        else:
            # The answer may rest on records of others that are not committed yet.
            await self._driver.settled()
        return Reply(decision.response, self._loader.committed.offset)

    async def _append(self, records: Sequence[VersionedRecord]) -> None:
        """Appends and applies records, in several batches if they are many, and waits for their commit."""
        commits = [
            self._append_batch(records[start : start + MAX_RECORDS_PER_BATCH])
            for start in range(0, len(records), MAX_RECORDS_PER_BATCH)
        ]
        # A request that is abandoned must not take the futures from others who wait for them: so no gather here.
        await asyncio.wait(commits)
        for commit in commits:
            commit.result()

    def _append_batch(self, records: Sequence[VersionedRecord]) -> asyncio.Future[int]:
        """Applies records to the state first: what does not fit there must never get into the log."""
        state = self._active_state()
        prepared = self._driver.prepare(records)
        try:
            state.apply(records, prepared.base_offset, self._now_ms())
        except Exception:
            # Half applied, the state is of no use; the next leadership makes a new one.
            self._driver.resign()
            raise
        return self._driver.append(prepared)

    def _active_state(self) -> ControllerState:
        if self._state is None:
            raise KafkaError(Error.NOT_CONTROLLER, "This node does not lead the metadata quorum.")
        return self._state

    # What raft says

    def on_commit(self, batches: Sequence[DecodedBatch]) -> None:
        self._loader.apply(batches)
        self._snapshotter.committed(batches)

    def on_leader(self, epoch: int) -> None:
        logger.info("node %d leads the metadata quorum in epoch %d", self._settings.node_id, epoch)
        records = activation_records(
            self._loader.committed,
            self._bootstrap,
            is_in_transaction=self._loader.is_in_transaction,
            min_insync_replicas=self._settings.min_insync_replicas,
        )
        self._state = ControllerState(self._loader.committed, self._now_ms())
        try:
            # At once, before any request can be decided.
            if records:
                self._append_batch(records)
        except KafkaError as error:
            logger.warning("node %d could not take over as controller: %s", self._settings.node_id, error)
            return
        self._spawn(self._register(), "controller registration")

    def on_resign(self) -> None:
        self._state = None
        logger.warning("node %d leads the metadata quorum no more", self._settings.node_id)

    def on_failure(self, error: Exception) -> None:
        self._state = None
        if not self._active.done():
            self._active.set_exception(error)
        self._environment.on_failure(error)

    async def _register(self) -> None:
        try:
            await self._decide(self._registration())
        except KafkaError as error:
            logger.warning("node %d could not register as controller: %s", self._settings.node_id, error)
            return
        if not self._active.done():
            self._active.set_result(None)

    def _registration(self) -> m.ControllerRegistrationRequest:
        request = m.ControllerRegistrationRequest
        return request(
            controller_id=self._settings.node_id,
            incarnation_id=self._incarnation_id,
            listeners=addresses_as(request.Listener, self._endpoints),
            features=features_as(request.Feature, SUPPORTED_FEATURES),
        )

    # Timers

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(self._guarded(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs what nobody waits for: if it fails, the controller does."""
        try:
            await work
        except Exception as error:
            logger.critical("the controller has failed: %s", error, exc_info=error)
            self.on_failure(error)

    async def _write_no_ops(self) -> None:
        """Followers and observers learn from a record now and then that their leader is alive."""
        interval_s = self._options.limits.idle_interval_ms / 1000
        while interval_s > 0:
            await asyncio.sleep(interval_s)
            await self._append_in_background([VersionedRecord(m.NoOpRecord(), 0)])

    async def _fence_expired_brokers(self) -> None:
        timeout_ms = self._settings.session_timeout_ms
        while True:
            await asyncio.sleep(self._ms_to_next_expiry(timeout_ms) / 1000)
            # One at a time, so that what each of them changes is seen when the next is fenced.
            while (state := self._state) and (expired := state.expired_brokers(self._now_ms(), timeout_ms)):
                logger.warning("broker %d is fenced: it has been silent for %d ms", expired[0], timeout_ms)
                if not await self._append_in_background(fence(state, self._settings, state.brokers[expired[0]])):
                    break

    def _ms_to_next_expiry(self, timeout_ms: int) -> int:
        contacts = [session.last_contact_ms for session in self._state.sessions.values()] if self._state else []
        oldest_ms = min(contacts, default=self._now_ms())
        # A broker that is fenced already has nothing to expire, so never look more often than this.
        return max(oldest_ms + timeout_ms - self._now_ms() + 1, timeout_ms // 8)

    async def _append_in_background(self, records: Sequence[VersionedRecord]) -> bool:
        """Whether the controller's own records were committed; a controller that is not active has none."""
        try:
            await self._append(records)
        except KafkaError as error:
            logger.debug("a record of the controller's own was not written: %s", error)
            return False
        return True

    # Small parts

    def _context(self) -> Context:
        return Context(
            now_ms=self._now_ms(),
            next_offset=self._driver.next_offset,
            random=self._environment.random,
            rules=self._environment.rules,
            settings=self._settings,
        )

    def _now_ms(self) -> int:
        return int(self._environment.clock.monotonic() * 1000)

    def _voters(self, content: FolderContent) -> tuple[VoterNode, ...]:
        endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in self._endpoints)
        if not content.kraft_version:
            return (VoterNode(self._settings.node_id, self._options.directory_id, endpoints),)
        return tuple(
            voter._replace(endpoints=endpoints) if voter.id == self._settings.node_id else voter
            for voter in content.voters
        )

    def _make_driver(self, content: FolderContent, voters: Sequence[VoterNode]) -> RaftDriver:
        environment = self._environment
        is_voters_record_due = bool(content.kraft_version) and (
            not content.are_voters_in_log or content.voters != tuple(voters)
        )
        core = RaftCore(
            Voter(self._settings.node_id, self._options.directory_id),
            [Voter(voter.id, voter.directory_id) for voter in voters],
            read_quorum_state(environment.disk, self._log.folder),
            self._log.end,
            # What the only voter has in its log is committed, and the loader has it.
            high_watermark=content.end_offset,
            jitter=environment.random.below,
            is_voters_record_due=is_voters_record_due,
        )
        return RaftDriver(
            core,
            self._log,
            voters,
            self,
            disk=environment.disk,
            clock=environment.clock,
            executor=self._executor,
            static_voters=() if content.kraft_version else [voter.id for voter in voters],
        )
