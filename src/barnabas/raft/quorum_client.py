"""A node's part in the metadata quorum, whole: its log, its rules, and the ways to and from other nodes.

Every node has one, whatever its roles. A voter may lead; an observer only fetches. What is committed goes to a
`RaftListener`: the controller where the node has one, else `raft/observer`.

    opened = read_quorum(disk, folder, local, settings)      # nothing is written yet
    client = QuorumClient(opened, log, identity, settings, listener, environment, threads)
    client.start()
    await client.caught_up()

Everything before the high watermark is committed, and nothing else may reach an image. A sole voter knows at its start
that its whole log is; any other node only knows it of its snapshot, until a leader says more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.net.frames import WireError
from barnabas.net.peer import PeerEnvironment
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.raft.consensus.core import RaftCore
from barnabas.raft.consensus.log_history import BOOTSTRAP
from barnabas.raft.consensus.messages import Head, Role
from barnabas.raft.consensus.node_state import QuorumTimeouts
from barnabas.raft.consensus.replica_log import ReplicaLog
from barnabas.raft.consensus.voter_sets import (
    BEFORE_LOG,
    VOTERS_IN_LOG,
    Voter,
    VoterEndpoint,
    VoterHistory,
    VoterNode,
    VoterSet,
)
from barnabas.raft.current_leader import CurrentLeader, QuorumLeader
from barnabas.raft.driver import RaftDriver
from barnabas.raft.folder.metadata_batches import voters_from_record
from barnabas.raft.folder.metadata_log import read_folder
from barnabas.raft.folder.quorum_state import FILE_NAME as QUORUM_STATE
from barnabas.raft.folder.quorum_state import read_quorum_state
from barnabas.raft.folder.snapshots import read_range
from barnabas.raft.wire.quorum_peers import Address, PeerOptions, QuorumPeers

if TYPE_CHECKING:
    import asyncio

    from barnabas.ports import Clock, Disk, Network, Random, ThreadPool
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.uuids import Uuid
    from barnabas.raft.commits import RaftListener
    from barnabas.raft.consensus.log_history import SnapshotId
    from barnabas.raft.consensus.messages import HardState
    from barnabas.raft.folder.metadata_batches import DecodedBatch
    from barnabas.raft.folder.metadata_log import FolderContent, MetadataLog

logger = logging.getLogger("barnabas.raft")

PROGRESS_S = 5.0
"""How often a node that is not caught up yet says how far it is."""


class ForeignClusterError(Exception):
    """The controllers that this node is told of are in another cluster."""


class NodeIdInUseError(Exception):
    """Another node of the cluster has the id of this one."""


class NoLeaderError(WireError):
    """Nobody is known to lead the quorum."""


class QuorumSettings(NamedTuple):
    """Kafka's `controller.quorum.*`. Without voters and servers, a node is alone."""

    static_voters: tuple[VoterNode, ...] = ()
    """`controller.quorum.voters`: who votes, unless the log names the voters."""
    bootstrap_servers: tuple[Address, ...] = ()
    """`controller.quorum.bootstrap.servers`"""
    timeouts: QuorumTimeouts = QuorumTimeouts()
    append_linger_ms: int = 0
    """For how long the leader gathers what is appended before it is synced."""
    request_timeout_ms: int = 2_000
    fetch_max_bytes: int = 1024 * 1024
    snapshot_max_bytes: int = 1024 * 1024
    listener_name: str = "CONTROLLER"
    """The first of `controller.listener.names`."""


class QuorumIdentity(NamedTuple):
    """Who this node is in the quorum."""

    node_id: int
    directory_id: Uuid
    """The directory.id in the meta.properties of the metadata folder."""
    cluster_id: str
    endpoints: tuple[VoterEndpoint, ...] = ()
    """The addresses of its CONTROLLER listeners; an observer has none."""

    @property
    def key(self) -> Voter:
        return Voter(self.node_id, self.directory_id)


class QuorumEnvironment(NamedTuple):
    disk: Disk
    clock: Clock
    random: Random
    network: Network | None
    """None for a node that is alone."""


class OpenedQuorum(NamedTuple):
    """What the metadata folder of a node says."""

    content: FolderContent
    hard_state: HardState
    voters: VoterHistory
    is_alone: bool
    """Whether this node is the only voter."""

    @property
    def committed(self) -> tuple[DecodedBatch, ...]:
        """The batches after the snapshot that are known to be committed."""
        return self.content.batches if self.is_alone else ()

    @property
    def uncommitted(self) -> tuple[DecodedBatch, ...]:
        return () if self.is_alone else self.content.batches

    @property
    def high_watermark(self) -> int:
        if self.is_alone:
            return self.content.end_offset
        return self.content.snapshot.id.end_offset if self.content.snapshot else 0


def read_quorum(disk: Disk, folder: str, local: Voter, settings: QuorumSettings) -> OpenedQuorum:
    """Reads a metadata folder without changing anything in it. Blocks.

    Raises what `read_folder` does, and QuorumStateError if this node cannot know how it has voted."""
    content = read_folder(disk, folder)
    hard_state = read_quorum_state(disk, folder)
    voters = _voters_in(content, VoterSet(settings.static_voters))
    latest = voters.latest.voters
    return OpenedQuorum(content, hard_state, voters, len(latest) == 1 and latest.matching(local) is not None)


def _voters_in(content: FolderContent, static: VoterSet) -> VoterHistory:
    snapshot = content.snapshot
    if snapshot is None or snapshot.kraft_version < VOTERS_IN_LOG:
        history = VoterHistory(0, static)
    else:
        offset = BEFORE_LOG if snapshot.id == BOOTSTRAP else snapshot.id.end_offset - 1
        history = VoterHistory(snapshot.kraft_version, VoterSet(snapshot.voters), offset)
    for batch in content.batches:
        kraft_version, voters = None, None
        for record in batch.records if batch.is_control else ():
            if isinstance(record, m.KRaftVersionRecord):
                kraft_version = record.kraft_version
            elif isinstance(record, m.VotersRecord):
                voters = VoterSet(voters_from_record(record))
        if kraft_version is not None or voters is not None:
            history.append(batch.last_offset, kraft_version=kraft_version, voters=voters)
    return history


class QuorumClient:
    """Create and use it only on the quorum's loop, except for `current_leader`."""

    def __init__(
        self,
        opened: OpenedQuorum,
        log: MetadataLog,
        identity: QuorumIdentity,
        settings: QuorumSettings,
        listener: RaftListener,
        environment: QuorumEnvironment,
        threads: ThreadPool,
        loop: asyncio.AbstractEventLoop,
        current_leader: CurrentLeader | None = None,
    ) -> None:
        self.cluster_id = identity.cluster_id
        self.listener_name = settings.listener_name
        self.current_leader = current_leader or CurrentLeader()
        self._log = log
        self._disk = environment.disk
        self._clock = environment.clock
        self._threads = threads
        self._peers: QuorumPeers | None = None
        core = self._make_core(opened, identity, settings, environment)
        if environment.network is not None:
            self._peers = QuorumPeers(
                PeerOptions(
                    identity.cluster_id,
                    settings.listener_name,
                    settings.bootstrap_servers,
                    settings.request_timeout_ms,
                    settings.fetch_max_bytes,
                    settings.snapshot_max_bytes,
                    identity.endpoints,
                ),
                PeerEnvironment.of(loop, environment.network, environment.random),
                identity.node_id,
            )
            self._peers.voters = lambda: core.voters
            self._peers.is_well = lambda: core.is_caught_up
        self.driver = RaftDriver(
            core,
            log,
            listener,
            disk=environment.disk,
            clock=environment.clock,
            threads=threads,
            transport=self._peers,
            uncommitted=opened.uncommitted,
            static_voters=() if core.kraft_version >= VOTERS_IN_LOG else core.voters.ids,
            listener_name=settings.listener_name,
            current_leader=self.current_leader,
            linger_ms=settings.append_linger_ms,
        )

    def _make_core(
        self,
        opened: OpenedQuorum,
        identity: QuorumIdentity,
        settings: QuorumSettings,
        environment: QuorumEnvironment,
    ) -> RaftCore:
        log = self._log
        hard_state = opened.hard_state
        if hard_state.epoch < log.end.epoch:
            logger.warning(
                "%s/%s has epoch %d, but the log has records of epoch %d; continuing from the latter",
                log.folder,
                QUORUM_STATE,
                hard_state.epoch,
                log.end.epoch,
            )
        return RaftCore(
            identity.key,
            hard_state,
            ReplicaLog(log.history, opened.voters, durable_end=log.durable_end, high_watermark=opened.high_watermark),
            endpoints=identity.endpoints,
            timeouts=settings.timeouts,
            jitter=environment.random.below,
        )

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, and everything before its epoch is committed."""
        return self.driver.is_leader

    @property
    def leader(self) -> QuorumLeader:
        return self.current_leader.leader

    @property
    def kraft_version(self) -> int:
        return self.driver.core.kraft_version

    @property
    def log_start_offset(self) -> int:
        return self._log.start_offset

    def voters_at(self, offset: int) -> tuple[VoterNode, ...] | None:
        """The voters as of a committed record, for a snapshot; None if they are not part of the log."""
        voters = self.driver.core.log.voters.at(offset)
        return voters.voters.nodes if voters.kraft_version >= VOTERS_IN_LOG else None

    def start(self) -> None:
        self.driver.start()

    async def close(self) -> None:
        """Commits what was appended, resigns if this node leads, and stops."""
        await self.driver.close()
        if self._peers is not None:
            await self._peers.close()

    async def caught_up(self) -> None:
        """Returns when this node leads, or has everything that the leader says is committed. Says now and then how
        far it is. Raises ForeignClusterError if everybody else says that this node is none of theirs, NodeIdInUseError
        if another node with its id leads."""
        driver, core = self.driver, self.driver.core
        next_line_s = self._clock.monotonic() + PROGRESS_S
        while not (core.is_caught_up and driver.has_handed_on and (core.role is not Role.LEADER or driver.is_leader)):
            await driver.next_step(PROGRESS_S)
            self._check_peers()
            if self._clock.monotonic() >= next_line_s:
                next_line_s = self._clock.monotonic() + PROGRESS_S
                leader = self.leader
                state = f"node {leader.id} leads epoch {leader.epoch}" if leader.is_known else "no leader is known"
                logger.info(
                    "waiting for the metadata quorum: %s, replayed up to offset %d",
                    state,
                    core.high_watermark,
                )

    def _check_peers(self) -> None:
        core = self.driver.core
        if self._peers is None or core.role is Role.LEADER:
            return
        if self._peers.is_foreign:
            raise ForeignClusterError(
                f"{self._log.folder} belongs to cluster {self.cluster_id}, but the configured controllers belong to "
                "another cluster: use another folder, or configure other controllers"
            )
        if self._peers.namesake is not None:
            raise NodeIdInUseError(
                f"another node with the id {core.local.id} is alive at {self._peers.namesake}, and leads the metadata "
                "quorum: give this node another node.id and other folders, or stop that one"
            )

    async def ask_leader(self, message: Message) -> Any:
        """The answer of another node that leads. Raises WireError, also if no leader is known."""
        leader = self.leader
        if self._peers is None or leader.endpoint is None:
            raise NoLeaderError("No leader of the metadata quorum is known.")
        return await self._peers.send(leader.endpoint, f"node {leader.id}", message)

    # For the handlers of the listener

    def refusal(self, error: Error) -> Head:
        core = self.driver.core
        return Head(error, core.epoch, core.leader_id, core.leader_endpoints)

    async def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes, Error]:
        """A part of a snapshot: its size, and bytes from a position on. The bootstrap snapshot is not replicated: the
        first leader puts what it says into the log."""
        if snapshot == BOOTSTRAP or snapshot not in self._log.snapshots:
            return 0, b"", Error.SNAPSHOT_NOT_FOUND
        found = await self._threads.run(read_range, self._disk, self._log.folder, snapshot, position, max(max_bytes, 1))
        if found is None:
            return 0, b"", Error.SNAPSHOT_NOT_FOUND
        size, data = found
        return size, data, Error.NONE if data else Error.POSITION_OUT_OF_RANGE

    def now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def wall_ms(self, at_ms: int) -> int:
        """The wall time of a moment of the core's clock."""
        return self._clock.now_ms() - (self.now_ms() - at_ms)
