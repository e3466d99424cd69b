"""A classic group: members that join, a leader among them that assigns, and generations that fence latecomers.

A group at rest is EMPTY or STABLE. When a member joins, leaves or changes its subscription, the group is
PREPARING_REBALANCE: every member has to join again, and is answered when all have, or when the rebalance timeout has
removed those that have not. That starts a new generation, COMPLETING_REBALANCE: the answer tells the leader who the
members are; it computes an assignment and sends it with its SyncGroup, for which the SyncGroups of the others wait.
Then the group is STABLE, and is written to the log.

Members stay in the group by heartbeats, whose answers also tell them that a rebalance has begun. A static member, one
with an instance id, may restart under a new member id within its session without any effect on the group.

This module has the group's state and its short steps; `joining` has the rules of JoinGroup, and `rebalancing` the way
from one generation to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordination.effects import Effects
from barnabas.groups.classic import classic_answers as answers
from barnabas.groups.classic import classic_records, joining, rebalancing
from barnabas.groups.classic.classic_members import (
    NEVER_MS,
    NO_ASSIGNMENT,
    NO_MEMBER_ID,
    ClassicMember,
    ClassicMembers,
    MemberId,
)
from barnabas.groups.classic.classic_records import CONSUMER_PROTOCOL_TYPE, NO_TIMESTAMP_MS
from barnabas.groups.classic.rebalancing import VALID_PREVIOUS_STATES, ClassicGroupSettings, ClassicGroupState
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.coordination.effects import Record, ReplyTo
    from barnabas.groups.classic.classic_members import ClientInfo

__all__ = ["ClassicGroup", "ClassicGroupSettings", "ClassicGroupState"]


class ClassicGroup:
    """Invariants: only members of the current generation have an assignment; STABLE and COMPLETING_REBALANCE groups
    have members, and a protocol that all of them support; JoinGroup requests wait only in PREPARING_REBALANCE,
    SyncGroup requests only in COMPLETING_REBALANCE; both states have a deadline, so that no request waits for ever."""

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

    def __init__(self, group_id: str, settings: ClassicGroupSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        self.state_timestamp_ms = NO_TIMESTAMP_MS
        """When the group entered its state. The offsets of an empty group expire counted from here."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = ClassicMembers()
        self.pending_deadlines_ms: dict[MemberId, int] = {}
        """Member ids that were issued to clients that have yet to join with them, and until when they may."""
        self.unsynced: set[MemberId] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.join_deadline_ms: int = NEVER_MS
        self.sync_deadline_ms: int = NEVER_MS
        self.delay_left_ms = 0
        """For how much longer the first rebalance of an empty group may be delayed while members keep joining."""
        self.has_new_members = False
        """Whether a member has joined since the first rebalance was last delayed."""
        self._subscribed_topics: frozenset[str] | None = None
        self._earliest_deadline_ms: int = NEVER_MS

    @classmethod
    def from_record(
        cls, group_id: str, value: m.GroupMetadataValue, settings: ClassicGroupSettings, now_ms: int
    ) -> ClassicGroup:
        """The group as it was written. The sessions of its members begin anew.

        A group that was about to rebalance when it was written does so now. So does a group that exceeds the configured
        size, which removes some members."""
        group = cls(group_id, settings)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.state_timestamp_ms = value.current_state_timestamp
        for member in classic_records.members_of(value):
            group.members.add(member)
            group.prolong_session(member, now_ms)
        if len(group.members):
            group.state = ClassicGroupState.STABLE
            group.protocol_name = value.protocol or ""
            if value.leader is not None and value.leader in group.members:
                group.members.leader_id = MemberId(value.leader)
        group.note_subscribed_topics()
        if classic_records.has_to_rebalance(value) or len(group.members) > settings.group_max_size:
            rebalancing.prepare(group, now_ms, Effects())
        return group

    def record(self) -> Record:
        """The group as it is written when it is at rest."""
        return classic_records.group_record(self)

    # Queries.

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def is_stable(self) -> bool:
        return self.state is ClassicGroupState.STABLE

    def is_in_state(self, *states: ClassicGroupState) -> bool:
        return self.state in states

    @property
    def is_simple(self) -> bool:
        """Whether the group is only a name for offsets, committed by a consumer that assigns its partitions itself."""
        return self.protocol_type is None and self.is_empty and not self.pending_deadlines_ms

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_be_deleted(self) -> bool:
        return self.is_empty

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of the current generation; None if they are unknown."""
        return self._subscribed_topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Consumers whose topics are unknown may be subscribed to any."""
        topics = self._subscribed_topics
        return self.uses_consumer_protocol if topics is None else topic in topics

    def describe(self) -> m.DescribeGroupsResponse.DescribedGroup:
        return answers.described(self)

    # Steps.

    def join(self, request: m.JoinGroupRequest, client: ClientInfo, reply_to: ReplyTo, now_ms: int) -> Effects:
        """Answered when all members have joined, or at once if there is nobody to wait for."""
        effects = Effects()
        if not self.settings.accepts_session_timeout(request.session_timeout_ms):
            effects.answer(reply_to, answers.join_refused(Error.INVALID_SESSION_TIMEOUT, request.member_id))
            return effects
        if self.state_timestamp_ms == NO_TIMESTAMP_MS:
            self.state_timestamp_ms = now_ms
        joining.join(self, request, client, reply_to, now_ms, effects)
        return effects

    def sync(self, request: m.SyncGroupRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        """Answered with the member's assignment, once the leader has sent it."""
        effects = Effects()
        error = self._check_sync(request)
        if error is not Error.NONE:
            effects.answer(reply_to, answers.sync_refused(error))
            return effects
        member = self.members[request.member_id]
        self.expect_no_sync(member.member_id)
        if self.state is ClassicGroupState.STABLE:
            effects.answer(reply_to, answers.assigned(self, member))
            return effects
        if member.waiting_for_sync is not None:
            # The member has sent a new request and will ignore this answer, but every request is answered.
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
            if self.state is ClassicGroupState.PREPARING_REBALANCE:
                error = Error.REBALANCE_IN_PROGRESS
        effects.answer(reply_to, m.HeartbeatResponse(error_code=error))
        return effects

    def leave(self, request: m.LeaveGroupRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        """Removes members, with a result for each. Requests up to version 2, which name one member, come as a batch of
        one."""
        effects = Effects()
        response = m.LeaveGroupResponse()
        effects.answer(reply_to, response)
        if self.state is ClassicGroupState.DEAD:
            response.error_code = Error.COORDINATOR_NOT_AVAILABLE
            return effects
        response.members = [self._left(identity, effects) for identity in request.members]
        if any(each.error_code == Error.NONE for each in response.members):
            # As with Kafka, that includes those who had only been given an id to join with.
            rebalancing.go_on_without_some(self, now_ms, effects)
        return effects

    def keep_alive(self, member_id: str, now_ms: int) -> None:
        """A commit counts as a heartbeat."""
        member = self.members.get(member_id)
        if member is not None and self.state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE):
            self.prolong_session(member, now_ms)

    def expire(self, now_ms: int) -> Effects:
        """Handles sessions, rebalances and member ids that have expired."""
        effects = Effects()
        if self.state is ClassicGroupState.DEAD:
            return effects
        rebalancing.expire(self, now_ms, effects)
        self._earliest_deadline_ms = min(
            self.join_deadline_ms,
            self.sync_deadline_ms,
            min(self.pending_deadlines_ms.values(), default=NEVER_MS),
            min((member.session_deadline_ms for member in self.members), default=NEVER_MS),
        )
        return effects

    def abandon(self, error: Error) -> Effects:
        """The group is no longer coordinated here: waiting requests are answered with the error. Nothing is written."""
        effects = Effects()
        for member in self.members:
            rebalancing.answer_join(self, member, answers.join_refused(error, member.member_id), effects)
            rebalancing.answer_sync(member, answers.sync_refused(error), effects)
        self.state = ClassicGroupState.DEAD
        self._earliest_deadline_ms = NEVER_MS
        return effects

    # Checks.

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> Error:
        """Whether an offset commit is allowed. A client that is not a member may commit while the group is empty."""
        if self.state is not ClassicGroupState.EMPTY and generation < 0 and not member_id and instance_id is None:
            return Error.COORDINATOR_NOT_AVAILABLE if self.state is ClassicGroupState.DEAD else Error.UNKNOWN_MEMBER_ID
        error = self.check_transactional_commit(member_id, instance_id, generation)
        if error is Error.NONE and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            return Error.REBALANCE_IN_PROGRESS
        return error

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> Error:
        """The same for a commit in a transaction, which need not name a member, and is allowed during a rebalance."""
        if self.state is ClassicGroupState.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and (self.state is ClassicGroupState.EMPTY or (not member_id and instance_id is None)):
            return Error.NONE
        return self._check_member(member_id, instance_id, generation)

    def check_identity(self, member_id: str, instance_id: str | None) -> Error:
        """Whether the member exists, and owns the instance id that it names."""
        if instance_id is not None:
            current = self.members.of_instance(instance_id)
            if current is None:
                return Error.UNKNOWN_MEMBER_ID
            if current.member_id != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self.members else Error.UNKNOWN_MEMBER_ID

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> Error:
        if self.state is ClassicGroupState.DEAD:
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
        return Error.REBALANCE_IN_PROGRESS if self.state is ClassicGroupState.PREPARING_REBALANCE else Error.NONE

    # Changes, for the steps here and in `joining` and `rebalancing`.

    def move_to(self, state: ClassicGroupState, now_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], (
            f"group {self.group_id} cannot go from {self.state} to {state}"
        )
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def note_subscribed_topics(self) -> None:
        self._subscribed_topics = classic_records.subscribed_topics(self)

    def expect_no_sync(self, member_id: MemberId) -> None:
        """The member has sent SyncGroup, or will not."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.sync_deadline_ms = NEVER_MS

    def prolong_session(self, member: ClassicMember, now_ms: int) -> None:
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        self.wake_by(member.session_deadline_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `expire`. It may be too early, as heartbeats extend deadlines without updating it, but never too
        late."""
        return None if self._earliest_deadline_ms == NEVER_MS else self._earliest_deadline_ms

    def wake_by(self, deadline_ms: int) -> None:
        if deadline_ms < self._earliest_deadline_ms:
            self._earliest_deadline_ms = deadline_ms

    def _assign(self, request: m.SyncGroupRequest, now_ms: int, effects: Effects) -> None:
        """Takes the leader's assignment; members that it leaves out get nothing. The group is stable from here on."""
        assignments = {given.member_id: bytes(given.assignment) for given in request.assignments}
        for member in self.members:
            member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        self.move_to(ClassicGroupState.STABLE, now_ms)
        effects.write(self.record(), self._forget_assignment)
        for member in self.members:
            if rebalancing.answer_sync(member, answers.assigned(self, member), effects):
                self.prolong_session(member, now_ms)

    def _forget_assignment(self, _error: Error, now_ms: int) -> Effects:
        """The leader's assignment could not be written: the members have to join again."""
        effects = Effects()
        if self.state is ClassicGroupState.STABLE:
            rebalancing.prepare(self, now_ms, effects)
        return effects

    def _left(
        self, identity: m.LeaveGroupRequest.MemberIdentity, effects: Effects
    ) -> m.LeaveGroupResponse.MemberResponse:
        return m.LeaveGroupResponse.MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=self._leave(identity.member_id, identity.group_instance_id, effects),
        )

    def _leave(self, member_id: str, instance_id: str | None, effects: Effects) -> Error:
        """An administrator may name a static member by its instance id alone."""
        if member_id == NO_MEMBER_ID:
            named = self.members.of_instance(instance_id)
            if named is None:
                return Error.UNKNOWN_MEMBER_ID
            member_id = named.member_id
        elif self.pending_deadlines_ms.pop(MemberId(member_id), None) is not None:
            return Error.NONE
        error = self.check_identity(member_id, instance_id)
        if error is Error.NONE:
            rebalancing.remove(self, self.members[member_id], effects)
        return error
