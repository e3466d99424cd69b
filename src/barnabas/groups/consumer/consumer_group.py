"""The state of a consumer group (KIP-848): its members, their subscriptions, their targets and what they own.

Three things follow each other, each with an epoch. The group epoch is bumped when a member joins or leaves, or a
subscription or topic changes. The target assignment, made for a group epoch by an assignor on the broker, says which
member shall read which partitions. Each member is brought to its target on its own, by the answers to its heartbeats,
and gets a partition only when no other member owns it any more.

All state that is written is changed by `replay` alone, both by the steps of a running group (`write`) and by the log at
a restart. So a group that is loaded from its log equals the one that wrote it, except for deadlines.

The steps are in `heartbeat` and `fencing`; this module has only the state.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.groups.classic.classic_members import NEVER_MS
from barnabas.groups.consumer import consumer_records
from barnabas.groups.consumer.consumer_member import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from barnabas.groups.consumer.step_context import NO_CHANGE_SEEN
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.coordination.effects import Effects, Record, ReplyTo
    from barnabas.groups.assignors import Partitions
    from barnabas.groups.classic.classic_group import ClassicGroup
    from barnabas.groups.consumer.consumer_member import Owned
    from barnabas.groups.consumer.consumer_records import ResolvedRegex
    from barnabas.protocol.uuids import Uuid

FIRST_EPOCH: Final = 1
"""The epoch of a group, and of its empty target assignment, before any record of them is written."""

QUIET_MS_MAX: Final = 1_000
"""The longest that a group in which members keep joining and leaving waits before it is assigned."""

NOTHING: Final[Partitions] = {}


class ConsumerGroupState(Enum):
    """The names are those that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """There is no target assignment for the group epoch yet."""
    RECONCILING = "Reconciling"
    """Not all members have reached their target."""
    STABLE = "Stable"
    DEAD = "Dead"


class RebalanceDeadline(NamedTuple):
    """When a member is fenced that has not revoked partitions, unless it has left this epoch by then."""

    at_ms: int
    epoch: int


class WaitingJoin(NamedTuple):
    """A join that is answered when there is an assignment for it, or at this time at the latest."""

    member_id: str
    reply_to: ReplyTo
    until_ms: int


class ConsumerGroup:
    """Invariants: a partition is owned by at most one member, and `_owners` has it; `static_members` has every static
    member; only members have a target, a session and deadlines; every resolved regular expression has a subscriber."""

    __slots__ = (
        "_assignor_votes",
        "_earliest_deadline_ms",
        "_owners",
        "_regex_counts",
        "_topic_counts",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "epoch",
        "first_change_ms",
        "group_id",
        "has_lost_members",
        "has_partition_metadata",
        "hashed_at_change",
        "is_dead",
        "is_resolving_regexes",
        "last_change_ms",
        "members",
        "metadata_hash",
        "rebalance_deadlines",
        "rejoin_deadlines_ms",
        "resolved_regexes",
        "session_deadlines_ms",
        "static_members",
        "successor",
        "sync_deadlines_ms",
        "targets",
        "waiting_joins",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.has_partition_metadata = False
        """Whether there is a record of the group's topics from a Kafka before 4.1, which is to be deleted."""
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.targets: dict[str, Partitions] = {}
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        self.is_dead = False
        """Whether all of its records are deleted."""
        self.is_resolving_regexes = False
        """Whether its regular expressions are being resolved."""
        self.first_change_ms = 0
        """When the current series of members that join or leave, and are not assigned yet, began."""
        self.last_change_ms = 0
        self.waiting_joins: list[WaitingJoin] = []
        """In order of arrival."""
        self.has_lost_members = False
        """Whether members may have left since `waiting_joins` was last checked."""
        self.hashed_at_change = NO_CHANGE_SEEN
        """The last change of topics that `metadata_hash` was checked against."""
        self.session_deadlines_ms: dict[str, int] = {}
        self.rebalance_deadlines: dict[str, RebalanceDeadline] = {}
        self.rejoin_deadlines_ms: dict[str, int] = {}
        """For classic members that were told to rejoin and have not yet."""
        self.sync_deadlines_ms: dict[str, int] = {}
        """For classic members that have joined and not sent SyncGroup yet."""
        self.successor: ClassicGroup | None = None
        """The group that it was downgraded to."""
        self._owners: dict[Uuid, dict[int, str]] = {}
        self._topic_counts: dict[str, int] = {}
        self._regex_counts: dict[str, int] = {}
        self._assignor_votes: dict[str, int] = {}
        self._earliest_deadline_ms: int = NEVER_MS

    # Queries.

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if not self.is_assigned:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_assigned(self) -> bool:
        """Whether there is a target assignment for the group epoch."""
        return self.assignment_epoch >= self.epoch

    @property
    def is_empty(self) -> bool:
        return not self.members

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def owner_of(self, topic_id: Uuid, partition: int) -> str | None:
        """The member that may read a partition now, even if it is to revoke it."""
        return self._owners.get(topic_id, {}).get(partition)

    def subscribed_topics(self) -> set[str]:
        """All topics that a member is subscribed to, by name or by a regular expression."""
        return set(self._topic_counts).union(*(resolved.topics for resolved in self.resolved_regexes.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        if topic in self._topic_counts:
            return True
        return any(topic in resolved.topics for resolved in self.resolved_regexes.values())

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that one member is subscribed to. A regular expression that is not resolved yet matches none."""
        resolved = None if member.regex is None else self.resolved_regexes.get(member.regex)
        return member.subscribed_topics if resolved is None else member.subscribed_topics | resolved.topics

    @property
    def subscribed_regexes(self) -> Mapping[str, int]:
        """How many members are subscribed to each regular expression."""
        return self._regex_counts

    def preferred_assignor(self, assignors: Iterable[str]) -> str:
        """The assignor that most members name; the first one in case of a tie."""
        return max(assignors, key=lambda name: self._assignor_votes.get(name, 0))

    # Deadlines.

    @property
    def next_deadline_ms(self) -> int | None:
        """When to check for missed deadlines. It may be too early, as heartbeats extend deadlines, but never too
        late."""
        return None if self._earliest_deadline_ms == NEVER_MS else self._earliest_deadline_ms

    def wake_by(self, deadline_ms: int) -> None:
        self._earliest_deadline_ms = min(self._earliest_deadline_ms, deadline_ms)

    def keep_alive(self, member_id: str, until_ms: int) -> None:
        self.session_deadlines_ms[member_id] = until_ms
        self.wake_by(until_ms)

    def expect_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        deadline = RebalanceDeadline(now_ms + member.rebalance_timeout_ms, member.epoch)
        self.rebalance_deadlines[member.member_id] = deadline
        self.wake_by(deadline.at_ms)

    def expect_rejoin(self, member_id: str, by_ms: int) -> None:
        self.rejoin_deadlines_ms[member_id] = by_ms
        self.wake_by(by_ms)

    def expect_sync(self, member_id: str, by_ms: int) -> None:
        self.sync_deadlines_ms[member_id] = by_ms
        self.wake_by(by_ms)

    def note_earliest_deadline(self) -> None:
        self._earliest_deadline_ms = min(
            min(self.session_deadlines_ms.values(), default=NEVER_MS),
            min((deadline.at_ms for deadline in self.rebalance_deadlines.values()), default=NEVER_MS),
            min(self.rejoin_deadlines_ms.values(), default=NEVER_MS),
            min(self.sync_deadlines_ms.values(), default=NEVER_MS),
            min((waiting.until_ms for waiting in self.waiting_joins), default=NEVER_MS),
        )

    def note_change(self, now_ms: int) -> None:
        """A member joins or leaves; to be called before that is written. After a quiet time a new series of changes
        begins."""
        if self.is_assigned or now_ms - self.last_change_ms >= QUIET_MS_MAX:
            self.first_change_ms = now_ms
        self.last_change_ms = now_ms

    def loaded(self, session_timeout_ms: int, now_ms: int) -> None:
        """All of the log is replayed: sessions begin, and members that have to revoke partitions have all their time
        for it."""
        for member in self.members.values():
            self.keep_alive(member.member_id, now_ms + session_timeout_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.expect_revocation(member, now_ms)

    # Changes.

    def write(self, record: Record, effects: Effects) -> None:
        effects.write(record)
        self.replay(record)

    def replay(self, record: Record) -> None:
        key = record.key
        value: Any = record.value  # of the type that goes with the key
        if isinstance(key, m.ConsumerGroupCurrentMemberAssignmentKey):
            self._replay_current_assignment(key.member_id, value)
        elif isinstance(key, m.ConsumerGroupTargetAssignmentMemberKey):
            self._replay_target(key.member_id, value)
        elif isinstance(key, m.ConsumerGroupMemberMetadataKey):
            self._replay_member(key.member_id, value)
        elif isinstance(key, m.ConsumerGroupMetadataKey):
            self._replay_group(value)
        elif isinstance(key, m.ConsumerGroupTargetAssignmentMetadataKey):
            self._replay_target_epoch(value)
        elif isinstance(key, m.ConsumerGroupRegularExpressionKey):
            self._replay_regex(key.regular_expression, value)
        else:
            assert isinstance(key, m.ConsumerGroupPartitionMetadataKey), key
            self.has_partition_metadata = value is not None

    def _replay_group(self, value: m.ConsumerGroupMetadataValue | None) -> None:
        if value is None:
            self.is_dead = True
        else:
            self.epoch = value.epoch
            self.metadata_hash = value.metadata_hash

    def _replay_member(self, member_id: str, value: m.ConsumerGroupMemberMetadataValue | None) -> None:
        if value is not None:
            self._put(consumer_records.with_metadata(self._member(member_id), value))
        elif member_id in self.members:
            self._remove(member_id)

    def _replay_target_epoch(self, value: m.ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        if value is None:
            self.assignment_epoch, self.assignment_timestamp_ms = LEAVE_EPOCH, 0
        else:
            self.assignment_epoch, self.assignment_timestamp_ms = value.assignment_epoch, value.assignment_timestamp

    def _replay_target(self, member_id: str, value: m.ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = consumer_records.target_of(value)

    def _replay_current_assignment(
        self, member_id: str, value: m.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is not None:
            self._put(consumer_records.with_current_assignment(self._member(member_id), value))
        elif (member := self.members.get(member_id)) is not None:
            gone = member._replace(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, pending_revocation={})
            self._put(gone)

    def _replay_regex(self, regex: str, value: m.ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.resolved_regexes.pop(regex, None)
        else:
            self.resolved_regexes[regex] = consumer_records.resolved_of(value)

    def _member(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id)

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._count(before, member)
        if before is not None:
            self._release(before)
            self._forget_instance(before)
        self._own(member, member.assigned)
        self._own(member, member.pending_revocation)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if not member.uses_classic_protocol:
            self.rejoin_deadlines_ms.pop(member.member_id, None)
            self.sync_deadlines_ms.pop(member.member_id, None)
        if member.uses_classic_protocol or member.epoch == STATIC_LEAVE_EPOCH:
            self.has_lost_members = True

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self.has_lost_members = True
        self._count(member, None)
        self._release(member)
        self._forget_instance(member)
        self.session_deadlines_ms.pop(member_id, None)
        self.rebalance_deadlines.pop(member_id, None)
        self.rejoin_deadlines_ms.pop(member_id, None)
        self.sync_deadlines_ms.pop(member_id, None)

    def _count(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Keeps count of the subscriptions and preferred assignors of members."""
        if before is not None:
            _add(self._topic_counts, before.subscribed_topics, -1)
            _add(self._regex_counts, _named(before.regex), -1)
            _add(self._assignor_votes, _named(before.server_assignor), -1)
        if after is not None:
            _add(self._topic_counts, after.subscribed_topics, 1)
            _add(self._regex_counts, _named(after.regex), 1)
            _add(self._assignor_votes, _named(after.server_assignor), 1)

    def _forget_instance(self, member: ConsumerMember) -> None:
        """An instance id that another member has taken over already stays with that one."""
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _own(self, member: ConsumerMember, owned: Owned) -> None:
        for topic_id, partitions in owned.items():
            owners = self._owners.setdefault(topic_id, {})
            for partition in partitions:
                owners[partition] = member.member_id

    def _release(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)


def _named(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


def _add(counts: dict[str, int], names: Iterable[str], change: int) -> None:
    for name in names:
        count = counts.get(name, 0) + change
        if count:
            counts[name] = count
        else:
            del counts[name]
