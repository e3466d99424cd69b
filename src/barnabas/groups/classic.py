"""A classic group: members that join, a leader among them that assigns, generations that fence off who is late.

A group rests EMPTY or STABLE. When a member comes, goes or changes its mind, it is PREPARING_REBALANCE: every member
has to join again, and is answered when all have, or when the rebalance timeout has thrown out who did not. That opens
a new generation, COMPLETING_REBALANCE: the leader knows from its answer who the members are, works out an assignment
and hands it in with its SyncGroup; the others' SyncGroups wait for it. Then the group is STABLE, and is written.

Members prove that they live by heartbeats, which also tell them that a rebalance has begun. A static member, one with
an instance id, may go away and come back under a new member id within its session, and nothing happens to the group.

The module holds the group's state and its short steps; `classic_join` has the rules of joining and
`classic_rebalance` the way from one generation to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordination.effects import Effects
from barnabas.groups import classic_answers as answers
from barnabas.groups import classic_join, classic_rebalance, classic_record
from barnabas.groups.classic_member import NEVER_MS, NO_ASSIGNMENT, NO_MEMBER_ID, ClassicMember, MemberId
from barnabas.groups.classic_members import ClassicMembers
from barnabas.groups.classic_record import CONSUMER_PROTOCOL_TYPE, NO_TIMESTAMP_MS
from barnabas.groups.classic_state import COMES_AFTER, GroupSettings, GroupState
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.coordination.effects import Record, ReplyTo
    from barnabas.groups.classic_member import ClientInfo

__all__ = ["ClassicGroup", "GroupSettings", "GroupState"]


class ClassicGroup:
    """Invariants: only members of the current generation are assigned anything; STABLE and COMPLETING_REBALANCE have
    members and a protocol that all of them support; whoever waits for a join does so in PREPARING_REBALANCE, whoever
    waits for a sync in COMPLETING_REBALANCE; in both a deadline is set, so that nobody waits for ever."""

    __slots__ = (
        "_earliest_deadline_ms",
        "_subscribed_topics",
        "delay_left_ms",
        "generation",
        "group_id",
        "has_new_members",
        "join_deadline_ms",
        "members",
        "pending_deadlines_ms",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "settings",
        "state",
        "state_timestamp_ms",
        "sync_deadline_ms",
        "unsynced",
    )

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = NO_TIMESTAMP_MS
        """When the group came to be in its state: what the expiry of an empty group's offsets counts from."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = ClassicMembers()
        self.pending_deadlines_ms: dict[MemberId, int] = {}
        """Member ids that were given out to be joined with, and until when that may happen."""
        self.unsynced: set[MemberId] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.join_deadline_ms: int = NEVER_MS
        self.sync_deadline_ms: int = NEVER_MS
        self.delay_left_ms = 0
        """By how much the first rebalance of an empty group may yet be put off while members keep coming."""
        self.has_new_members = False
        """Whether somebody came since the first rebalance was last put off."""
        self._subscribed_topics: frozenset[str] | None = None
        self._earliest_deadline_ms: int = NEVER_MS

    @classmethod
    def from_record(
        cls, group_id: str, value: m.GroupMetadataValue, settings: GroupSettings, now_ms: int
    ) -> ClassicGroup:
        """The group as it was written. Its members have a whole session from now to be heard of.

        A group that was to rebalance when it was written does so. So does one that is over the size which the settings
        now allow, which shows some members out."""
        group = cls(group_id, settings)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.state_timestamp_ms = value.current_state_timestamp
        for member in classic_record.members_of(value):
            group.members.add(member)
            group.prolong_session(member, now_ms)
        if len(group.members):
            group.state = GroupState.STABLE
            group.protocol_name = value.protocol or ""
            if value.leader is not None and value.leader in group.members:
                group.members.leader_id = MemberId(value.leader)
        group.note_subscribed_topics()
        if classic_record.has_to_rebalance(value) or len(group.members) > settings.group_max_size:
            classic_rebalance.prepare(group, now_ms, Effects())
        return group

    def record(self) -> Record:
        """The group as it is to be written when it is at rest."""
        return classic_record.group_record(self)

    # What others ask of the group.

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_stable(self) -> bool:
        return self.state is GroupState.STABLE

    def is_in_state(self, *states: GroupState) -> bool:
        return self.state in states

    @property
    def is_simple(self) -> bool:
        """Whether the group is just a name that offsets were committed under, by somebody who assigns by hand."""
        return self.protocol_type is None and self.is_empty and not self.pending_deadlines_ms

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_be_deleted(self) -> bool:
        return self.is_empty

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of the current generation; None where they cannot be known."""
        return self._subscribed_topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Consumers whose topics cannot be known may read any."""
        topics = self._subscribed_topics
        return self.uses_consumer_protocol if topics is None else topic in topics

    def describe(self) -> m.DescribeGroupsResponse.DescribedGroup:
        return answers.described(self)

    # Steps.

    def join(self, request: m.JoinGroupRequest, client: ClientInfo, reply_to: ReplyTo, now_ms: int) -> Effects:
        """Answered when all members have joined, or at once where nobody has to be waited for."""
        effects = Effects()
        if not self._accepts_session_timeout(request.session_timeout_ms):
            effects.answer(reply_to, answers.join_refused(Error.INVALID_SESSION_TIMEOUT, request.member_id))
            return effects
        if self.state_timestamp_ms == NO_TIMESTAMP_MS:
            self.state_timestamp_ms = now_ms
        classic_join.join(self, request, client, reply_to, now_ms, effects)
        return effects

    def sync(self, request: m.SyncGroupRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        """Answered with the member's assignment, as soon as the leader has handed it in."""
        effects = Effects()
        error = self._check_sync(request)
        if error is not Error.NONE:
            effects.answer(reply_to, answers.sync_refused(error))
            return effects
        member = self.members[request.member_id]
        self.expect_no_sync(member.member_id)
        if self.state is GroupState.STABLE:
            effects.answer(reply_to, answers.assigned(self, member))
            return effects
        if member.waiting_for_sync is not None:
            # The member has asked again and will not read this; but no request is left without an answer.
            effects.answer(member.waiting_for_sync, answers.sync_refused(Error.REBALANCE_IN_PROGRESS))
        member.waiting_for_sync = reply_to
        if self.members.leader_id == member.member_id:
            self._assign(request, now_ms, effects)
        return effects

    def heartbeat(self, request: m.HeartbeatRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        effects = Effects()
        error = self._check_member(request.member_id, request.group_instance_id, request.generation_id)
        if error is Error.NONE:
            self.prolong_session(self.members[request.member_id], now_ms)
            if self.state is GroupState.PREPARING_REBALANCE:
                error = Error.REBALANCE_IN_PROGRESS
        effects.answer(reply_to, m.HeartbeatResponse(error_code=error))
        return effects

    def leave(self, request: m.LeaveGroupRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        """Members go, each answered on its own. A request up to version 2, which names one, comes in as a batch."""
        effects = Effects()
        response = m.LeaveGroupResponse()
        effects.answer(reply_to, response)
        if self.state is GroupState.DEAD:
            response.error_code = Error.COORDINATOR_NOT_AVAILABLE
            return effects
        count_before = len(self.members)
        response.members = [self._left(identity, effects) for identity in request.members]
        classic_rebalance.go_on_with_fewer(self, count_before, now_ms, effects)
        return effects

    def keep_alive(self, member_id: str, now_ms: int) -> None:
        """A member that commits offsets lives."""
        member = self.members.get(member_id)
        if member is not None and self.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self.prolong_session(member, now_ms)

    def expire(self, now_ms: int) -> Effects:
        """What the passing of time brings: sessions, rebalances and member ids that have run out."""
        effects = Effects()
        if self.state is GroupState.DEAD:
            return effects
        classic_rebalance.expire(self, now_ms, effects)
        self._earliest_deadline_ms = min(
            self.join_deadline_ms,
            self.sync_deadline_ms,
            min(self.pending_deadlines_ms.values(), default=NEVER_MS),
            min((member.session_deadline_ms for member in self.members), default=NEVER_MS),
        )
        return effects

    def abandon(self, error: Error) -> Effects:
        """This node does not coordinate the group any more: whoever waits is told so. Nothing is written."""
        effects = Effects()
        for member in self.members:
            classic_rebalance.answer_join(self, member, answers.join_refused(error, member.member_id), effects)
            classic_rebalance.answer_sync(member, answers.sync_refused(error), effects)
        self.state = GroupState.DEAD
        self._earliest_deadline_ms = NEVER_MS
        return effects

    # Checks.

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> Error:
        """Whether an offset commit may be taken. Who is in no group may commit while the group is empty."""
        if self.state is not GroupState.EMPTY and generation < 0 and not member_id and instance_id is None:
            return Error.COORDINATOR_NOT_AVAILABLE if self.state is GroupState.DEAD else Error.UNKNOWN_MEMBER_ID
        error = self.check_transactional_commit(member_id, instance_id, generation)
        if error is Error.NONE and self.state is GroupState.COMPLETING_REBALANCE:
            return Error.REBALANCE_IN_PROGRESS
        return error

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> Error:
        """The same for a producer's transaction, which may leave out who its consumer is, and which a rebalance does
        not hold up."""
        if self.state is GroupState.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and (self.state is GroupState.EMPTY or (not member_id and instance_id is None)):
            return Error.NONE
        return self._check_member(member_id, instance_id, generation)

    def check_identity(self, member_id: str, instance_id: str | None) -> Error:
        """Whether there is such a member, and whether it is the one that its instance id stands for."""
        if instance_id is not None:
            current = self.members.of_instance(instance_id)
            if current is None:
                return Error.UNKNOWN_MEMBER_ID
            if current.member_id != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self.members else Error.UNKNOWN_MEMBER_ID

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> Error:
        if self.state is GroupState.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        error = self.check_identity(member_id, instance_id)
        if error is Error.NONE and generation != self.generation:
            return Error.ILLEGAL_GENERATION
        return error

    def _check_sync(self, request: m.SyncGroupRequest) -> Error:
        error = self._check_member(request.member_id, request.group_instance_id, request.generation_id)
        if error is not Error.NONE:
            return error
        if request.protocol_type not in (None, self.protocol_type):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol_name):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        return Error.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else Error.NONE

    def _accepts_session_timeout(self, session_timeout_ms: int) -> bool:
        low, high = self.settings.group_min_session_timeout_ms, self.settings.group_max_session_timeout_ms
        return low <= session_timeout_ms <= high

    # Changes that the steps are made of.

    def move_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in COMES_AFTER[state], f"group {self.group_id}: from {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def note_subscribed_topics(self) -> None:
        self._subscribed_topics = classic_record.subscribed_topics(self)

    def expect_no_sync(self, member_id: MemberId) -> None:
        """The member has asked for its assignment, or will not."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.sync_deadline_ms = NEVER_MS

    def prolong_session(self, member: ClassicMember, now_ms: int) -> None:
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        self.wake_by(member.session_deadline_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `expire`. It may come before anything is due, as heartbeats put deadlines off without it being
        looked up anew, but it is never too late."""
        return None if self._earliest_deadline_ms == NEVER_MS else self._earliest_deadline_ms

    def wake_by(self, deadline_ms: int) -> None:
        if deadline_ms < self._earliest_deadline_ms:
            self._earliest_deadline_ms = deadline_ms

    def _assign(self, request: m.SyncGroupRequest, now_ms: int, effects: Effects) -> None:
        """The leader's choice: each member gets what it was given, or nothing, and the group is stable."""
        assignments = {given.member_id: bytes(given.assignment) for given in request.assignments}
        for member in self.members:
            member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        self.move_to(GroupState.STABLE, now_ms)
        effects.write(self.record())
        for member in self.members:
            if classic_rebalance.answer_sync(member, answers.assigned(self, member), effects):
                self.prolong_session(member, now_ms)

    def _left(
        self, identity: m.LeaveGroupRequest.MemberIdentity, effects: Effects
    ) -> m.LeaveGroupResponse.MemberResponse:
        return m.LeaveGroupResponse.MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=self._leave(identity.member_id, identity.group_instance_id, effects),
        )

    def _leave(self, member_id: str, instance_id: str | None, effects: Effects) -> Error:
        """An administrator names a static member by its instance id alone."""
        if member_id == NO_MEMBER_ID:
            named = self.members.of_instance(instance_id)
            if named is None:
                return Error.UNKNOWN_MEMBER_ID
            member_id = named.member_id
        elif self.pending_deadlines_ms.pop(MemberId(member_id), None) is not None:
            return Error.NONE
        error = self.check_identity(member_id, instance_id)
        if error is Error.NONE:
            classic_rebalance.remove(self, self.members[member_id], effects)
        return error
