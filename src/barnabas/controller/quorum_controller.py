"""The controller on the quorum's event loop: it connects the decisions to Raft, and runs the timers.

A request is decided against the state with all appended records, its records are appended and applied at once, and
the reply waits until they are committed. Records of very many partitions are encoded and applied in slices, with turns
of the event loop in between; nothing else is decided meanwhile. When leadership is lost, the state is dropped along
with everything uncommitted in it; the next leadership builds a new one from the committed image.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from barnabas.controller.decisions.activation import activation_records
from barnabas.controller.decisions.broker_transitions import fence
from barnabas.controller.decisions.context import MAX_RECORDS_PER_BATCH, NO_GRACE, Context, DynamicLayers
from barnabas.controller.decisions.controller_state import ControllerState, PartitionKey, PartitionSet
from barnabas.controller.decisions.decide import decide
from barnabas.controller.decisions.periodic_elections import elect_preferred, elect_unclean
from barnabas.controller.decisions.reassignments import listed_reassignments
from barnabas.controller.decisions.slices import joined, slices, slicing_of
from barnabas.metadata.conversions import addresses_as, features_as
from barnabas.metadata.image import RECOVERING
from barnabas.metadata.stored_configs import stored_configs
from barnabas.metadata.versions import SUPPORTED_FEATURES, VersionedRecord
from barnabas.net.frames import WireError
from barnabas.net.large_requests import Breather
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.refusals import refusal
from barnabas.raft.consensus.messages import NO_NODE, Role
from barnabas.raft.consensus.voter_sets import VoterEndpoint
from barnabas.raft.folder.metadata_log import MetadataLog, MetadataLogLimits
from barnabas.raft.quorum_client import (
    ForeignClusterError,
    NodeIdInUseError,
    QuorumClient,
    QuorumEnvironment,
    QuorumIdentity,
    QuorumSettings,
)
from barnabas.raft.snapshotter import Snapshotter
from barnabas.raft.wire.quorum_api import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from barnabas.controller.decisions.context import ConfigRules, Settings
    from barnabas.controller.decisions.slices import Slicing
    from barnabas.metadata.image import Endpoint, MetadataImage
    from barnabas.net.connection import Connection
    from barnabas.ports import Clock, Disk, Network, Random, Threads
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.record import Record
    from barnabas.protocol.uuids import Uuid
    from barnabas.raft.current_leader import CurrentLeader
    from barnabas.raft.folder.metadata_batches import DecodedBatch
    from barnabas.raft.folder.snapshots import Snapshot
    from barnabas.raft.image_publisher import ImagePublisher
    from barnabas.raft.quorum_client import OpenedQuorum

    Elect = Callable[[ControllerState, Settings, Sequence[PartitionKey]], list[VersionedRecord]]

logger = logging.getLogger("barnabas.controller")

MAX_REQUESTS_IN_FLIGHT = 1000
"""Requests that are decided and wait for their commit; further requests wait before they are decided."""
RECORDS_AT_ONCE = 200
"""What is encoded and applied in one go: a few milliseconds' work."""
REGISTRATION_RETRY_S = 0.2
_THREADS = 2
"""One for syncing the log, one for writing snapshots."""
_OF_TOPICS = (m.RemoveTopicRecord, m.ClearElrRecord)
"""Records that change all partitions of a topic."""

T = TypeVar("T")


class ElectionIntervals(NamedTuple):
    """How often the controller holds elections of its own accord."""

    rebalance_s: float | None = None
    """`leader.imbalance.check.interval.seconds`; None without `auto.leader.rebalance.enable`."""
    unclean_s: float | None = None
    """`unclean.leader.election.interval.ms`"""


class ControllerOptions(NamedTuple):
    data_folder: str
    directory_id: Uuid
    """The directory.id in the meta.properties of the data folder."""
    settings: Settings
    limits: MetadataLogLimits = MetadataLogLimits()
    quorum: QuorumSettings = QuorumSettings()
    elections: ElectionIntervals = ElectionIntervals()


class Environment(NamedTuple):
    """What the controller depends on."""

    publisher: ImagePublisher
    rules: ConfigRules
    disk: Disk
    clock: Clock
    random: Random
    threads: Threads
    on_failure: Callable[[Exception], None]
    """Called in the quorum's thread when the metadata log can no longer be trusted. The node must stop."""
    network: Network | None = None
    """The way to other nodes; a node that is alone needs none."""


class Reply(NamedTuple):
    response: Message
    offset: int
    """Any image that contains this offset reflects the response."""


class QuorumController:
    """Create and use it only on the quorum's loop."""

    def __init__(
        self,
        options: ControllerOptions,
        environment: Environment,
        opened: OpenedQuorum,
        log: MetadataLog,
        *,
        endpoints: Sequence[Endpoint],
        bootstrap: Sequence[VersionedRecord],
        current_leader: CurrentLeader | None = None,
    ) -> None:
        self._options = options
        self._settings = options.settings
        self._environment = environment
        self._publisher = environment.publisher
        self._log = log
        self._endpoints = endpoints
        self._bootstrap = bootstrap
        self._incarnation_id = environment.random.uuid()
        self._state: ControllerState | None = None
        self.unclean_elections = 0
        """Leaders that this node has elected who may lack records."""
        self.expired_sessions = 0
        """Brokers that this node has fenced because nothing was heard of them."""
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_alone = opened.is_alone
        self._slots = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)
        self._deciding = asyncio.Lock()
        """Held from a decision until its records are applied."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_lost_broker = asyncio.Event()
        """Set when a session may end sooner than it was to."""
        self._threads = environment.threads.pool("metadata disk", _THREADS)
        self.quorum_client = QuorumClient(
            opened,
            log,
            QuorumIdentity(
                self._settings.node_id,
                options.directory_id,
                self._settings.cluster_id,
                tuple(VoterEndpoint(each.name, each.host, each.port) for each in endpoints),
            ),
            options.quorum,
            self,
            QuorumEnvironment(environment.disk, environment.clock, environment.random, environment.network),
            self._threads,
            asyncio.get_running_loop(),
            current_leader,
        )
        self._driver = self.quorum_client.driver
        self._snapshotter = Snapshotter(
            log,
            lambda: self._publisher.committed,
            self.quorum_client.voters_at,
            options.limits,
            opened.content,
            on_completed=self._driver.log_trimmed,
            disk=environment.disk,
            clock=environment.clock,
            threads=self._threads,
        )

    async def start(self) -> None:
        """Returns when this node can say what is committed: a sole voter when it leads and has registered itself, any
        other when it has found a leader and caught up with it."""
        self.quorum_client.start()
        self._spawn(self._write_no_ops(), "metadata no-ops")
        self._spawn(self._fence_expired_brokers(), "broker sessions")
        elections = self._options.elections
        if elections.rebalance_s is not None:
            work = self._hold_elections(elections.rebalance_s, lambda state: state.imbalanced, elect_preferred)
            self._spawn(work, "preferred leaders")
        if elections.unclean_s is not None:
            work = self._hold_elections(elections.unclean_s, lambda state: state.leaderless, elect_unclean)
            self._spawn(work, "unclean elections")
        self._spawn(self._register(), "controller registration")
        if not self._is_alone:
            self._spawn(self._catch_up(), "catching up")
        await self._started

    async def _catch_up(self) -> None:
        try:
            await self.quorum_client.caught_up()
        except (ForeignClusterError, NodeIdInUseError) as error:
            if not self._started.done():
                self._started.set_exception(error)
        if not self._started.done():
            self._started.set_result(None)

    async def hand_over(self) -> None:
        """Commits what was appended, and lets another voter lead."""
        await self._driver.hand_over()

    async def close(self) -> None:
        """Commits what was appended and closes the log."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.quorum_client.close()
        await self._snapshotter.close()
        self._state = None
        try:
            await self._threads.run(self._log.close)
        finally:
            self._threads.shutdown()

    @property
    def committed(self) -> MetadataImage:
        return self._publisher.committed

    @property
    def kraft_version(self) -> int:
        return self._publisher.kraft_version

    def describe_configs(self, request: m.DescribeConfigsRequest) -> m.DescribeConfigsResponse:
        """Settings as they are committed, and those of this node. Any controller can tell, whoever leads."""
        configs = self.committed.configs
        layers = DynamicLayers(configs.of_broker(""), configs.of_broker(self._settings.node_id))
        return self._environment.rules.describe(request, layers, partial(stored_configs, self.committed))

    async def handle(self, request: Message) -> Reply:
        """Decides on a request and returns when the decision is committed."""
        async with self._slots:
            try:
                if isinstance(request, m.DescribeQuorumRequest):
                    return Reply(describe(self.quorum_client, request), self._publisher.committed.offset)
                if isinstance(request, m.ListPartitionReassignmentsRequest):
                    return await self._list_reassignments(request)
                slicing = slicing_of(request)
                if slicing is None:
                    return await self._decide(request)
                return await self._decide_in_slices(request, slicing)
            except KafkaError as error:
                refused = error
            except Exception:
                logger.exception("the controller failed to handle %s", type(request).__name__)
                refused = KafkaError(
                    Error.UNKNOWN_SERVER_ERROR, "The controller failed unexpectedly. See the log of the node."
                )
            return Reply(refusal(request, refused), self._publisher.committed.offset)

    async def _list_reassignments(self, request: m.ListPartitionReassignmentsRequest) -> Reply:
        self._active_state()
        image = self.committed
        response = m.ListPartitionReassignmentsResponse(error_message=None)
        breather = Breather()
        for topic in listed_reassignments(image, request):
            if topic is None:
                await breather.pause_if_due()
            else:
                response.topics.append(topic)
        return Reply(response, image.offset)

    async def _decide(self, request: Message) -> Reply:
        response, commits = await self._begin(request)
        return await self._when_committed(response, commits)

    async def _decide_in_slices(self, request: Message, slicing: Slicing) -> Reply:
        """As `_decide`, with room for other requests in between."""
        responses: list[Message] = []
        commits: list[asyncio.Future[int]] = []
        for slice_ in slices(request, slicing, self._context()):
            response, begun = await self._begin(slice_)
            responses.append(response)
            commits += begun
            await asyncio.sleep(0)
        return await self._when_committed(joined(responses, slicing), commits)

    async def _begin(self, request: Message) -> tuple[Message, list[asyncio.Future[int]]]:
        """The response, and what has to be committed before it may be given."""
        async with self._deciding:
            state = self._active_state()
            decision = decide(state, request, self._context())
            if decision.contact is not None:
                state.touch(decision.contact)
            records = [*decision.records, *await self._gather(state, decision.parts)]
            return decision.response, await self._append_batches(records)

    async def _gather(
        self, state: ControllerState, parts: Iterable[Sequence[VersionedRecord]]
    ) -> Sequence[VersionedRecord]:
        """Records that are found part by part, with turns for others in between. Call it while deciding."""
        breather = Breather()
        records: list[VersionedRecord] = []
        for part in parts:
            records += part
            await breather.pause_if_due()
            self._require_active(state)
        return records

    async def _when_committed(self, response: Message, commits: Sequence[asyncio.Future[int]]) -> Reply:
        if commits:
            await self._wait(commits)
        else:
            # The response may depend on records of other requests that are not committed yet.
            await self._driver.settled()
        return Reply(response, self._publisher.committed.offset)

    async def _wait(self, commits: Sequence[asyncio.Future[int]]) -> None:
        # Not gather: if this request is cancelled, that would cancel futures that others wait for.
        await asyncio.wait(commits)
        for commit in commits:
            commit.result()

    async def _append_batches(self, records: Sequence[VersionedRecord]) -> list[asyncio.Future[int]]:
        """Appends and applies records, in several batches if they are many. Call it while deciding."""
        return [
            await self._append_batch(records[start : start + MAX_RECORDS_PER_BATCH])
            for start in range(0, len(records), MAX_RECORDS_PER_BATCH)
        ]

    async def _append_batch(self, records: Sequence[VersionedRecord]) -> asyncio.Future[int]:
        if len(records) <= RECORDS_AT_ONCE and not any(isinstance(each.message, _OF_TOPICS) for each in records):
            return self._append_at_once(records)
        return await _to_its_end(self._append_in_slices(records))

    def _append_at_once(self, records: Sequence[VersionedRecord]) -> asyncio.Future[int]:
        """Applies records to the state first: what cannot be applied must never get into the log."""
        state = self._active_state()
        prepared = self._driver.prepare(records)
        self.unclean_elections += unclean_elections_in(records)
        try:
            state.apply(records, prepared.base_offset, self._now_ms())
        except Exception:
            # A partly applied state is useless; the next leadership builds a new one.
            self._driver.resign()
            raise
        return self._driver.append(prepared)

    async def _append_in_slices(self, records: Sequence[VersionedRecord]) -> asyncio.Future[int]:
        """As `_append_at_once`, with turns for others in between."""
        state = self._active_state()
        breather = Breather()
        encoded: list[Record] = []
        for start in range(0, len(records), RECORDS_AT_ONCE):
            encoded += self._driver.encode(records[start : start + RECORDS_AT_ONCE])
            await breather.pause_if_due()
        self._require_active(state)
        prepared = self._driver.prepare_encoded(encoded)
        self.unclean_elections += unclean_elections_in(records)
        try:
            for _ in state.applying(records, prepared.base_offset, self._now_ms()):
                await breather.pause_if_due()
                self._require_active(state)
        except Exception:
            if self._state is state:
                self._driver.resign()
            raise
        return self._driver.append(prepared)

    def _require_active(self, state: ControllerState) -> None:
        """Refuses to go on with a state of a leadership that has ended meanwhile."""
        if self._active_state() is not state:
            raise KafkaError(Error.NOT_CONTROLLER, "This node has given up its leadership of the metadata quorum.")

    def _active_state(self) -> ControllerState:
        if self._state is None:
            raise KafkaError(Error.NOT_CONTROLLER, "This node does not lead the metadata quorum.")
        return self._state

    # Callbacks of the Raft driver

    async def on_commit(self, batches: Sequence[DecodedBatch]) -> None:
        await self._publisher.follow(batches)
        self._snapshotter.committed(batches)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self._publisher.load(snapshot)

    def on_leader(self, epoch: int) -> None:
        logger.info("node %d is the leader of the metadata quorum in epoch %d", self._settings.node_id, epoch)
        records = activation_records(
            self._publisher.committed,
            self._bootstrap,
            is_in_transaction=self._publisher.is_in_transaction,
            min_insync_replicas=self._settings.min_insync_replicas,
        )
        self._state = ControllerState(self._publisher.committed, self._now_ms())
        lost_id = self._driver.core.lost_leader_id
        if lost_id != NO_NODE:
            self._state.lost(lost_id, self._now_ms())
        self._has_lost_broker.set()
        try:
            # Immediately, before any request can be decided.
            if records:
                self._append_at_once(records)
        except KafkaError as error:
            logger.warning("node %d could not take over as controller: %s", self._settings.node_id, error)

    def on_resign(self) -> None:
        self._state = None
        logger.warning("node %d is no longer the leader of the metadata quorum", self._settings.node_id)

    def on_failure(self, error: Exception) -> None:
        self._state = None
        if not self._started.done():
            self._started.set_exception(error)
        self._environment.on_failure(error)

    async def _register(self) -> None:
        """Tells the leader of this controller, until the log has it."""
        while not self._is_registered():
            try:
                response = await self._ask_to_register()
                if response is not None and response.error_code != Error.NONE:
                    raise KafkaError(Error(response.error_code), response.error_message or "")
            except (KafkaError, WireError) as error:
                logger.info("node %d could not register as controller yet: %s", self._settings.node_id, error)
                await asyncio.sleep(REGISTRATION_RETRY_S)
            else:
                if not self._is_registered():
                    await self._driver.next_step(REGISTRATION_RETRY_S)
        if self._is_alone and not self._started.done():
            self._started.set_result(None)

    async def _ask_to_register(self) -> m.ControllerRegistrationResponse | None:
        """The answer of whoever leads; None while nobody does."""
        response: m.ControllerRegistrationResponse
        if self._state is not None:
            response = (await self._decide(self._registration())).response  # type: ignore[assignment]
        elif self._driver.core.role is Role.FOLLOWER and self._driver.core.is_caught_up:
            response = await self.quorum_client.ask_leader(self._registration())
        else:
            return None
        return response

    def _is_registered(self) -> bool:
        registered = self._publisher.committed.controllers.get(self._settings.node_id)
        return registered is not None and registered.incarnation_id == self._incarnation_id

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
        """Runs work that nothing awaits. If it fails, the controller fails."""
        try:
            await work
        except Exception as error:
            logger.critical("the controller has failed: %s", error, exc_info=error)
            self.on_failure(error)

    async def _write_no_ops(self) -> None:
        """Regular records show followers and observers that the leader is alive."""
        interval_s = self._options.limits.idle_interval_ms / 1000
        while interval_s > 0:
            await asyncio.sleep(interval_s)
            await self._append_in_background(lambda _: [[VersionedRecord(m.NoOpRecord(), 0)]])

    async def _hold_elections(
        self, interval_s: float, candidates: Callable[[ControllerState], PartitionSet], elect: Elect
    ) -> None:
        while True:
            await asyncio.sleep(interval_s)
            keys = candidates(self._state).snapshot() if self._state is not None else ()
            for start in range(0, len(keys), RECORDS_AT_ONCE):
                some = keys[start : start + RECORDS_AT_ONCE]
                await self._append_in_background(lambda state, some=some: [elect(state, self._settings, some)])  # type: ignore[misc]

    async def _fence_expired_brokers(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._ms_to_next_expiry() / 1000):
                    await self._has_lost_broker.wait()
            self._has_lost_broker.clear()
            # One at a time, so that the changes made for one are seen when the next is fenced.
            while self._expired_brokers() and await self._append_in_background(self._fence_an_expired_broker):
                pass

    def _expired_brokers(self) -> list[int]:
        state = self._state
        return state.expired_brokers(self._now_ms(), self._settings) if state else []

    def _fence_an_expired_broker(self, state: ControllerState) -> Iterable[Sequence[VersionedRecord]]:
        expired = self._expired_brokers()
        if not expired:
            return ()
        session = state.sessions[expired[0]]
        silent_ms = self._now_ms() - session.last_contact_ms
        if silent_ms <= self._settings.session_timeout_ms:
            reason = (
                f"its connection was closed, and it did not come back within {self._settings.disconnect_grace_ms} ms"
            )
        else:
            reason = f"no heartbeat for {silent_ms} ms"
        logger.warning("fencing broker %d: %s", expired[0], reason)
        self.expired_sessions += 1
        return fence(state, self._settings, state.brokers[expired[0]])

    def _ms_to_next_expiry(self) -> int:
        now_ms, timeout_ms = self._now_ms(), self._settings.session_timeout_ms
        ends = [now_ms + timeout_ms]
        if (state := self._state) is not None:
            ends += [
                session.ends_at_ms(self._settings)
                for broker_id, session in state.sessions.items()
                if broker_id in state.brokers and not state.brokers[broker_id].fenced
            ]
        # What could not be fenced, because that could not be committed, is tried again after a while.
        return min(ends) - now_ms + 1 if min(ends) >= now_ms else timeout_ms // 8

    def heard_over(self, request: m.BrokerHeartbeatRequest, connection: Connection) -> None:
        """A broker's heartbeat came over this connection. It may take a while to be decided, but the broker lives."""
        if self._settings.disconnect_grace_ms == NO_GRACE or self._state is None or connection.is_closed:
            return
        self._state.connected(request.broker_id, request.broker_epoch, connection)
        connection.on_left = partial(self._connection_left, request.broker_id, connection)

    def _connection_left(self, broker_id: int, connection: Connection) -> None:
        if self._state is not None:
            self._state.disconnected(broker_id, connection, self._now_ms())
            self._has_lost_broker.set()

    async def _append_in_background(
        self, make: Callable[[ControllerState], Iterable[Sequence[VersionedRecord]]]
    ) -> bool:
        """Appends records of the controller's own, which are made part by part. Returns whether they were committed."""
        try:
            async with self._deciding:
                state = self._active_state()
                commits = await self._append_batches(await self._gather(state, make(state)))
            if commits:
                await self._wait(commits)
        except KafkaError as error:
            logger.debug("the controller could not write records of its own: %s", error)
            return False
        return True

    # Helpers

    def _context(self) -> Context:
        return Context(
            now_ms=self._now_ms(),
            next_offset=self._driver.next_offset,
            random=self._environment.random,
            rules=self._environment.rules,
            settings=self._settings,
            kraft_version=self.kraft_version,
        )

    def _now_ms(self) -> int:
        return int(self._environment.clock.monotonic() * 1000)


def unclean_elections_in(records: Iterable[VersionedRecord]) -> int:
    """How many of these records elect somebody who may lack committed records."""
    return sum(
        isinstance(record.message, m.PartitionChangeRecord) and record.message.leader_recovery_state == RECOVERING
        for record in records
    )


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits what must not be left half done: whoever is cancelled meanwhile ends when it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
