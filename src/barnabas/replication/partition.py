"""What a replica knows of one partition: its epoch, its in-sync replicas, its high watermark. Pure.

A partition is led in *leader epochs*. In an epoch the leader takes every write, followers copy it, and the
*in-sync replicas* are those that hold everything the leader may call committed. The *high watermark* is the
offset below which every in-sync replica has every record: readers see no further, and an acks=all write is
acknowledged when the high watermark has passed it. With one replica it follows the log end at once; with more, each
follower's fetch says how far that follower is (`Follower`), and the same rule decides.

The controller decides which replicas are in sync, the leader proposes. While a proposal is under way, the leader does
not know whether it has taken effect, so the leader reckons with the *maximal ISR*: a replica that is being admitted
counts already, one that is being expelled counts still. A follower that has nearly caught up and may join is waited for
as well, or else it would never reach a high watermark that runs ahead of it.

The high watermark stands still while the ISR is smaller than `min.insync.replicas`: so a replica that is in the ISR, or
was until it shrank below that, has every record that was ever committed.

Positions come in as values that carry an offset (the log adds segment and byte position to it, so that a reader
needs no look-up for the common end of a range). Times are those of a clock that is never set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, NewType, Protocol, TypeVar

from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BrokerId = NewType("BrokerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)

NO_EPOCH = LeaderEpoch(-1)
NO_BROKER_EPOCH = -1
"""Of a follower that has not said which incarnation it is."""
NO_OFFSET = -1
REPLICA_LAG_TIME_MAX_MS = 30_000
LONG_AGO_MS = -(1 << 62)

_NOT_APPLIED = (Error.OPERATION_NOT_ATTEMPTED, Error.INELIGIBLE_REPLICA)
_WAITS_FOR_METADATA = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.UNKNOWN_TOPIC_ID,
    Error.FENCED_LEADER_EPOCH,
    Error.INVALID_UPDATE_VERSION,
    Error.INVALID_REQUEST,
    Error.NEW_LEADER_ELECTED,
)


class Position(Protocol):
    @property
    def offset(self) -> int: ...


P = TypeVar("P", bound=Position)


class ClusterView:
    """What all partitions of a node see of the cluster around them."""

    __slots__ = ("active_brokers", "live_brokers", "racks", "replica_lag_time_max_ms")

    def __init__(self, replica_lag_time_max_ms: int = REPLICA_LAG_TIME_MAX_MS) -> None:
        self.active_brokers: Mapping[int, int] = {}
        """The brokers that may be in sync (neither fenced nor shutting down), with their epochs."""
        self.live_brokers: frozenset[int] = frozenset()
        """The brokers that are not fenced."""
        self.racks: Mapping[int, str] = {}
        """Where the brokers that are not fenced stand, as far as they say so."""
        self.replica_lag_time_max_ms = replica_lag_time_max_ms


class Pulse:
    """When a follower last asked for anything in one of its fetch sessions. A request of a session names only the
    partitions that changed, but is a sign of life for all of them."""

    __slots__ = ("last_ms",)

    def __init__(self, last_ms: int) -> None:
        self.last_ms = last_ms


class Follower(Generic[P]):
    """What the leader knows of another replica, by its fetches in this leader epoch."""

    __slots__ = (
        "broker_epoch",
        "end",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_at_fetch",
        "log_start_offset",
        "pulse",
    )

    def __init__(self, last_caught_up_ms: int) -> None:
        self.end: P | None = None
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.last_caught_up_ms = last_caught_up_ms
        """The latest time at which it is known to have had everything that the leader had."""
        self.last_fetch_ms = 0
        self.leader_end_at_fetch = NO_OFFSET
        self.pulse: Pulse | None = None

    def fetched(self, position: P, log_start_offset: int, leader_end: int, broker_epoch: int, pulse: Pulse) -> None:
        now_ms = pulse.last_ms
        if position.offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif position.offset >= self.leader_end_at_fetch:
            # It has got everything that there was when it asked before.
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end = position
        self.log_start_offset = log_start_offset
        self.leader_end_at_fetch = max(leader_end, self.leader_end_at_fetch)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch
        self.pulse = pulse

    def leader_grew_from(self, leader_end: int) -> None:
        """The leader wrote something after `leader_end`: whoever had all until then had it at its last sign of life."""
        if self.pulse is not None and self.end is not None and self.end.offset == leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.pulse.last_ms)

    def is_caught_up(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        if self.end is not None and self.end.offset == leader_end:
            return True
        return now_ms - self.last_caught_up_ms <= lag_ms_max


class IsrProposal(NamedTuple):
    """What the leader asks the controller to make of the ISR."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]
    """With the broker epochs in which the leader knows them."""
    maximal_isr: frozenset[BrokerId]


class PartitionState(Generic[P]):
    """Invariants: log start <= high watermark <= log end; the high watermark never falls within an epoch;
    `isr` <= `maximal_isr`; `local_id` is in `isr` while it leads; at most one proposal is under way."""

    __slots__ = (
        "commits_alone",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "isr",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log_end",
        "maximal_isr",
        "min_insync_replicas",
        "partition_epoch",
        "proposal",
        "replicas",
        "view",
    )

    def __init__(self, local_id: BrokerId, log_end: P, high_watermark: P, view: ClusterView | None = None) -> None:
        self.local_id = local_id
        self.view = ClusterView() if view is None else view
        self.leader_id = BrokerId(-1)
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: frozenset[BrokerId] = frozenset()
        self.maximal_isr: frozenset[BrokerId] = frozenset()
        self.proposal: IsrProposal | None = None
        """The one under way, or refused in a way that only new metadata can clear up."""
        self.followers: dict[BrokerId, Follower[P]] = {}
        """The other replicas, while this one leads."""
        self.commits_alone = False
        """Whether this replica leads and there is no other: then everything it writes is committed at once."""
        self.min_insync_replicas = 1
        self.log_end = log_end
        self.high_watermark = high_watermark
        self.epoch_start_offset = NO_OFFSET
        """Where the log ended when this replica took the lead."""

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.local_id

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, though never more than the partition has."""
        return min(self.min_insync_replicas, len(self.replicas))

    # ── following the metadata ───────────────────────────────────────────────────────────────────────────────

    def follow_metadata(
        self,
        leader_id: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Iterable[BrokerId],
        isr: Iterable[BrokerId],
        now_ms: int = 0,
    ) -> bool:
        """Takes over what the cluster's metadata says. True when that moved the high watermark.

        A new leader epoch forgets what followers had fetched; those in the ISR have the time of
        `replica.lag.time.max.ms` to show where they are."""
        is_new_epoch = leader_epoch > self.leader_epoch
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self._take_isr(frozenset(isr))
        if leader_id != self.local_id:
            self.commits_alone = False
            self.followers = {}
            self.epoch_start_offset = NO_OFFSET
            return False
        if is_new_epoch:
            self.followers = {}
            self.epoch_start_offset = self.log_end.offset
        before = self.followers
        self.followers = {
            replica: before.get(replica) or Follower(now_ms if replica in self.isr else LONG_AGO_MS)
            for replica in self.replicas
            if replica != self.local_id
        }
        self.commits_alone = not self.followers and self.effective_min_isr <= 1
        return self.move_high_watermark(now_ms)

    def _take_isr(self, isr: frozenset[BrokerId]) -> None:
        self.isr = self.maximal_isr = isr
        self.proposal = None

    def resign(self) -> None:
        """Nobody leads any more, as far as this replica is concerned."""
        self.leader_id = BrokerId(-1)
        self.commits_alone = False
        self.followers = {}

    # ── the high watermark ───────────────────────────────────────────────────────────────────────────────────

    def local_log_grew(self, log_end: P, now_ms: int = 0) -> bool:
        """The leader wrote up to `log_end`. True when that moved the high watermark."""
        before = self.log_end.offset
        self.log_end = log_end
        if self.commits_alone:
            self.high_watermark = log_end
            return True
        for follower in self.followers.values():
            follower.leader_grew_from(before)
        # Whoever else is in sync does not have it yet.
        return len(self.maximal_isr) <= 1 and self.move_high_watermark(now_ms)

    def follower_fetched(
        self, follower_id: BrokerId, position: P, *, log_start_offset: int, broker_epoch: int, pulse: Pulse
    ) -> bool:
        """A follower asked for what comes after `position`, so it holds all before. True when that moved the high
        watermark. Whether it may join the ISR now, `propose_joining` says."""
        follower = self.followers[follower_id]
        before = follower.end
        follower.fetched(position, log_start_offset, self.log_end.offset, broker_epoch, pulse)
        if before is not None and before.offset == position.offset:
            return False
        return self.move_high_watermark(pulse.last_ms)

    def check_follower(self, follower_id: int, broker_epoch: int, request_epoch: int) -> Error:
        """Whether a broker that says so may fetch as a follower. One that is no replica, as far as this leader has
        heard, tries again; an incarnation that was replaced has no say any more."""
        if follower_id not in self.followers:
            return Error.NOT_LEADER_OR_FOLLOWER if request_epoch == NO_EPOCH else Error.UNKNOWN_LEADER_EPOCH
        newest = self.view.active_brokers.get(follower_id, NO_BROKER_EPOCH)
        if broker_epoch != NO_BROKER_EPOCH and broker_epoch < newest:
            return Error.NOT_LEADER_OR_FOLLOWER
        return Error.NONE

    def local_log_truncated(self, log_end: P) -> None:
        self.log_end = log_end
        if self.high_watermark.offset > log_end.offset:
            self.high_watermark = log_end

    def move_high_watermark(self, now_ms: int) -> bool:
        """Moves it as far as it may go; True if that is further than before."""
        if not self.is_leader or len(self.isr) < self.effective_min_isr:
            return False
        lowest = self.log_end
        for replica, follower in self.followers.items():
            end = follower.end
            if end is not None and end.offset >= lowest.offset:
                continue
            if replica in self.maximal_isr or self._may_join_soon(replica, follower, now_ms):
                if end is None:
                    return False
                lowest = end
        if lowest.offset <= self.high_watermark.offset:
            return False
        self.high_watermark = lowest
        return True

    def _may_join_soon(self, replica: BrokerId, follower: Follower[P], now_ms: int) -> bool:
        view = self.view
        return follower.is_caught_up(self.log_end.offset, now_ms, view.replica_lag_time_max_ms) and self._is_eligible(
            replica, follower
        )

    def _is_eligible(self, replica: BrokerId, follower: Follower[P]) -> bool:
        """Whether the controller would accept it: it is alive, and what we know of it is of its present life."""
        epoch = self.view.active_brokers.get(replica)
        return epoch is not None and follower.end is not None and follower.broker_epoch in (NO_BROKER_EPOCH, epoch)

    # ── proposals ────────────────────────────────────────────────────────────────────────────────────────────

    def propose_joining(self, replica: BrokerId) -> IsrProposal | None:
        """A proposal to admit a follower, if it has what it takes: everything below the high watermark, and everything
        that the leader had when its epoch began, for some of that may be committed without the leader knowing."""
        if (
            self.proposal is not None
            or not self.is_ready_to_join(replica)
            or not self._is_eligible(replica, self.followers[replica])
        ):
            return None
        return self._propose(self.isr | {replica}, self.isr | {replica})

    def is_ready_to_join(self, replica: BrokerId) -> bool:
        """Whether a follower lacks nothing but the controller's consent."""
        if replica in self.isr:
            return False
        end = self.followers[replica].end
        return end is not None and end.offset >= self.high_watermark.offset and end.offset >= self.epoch_start_offset

    def propose_leaving(self, now_ms: int) -> IsrProposal | None:
        """A proposal to expel the followers that did not catch up for `replica.lag.time.max.ms`."""
        if self.proposal is not None or not self.is_leader:
            return None
        lagging = self.lagging(now_ms)
        return self._propose(self.isr - lagging, self.isr) if lagging else None

    def lagging(self, now_ms: int) -> frozenset[BrokerId]:
        """Who in the ISR has been behind for too long."""
        end, lag_ms_max = self.log_end.offset, self.view.replica_lag_time_max_ms
        return frozenset(
            replica
            for replica in self.isr
            if replica != self.local_id
            and not ((follower := self.followers.get(replica)) and follower.is_caught_up(end, now_ms, lag_ms_max))
        )

    def caught_up_outside(self, now_ms: int) -> list[BrokerId]:
        """Who is not in the ISR, and would not have to leave it now: more than joining it takes."""
        end, lag_ms_max = self.log_end.offset, self.view.replica_lag_time_max_ms
        return [
            replica
            for replica, follower in self.followers.items()
            if self.is_ready_to_join(replica) and follower.is_caught_up(end, now_ms, lag_ms_max)
        ]

    def is_anybody_waited_for(self) -> bool:
        """Whether anybody in the ISR lacks something, so that it may come to be expelled; or the high watermark is
        short of the log end, which may be for somebody outside the ISR who will not come after all."""
        end = self.log_end.offset
        if self.followers and self.high_watermark.offset < end:
            return True
        return any(
            each.end is None or each.end.offset != end
            for replica, each in self.followers.items()
            if replica in self.isr
        )

    def _propose(self, isr: frozenset[BrokerId], maximal_isr: frozenset[BrokerId]) -> IsrProposal:
        known = self.followers
        self.maximal_isr = maximal_isr
        self.proposal = IsrProposal(
            self.leader_epoch,
            self.partition_epoch,
            tuple(
                (replica, known[replica].broker_epoch if replica in known else NO_BROKER_EPOCH)
                for replica in self.replicas
                if replica in isr
            ),
            maximal_isr,
        )
        return self.proposal

    def proposal_accepted(
        self,
        proposal: IsrProposal,
        leader_epoch: int,
        partition_epoch: int,
        isr: Iterable[BrokerId],
        now_ms: int,
    ) -> bool:
        """The controller says what the partition is like now. True when that moved the high watermark. What is older
        than the metadata that came meanwhile changes nothing."""
        if self.proposal is not proposal or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._take_isr(frozenset(isr))
        return self.move_high_watermark(now_ms)

    def proposal_refused(self, proposal: IsrProposal, error: Error) -> bool:
        """The controller did not do it. True if it is to be asked again. If not, the high watermark may have waited
        for somebody who does not come now.

        Two errors say that the proposal was not carried out and never will be: the state is as it was. Others may be
        about a repetition of a request that did succeed: then the maximal ISR stays until the metadata tells.
        """
        if self.proposal is not proposal:
            return False
        if error in _NOT_APPLIED:
            self._take_isr(self.isr)
            return False
        return error not in _WAITS_FOR_METADATA

    # ── what clients are told ────────────────────────────────────────────────────────────────────────────────

    def require_in_sync(self) -> None:
        """An acks=all write needs `min.insync.replicas` before anything is appended, though never more than the
        partition has."""
        needed = self.effective_min_isr
        if len(self.isr) < needed:
            raise KafkaError(
                Error.NOT_ENOUGH_REPLICAS,
                f"the partition has {len(self.isr)} in-sync replicas, but min.insync.replicas requires {needed}",
            )

    def outcome(self, end_offset: int) -> Error | None:
        """What became of an acks=all write up to an offset in this epoch; None while that is open."""
        if self.high_watermark.offset < end_offset:
            return None
        if len(self.maximal_isr) < self.effective_min_isr:
            return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return Error.NONE

    def knows_its_end(self) -> bool:
        """Whether a new leader knows how far records are committed at least: its predecessor may have shown more than
        this replica's high watermark, but not more than it had when it took the lead (KIP-207)."""
        return self.high_watermark.offset >= self.epoch_start_offset

    def nearest_replica(self, rack: str, offset: int) -> BrokerId | None:
        """Who in a consumer's rack should serve it from this offset on instead of the leader (KIP-392): the follower in
        sync there that has most, and of several such the one that was caught up last. None if the leader is as near, or
        nobody there has the offset."""
        racks = self.view.racks
        if racks.get(self.local_id) == rack:
            return None
        near = [
            (follower.end.offset, follower.last_caught_up_ms, -replica)
            for replica, follower in self.followers.items()
            if replica in self.isr
            and racks.get(replica) == rack
            and follower.end is not None
            and follower.log_start_offset <= offset <= follower.end.offset
        ]
        return BrokerId(-max(near)[2]) if near else None

    def low_watermark(self, log_start_offset: int) -> int:
        """Where the log starts in every replica that lives, if it starts at `log_start_offset` here; -1 while a replica
        has not said."""
        live = self.view.live_brokers
        starts = [each.log_start_offset for replica, each in self.followers.items() if replica in live]
        return min([log_start_offset, *starts])

    def check_reader_epoch(self, reader_epoch: int) -> Error:
        """Fences a reader whose idea of the leader epoch is older or newer than ours; -1 asks for no check."""
        if reader_epoch == NO_EPOCH or reader_epoch == self.leader_epoch:
            return Error.NONE
        return Error.FENCED_LEADER_EPOCH if reader_epoch < self.leader_epoch else Error.UNKNOWN_LEADER_EPOCH
