"""Several cores with a simulated network, disks that lose what was not synced, and invariants checked all the time.

Everything comes from one seed: delays, losses, crashes, cuts, proposals, snapshots. Time is simulated.
"""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from barnabas.raft.consensus.core import RaftCore
from barnabas.raft.consensus.log_history import LogEnd, LogHistory, SnapshotId
from barnabas.raft.consensus.messages import (
    NO_NODE,
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Flushed,
    HardState,
    LeaderChange,
    LogTrimmed,
    Propose,
    Ready,
    RequestFailed,
    Role,
    SnapshotLoaded,
    VotersChange,
)
from barnabas.raft.consensus.node_state import QuorumTimeouts
from barnabas.raft.consensus.replica_log import ReplicaLog
from barnabas.raft.consensus.voter_sets import Voter, VoterEndpoint, VoterHistory, VoterNode, VoterSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.raft.consensus.messages import Entry, Inbound, Outbound, Request, Response

LONG_POLL_MS = 500
BATCHES_PER_FETCH = 5
SNAPSHOT_BYTES = 10


def voter(number: int) -> Voter:
    return Voter(number, Uuid(bytes([number]) * 16))


def node_of(number: int, port: int = 9093) -> VoterNode:
    return VoterNode(number, voter(number).directory_id, (VoterEndpoint("CONTROLLER", f"node{number}", port),))


class Written(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    payload: object


class SimulatedSnapshot(NamedTuple):
    id: SnapshotId
    voters: tuple[VoterNode, ...]
    log: tuple[Written, ...]


class SimulatedNode:
    """One node: what is on its disk outlives its core."""

    def __init__(self, cluster: SimulatedCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.hard_state = HardState()
        self.log: list[Written] = []
        self.snapshot: SimulatedSnapshot | None = None
        """It has everything before the log; entries before its end may still be in the log."""
        self.synced_end = 0
        self.truncations = 0
        self.life = 0
        self.core: RaftCore | None = None
        self.pending_states = 0
        self.is_syncing = False
        self.part = b""
        self.shown = 0
        self.port = 9093
        self.asked_by: list[Callable[[], None]] = []
        """Whom to tell that no answer comes any more."""

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else self.start_offset

    @property
    def start_offset(self) -> int:
        if self.log:
            return self.log[0].base_offset
        return self.snapshot.id.end_offset if self.snapshot else 0

    def start(self) -> None:
        self.life += 1
        cluster, snapshot = self.cluster, self.snapshot
        voters = VoterHistory(1, cluster.initial_voters)
        if snapshot is not None:
            voters = VoterHistory(1, VoterSet(snapshot.voters), snapshot.id.end_offset - 1)
        epochs: list[tuple[int, int]] = []
        for written in self.log:
            if not epochs or epochs[-1][0] != written.epoch:
                epochs.append((written.epoch, written.base_offset))
            if (named := named_voters(written.payload)) and written.end_offset - 1 > voters.latest.offset:
                voters.append(written.end_offset - 1, voters=VoterSet(named))
        last_epoch = epochs[-1][0] if epochs else (snapshot.id.epoch if snapshot else 0)
        history = LogHistory(
            LogEnd(last_epoch, self.end_offset),
            epochs,
            start_offset=self.start_offset,
            oldest_snapshot=snapshot.id if snapshot else None,
            newest_snapshot=snapshot.id if snapshot else None,
        )
        self.shown = snapshot.id.end_offset if snapshot else 0
        self.pending_states, self.is_syncing, self.part = 0, False, b""
        self.core = RaftCore(
            voter(self.number),
            self.hard_state,
            ReplicaLog(history, voters, durable_end=self.synced_end, high_watermark=self.shown),
            endpoints=node_of(self.number, self.port).endpoints,
            timeouts=QuorumTimeouts(),
            jitter=lambda below: cluster.random.randrange(below),
        )
        self.sync()
        self.take(self.core.tick(cluster.now_ms))

    def crash(self) -> None:
        """Some of what was not synced is lost, as a whole tail."""
        self.core = None
        self.life += 1
        for reset in self.asked_by:
            reset()
        self.asked_by.clear()
        keep = [written for written in self.log if written.end_offset <= self.synced_end]
        rest = self.log[len(keep) :]
        self.log = keep + rest[: self.cluster.random.randint(0, len(rest))]
        self.synced_end = min(self.synced_end, self.end_offset)

    def later(self, delay_ms: int, action: Callable[[], None], life: int | None = None) -> None:
        """Unless the node has crashed by then."""
        life = self.life if life is None else life
        self.cluster.later(delay_ms, lambda: action() if self.life == life else None)

    def step(self, message: Inbound, then: Callable[[Response], None] | None = None) -> None:
        assert self.core is not None
        self.take(self.core.step(message, self.cluster.now_ms), then)

    def take(self, ready: Ready, then: Callable[[Response], None] | None = None) -> None:
        core = self.core
        assert core is not None
        if ready.truncate_to is not None:
            assert ready.truncate_to >= self.shown, "truncated what was committed"
            self.log = [written for written in self.log if written.end_offset <= ready.truncate_to]
            self.synced_end = min(self.synced_end, ready.truncate_to)
            self.truncations += 1
        for entry in ready.entries:
            self.write(entry)
        if ready.entries:
            self.sync()
        if ready.snapshot_part is not None:
            self.part = self.part[: ready.snapshot_part.position] + ready.snapshot_part.data
            if ready.snapshot_part.is_last:
                self.later(self.cluster.random.randint(0, 50), self.install)
        self.cluster.observe(self, ready)
        self.persist(ready, then)
        self.arm()

    def write(self, entry: Entry) -> None:
        assert entry.base_offset == self.end_offset, "a gap in the log"
        end = entry.base_offset + entry.record_count
        self.log.append(Written(entry.base_offset, end, entry.epoch, entry.payload))

    def persist(self, ready: Ready, then: Callable[[Response], None] | None) -> None:
        """Messages and the reply leave when the hard state is durable, and that of every step before."""

        def durable() -> None:
            if ready.hard_state is not None:
                self.hard_state = ready.hard_state
            for outbound in ready.messages:
                self.cluster.send(self, outbound)
            if then is not None and ready.reply is not None:
                then(ready.reply)

        delay = self.cluster.random.randint(0, 20) if ready.hard_state is not None else 0
        due = max(self.cluster.now_ms + delay, self.pending_states)
        self.pending_states = due
        if due == self.cluster.now_ms:
            durable()
        else:
            self.later(due - self.cluster.now_ms, durable)

    def sync(self) -> None:
        if self.is_syncing:
            return
        self.is_syncing = True
        end, truncations = self.end_offset, self.truncations

        def synced() -> None:
            self.is_syncing = False
            if truncations == self.truncations:
                self.synced_end = max(self.synced_end, end)
                self.step(Flushed(end))
            if self.end_offset > self.synced_end:
                self.sync()

        self.later(self.cluster.random.choice((1, 5, 30, 200)), synced)

    def install(self) -> None:
        snapshot = self.cluster.snapshots[int(self.part)]
        self.snapshot, self.log = snapshot, []
        self.synced_end = snapshot.id.end_offset
        self.truncations += 1
        self.shown = max(self.shown, snapshot.id.end_offset)
        self.step(SnapshotLoaded(snapshot.id, 1, snapshot.voters))

    def take_snapshot(self) -> None:
        """Of everything that this node knows to be committed."""
        core = self.core
        if core is None or core.high_watermark <= (self.snapshot.id.end_offset if self.snapshot else 0):
            return
        before = [written for written in self.log if written.end_offset <= core.high_watermark]
        if not before:
            return
        voters = self.snapshot.voters if self.snapshot else self.cluster.initial_voters.nodes
        for written in before:
            voters = named_voters(written.payload) or voters
        snapshot = SimulatedSnapshot(
            SnapshotId(before[-1].end_offset, before[-1].epoch), voters, tuple(self.cluster.committed)
        )
        self.snapshot = snapshot
        self.synced_end = max(self.synced_end, snapshot.id.end_offset)
        self.cluster.snapshots.append(snapshot)
        if self.cluster.random.random() < 0.7:
            self.log = self.log[len(before) :]
            self.truncations += 1  # a sync under way does not know of it
        self.step(LogTrimmed(self.start_offset, snapshot.id, snapshot.id))
        self.sync()

    def arm(self) -> None:
        assert self.core is not None
        deadline = self.core.deadline_ms
        if deadline is not None:
            self.later(max(deadline - self.cluster.now_ms, 1), self.tick_if_due)

    def tick_if_due(self) -> None:
        assert self.core is not None
        if (self.core.deadline_ms or 0) <= self.cluster.now_ms:
            self.take(self.core.tick(self.cluster.now_ms))

    # What a driver does for requests of others

    def answer(self, request: Request, then: Callable[[Response], None], asked_ms: int | None = None) -> None:
        if isinstance(request, FetchRequest):
            asked = self.cluster.now_ms if asked_ms is None else asked_ms
            self.step(request, lambda reply: self.answer_fetch(request, reply, then, asked))
        elif isinstance(request, FetchSnapshotRequest):
            self.step(request, lambda reply: then(self.answer_snapshot(reply)))
        else:
            self.step(request, then)

    def answer_fetch(
        self, request: FetchRequest, reply: Response, then: Callable[[Response], None], asked_ms: int
    ) -> None:
        assert isinstance(reply, FetchResponse)
        assert self.core is not None
        if reply.head.error is not Error.NONE or reply.divergence or reply.snapshot:
            then(reply)
            return
        batches = tuple(
            FetchedBatch(w.base_offset, w.end_offset, w.epoch, w.payload, None, named_voters(w.payload))
            for w in self.log
            if w.base_offset >= request.log_end.offset
        )[:BATCHES_PER_FETCH]
        is_news = reply.high_watermark > request.high_watermark
        if batches or is_news or self.cluster.now_ms - asked_ms >= LONG_POLL_MS:
            then(reply._replace(batches=batches))
        else:
            self.later(20, lambda: self.answer(request, then, asked_ms))

    def answer_snapshot(self, reply: Response) -> Response:
        assert isinstance(reply, FetchSnapshotResponse)
        if reply.head.error is not Error.NONE:
            return reply
        wanted = reply.request.snapshot
        if self.snapshot is None or self.snapshot.id != wanted:
            return reply._replace(head=reply.head._replace(error=Error.SNAPSHOT_NOT_FOUND))
        content = b"%*d" % (SNAPSHOT_BYTES, self.cluster.snapshots.index(self.snapshot))
        data = content[reply.request.position :][: SNAPSHOT_BYTES // 3]
        return reply._replace(size=len(content), data=data)


def named_voters(payload: object) -> tuple[VoterNode, ...] | None:
    if isinstance(payload, LeaderChange):
        return payload.named
    return payload.voters if isinstance(payload, VotersChange) else None


class SimulatedCluster:
    def __init__(self, seed: int, voters: int = 3, observers: int = 0) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.initial_voters = VoterSet(node_of(number) for number in range(1, voters + 1))
        self.nodes = {number: SimulatedNode(self, number) for number in range(1, voters + observers + 1)}
        self.committed: list[Written] = []
        """What any node has ever shown to be committed."""
        self.snapshots: list[SimulatedSnapshot] = []
        self.leaders: dict[int, int] = {}
        self.loss = 0.0
        self.cuts: set[tuple[int, int]] = set()
        self.proposed = 0
        self.truncations = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._sequence, action))

    def run_for(self, duration_ms: int) -> None:
        end = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end:
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
        self.now_ms = end

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 60_000) -> None:
        end = self.now_ms + limit_ms
        while not condition():
            assert self._events, "nothing is left to happen"
            assert self._events[0][0] <= end, f"not reached within {limit_ms} ms"
            self.now_ms, _, action = heapq.heappop(self._events)
            action()

    def send(self, source: SimulatedNode, outbound: Outbound) -> None:
        to = outbound.to
        if to == NO_NODE:
            to = self.random.choice([number for number in self.initial_voters.ids if number != source.number])
        request, sent_in = outbound.request, source.life

        def fail(*, is_unreachable: bool) -> None:
            source.later(
                self.random.randint(1, 100),
                lambda: source.step(RequestFailed(outbound.to, request, is_unreachable)),
                sent_in,
            )

        def arrive() -> None:
            target = self.nodes[to]
            if self.is_lost(source.number, to):
                fail(is_unreachable=False)
            elif target.core is None:
                fail(is_unreachable=True)
            else:
                target.asked_by.append(reset)
                target.answer(request, reply)

        def reset() -> None:
            """The node dies before it answers, and its connections with it."""
            fail(is_unreachable=False)

        def reply(response: Response) -> None:
            self.nodes[to].asked_by.remove(reset)
            if self.is_lost(to, source.number):
                fail(is_unreachable=False)
            else:
                source.later(self.delay_ms(), lambda: source.step(response), sent_in)

        self.later(self.delay_ms(), arrive)

    def delay_ms(self) -> int:
        return self.random.choice((1, 1, 2, 5, 40))

    def is_lost(self, source: int, target: int) -> bool:
        return (source, target) in self.cuts or self.random.random() < self.loss

    def observe(self, node: SimulatedNode, ready: Ready) -> None:
        """What must hold after every step of every node."""
        core = node.core
        assert core is not None
        if ready.role is Role.LEADER:
            assert self.leaders.setdefault(core.epoch, node.number) == node.number, "two leaders in one epoch"
        self.truncations += ready.truncate_to is not None
        assert core.high_watermark >= node.shown, "the high watermark fell"
        assert core.high_watermark <= max(node.end_offset, node.shown), "the high watermark is beyond the log"
        if ready.high_watermark is None:
            return
        for written in node.log:
            if node.shown <= written.base_offset and written.end_offset <= core.high_watermark:
                self.show(written)
        node.shown = core.high_watermark

    def show(self, written: Written) -> None:
        end = self.committed[-1].end_offset if self.committed else 0
        if written.base_offset >= end:
            assert written.base_offset == end, "committed with a gap"
            self.committed.append(written)
        else:
            known = next(each for each in self.committed if each.base_offset == written.base_offset)
            assert known == written, f"{written} was committed, and {known} before"

    # What a schedule does

    @property
    def active(self) -> SimulatedNode | None:
        """The newest leader, if it knows its epoch to be committed."""
        leaders = [node for node in self.nodes.values() if node.core is not None and node.core.is_active]
        return max(leaders, key=lambda node: node.core.epoch if node.core else 0, default=None)

    def propose(self) -> None:
        for node in self.nodes.values():
            if node.core is not None and node.core.role is Role.LEADER:
                self.proposed += 1
                node.step(Propose(f"record {self.proposed}", self.random.randint(1, 3)))

    def start_all(self) -> None:
        for node in self.nodes.values():
            if node.core is None:
                node.start()

    def isolate(self, number: int) -> None:
        for other in self.nodes:
            self.cuts |= {(number, other), (other, number)}

    def is_settled(self) -> bool:
        """Everybody follows one leader, and has everything."""
        cores = [node.core for node in self.nodes.values()]
        active = self.active
        if active is None or active.core is None or any(core is None for core in cores):
            return False
        return all(
            core is not None
            and core.epoch == active.core.epoch
            and core.high_watermark == active.core.log_end_offset == core.log_end_offset
            for core in cores
        )
