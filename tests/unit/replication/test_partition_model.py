"""A leader, a controller and two followers in any order of events: nothing is committed that an in-sync replica, as the
controller sees it, lacks; and the high watermark never falls."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.protocol.errors import Error
from barnabas.replication.partition import BrokerId, ClusterView, IsrProposal, LeaderEpoch, PartitionState, Pulse

LAG_MS = 100
ME, ONE, TWO = BrokerId(1), BrokerId(2), BrokerId(3)
REPLICAS = (ME, ONE, TWO)
MIN_ISR = 2
FOLLOWERS = st.sampled_from([ONE, TWO])


class At(NamedTuple):
    offset: int


class LeaderAndController(RuleBasedStateMachine):
    """The controller's ISR is the truth. What the leader sends may be carried out and its answer lost."""

    def __init__(self) -> None:
        super().__init__()
        self.view = ClusterView(LAG_MS)
        self.view.active_brokers = dict.fromkeys(REPLICAS, 1)
        self.state = PartitionState(ME, At(0), At(0), self.view)
        self.state.min_insync_replicas = MIN_ISR
        self.now_ms = 1000
        self.isr = frozenset(REPLICAS)
        self.partition_epoch = 0
        self.leader_epoch = 0
        self.ends = dict.fromkeys(REPLICAS, 0)
        self.committed = 0
        self.unsent: IsrProposal | None = None
        self.answers: list[tuple[IsrProposal, Error, int, frozenset[BrokerId]]] = []
        self.follow()

    def follow(self) -> None:
        self.state.follow_metadata(
            ME, LeaderEpoch(self.leader_epoch), self.partition_epoch, REPLICAS, self.isr, self.now_ms
        )

    @rule(records=st.integers(1, 5))
    def append(self, records: int) -> None:
        self.ends[ME] += records
        self.state.local_log_grew(At(self.ends[ME]), self.now_ms)

    @rule(follower=FOLLOWERS, records=st.integers(0, 8))
    def fetch(self, follower: BrokerId, records: int) -> None:
        self.ends[follower] = min(self.ends[ME], self.ends[follower] + records)
        self.state.follower_fetched(
            follower, At(self.ends[follower]), log_start_offset=0, broker_epoch=1, pulse=Pulse(self.now_ms)
        )
        self.unsent = self.state.propose_joining(follower) or self.unsent

    @rule(passed_ms=st.integers(1, 2 * LAG_MS))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.unsent = self.state.propose_leaving(self.now_ms) or self.unsent

    @precondition(lambda self: self.unsent is not None)
    @rule(is_refused=st.booleans())
    def deliver(self, is_refused: bool) -> None:
        """The controller decides on what was proposed."""
        proposal, self.unsent = self.unsent, None
        assert proposal is not None
        if proposal.leader_epoch != self.leader_epoch:
            self.answers.append((proposal, Error.FENCED_LEADER_EPOCH, 0, frozenset()))
        elif proposal.partition_epoch != self.partition_epoch:
            self.answers.append((proposal, Error.INVALID_UPDATE_VERSION, 0, frozenset()))
        elif is_refused:
            self.answers.append((proposal, Error.INELIGIBLE_REPLICA, 0, frozenset()))
        else:
            self.partition_epoch += 1
            self.isr = frozenset(replica for replica, _ in proposal.isr)
            self.answers.append((proposal, Error.NONE, self.partition_epoch, self.isr))

    @precondition(lambda self: self.answers)
    @rule(is_lost=st.booleans())
    def answer(self, is_lost: bool) -> None:
        proposal, error, partition_epoch, isr = self.answers.pop(0)
        if is_lost:
            # Asked again, a controller that has done it sees an old partition epoch.
            error = Error.INVALID_UPDATE_VERSION if error is Error.NONE else error
        if error is Error.NONE:
            self.state.proposal_accepted(proposal, proposal.leader_epoch, partition_epoch, isr, self.now_ms)
        else:
            self.state.proposal_refused(proposal, error)

    @rule()
    def hear_metadata(self) -> None:
        if self.partition_epoch > self.state.partition_epoch:
            self.follow()

    @rule()
    def begin_epoch(self) -> None:
        """The controller elects this leader once more."""
        self.leader_epoch += 1
        self.partition_epoch += 1
        self.follow()

    @invariant()
    def nothing_is_committed_that_an_in_sync_replica_lacks(self) -> None:
        high_watermark = self.state.high_watermark.offset
        assert high_watermark >= self.committed
        if high_watermark > self.committed:
            # Replicas never lose anything here, so what is committed once stays with whoever had it.
            assert all(self.ends[replica] >= high_watermark for replica in self.isr)
            assert len(self.isr) >= MIN_ISR or len(self.state.isr) >= MIN_ISR
        self.committed = high_watermark

    @invariant()
    def whoever_is_in_sync_has_what_is_committed(self) -> None:
        assert all(self.ends[replica] >= self.committed for replica in self.isr)

    @invariant()
    def the_maximal_isr_has_everybody_who_may_be_in_sync(self) -> None:
        assert self.state.isr <= self.state.maximal_isr
        if self.state.leader_epoch == self.leader_epoch:
            assert self.isr <= self.state.maximal_isr


TestLeaderAndController = LeaderAndController.TestCase
