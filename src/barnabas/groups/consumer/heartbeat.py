"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays and leaves, all by one request.

A heartbeat says what has changed for the member, and is answered with what has changed for it in the group. It is
checked first, and changes nothing if it is refused. Then the member is written as it is now; the group epoch is bumped
if that, or a change of a topic, calls for a new assignment; a target assignment is made for the epoch; and the member
takes its next step towards it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups.consumer import consumer_records, fencing, regex_subscriptions
from barnabas.groups.consumer.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
)
from barnabas.groups.consumer.reconciliation import Target, reconcile
from barnabas.groups.consumer.regex_subscriptions import RegexChange
from barnabas.groups.consumer.target_assignment import topic_ids, update_target
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.coordination.effects import Effects
    from barnabas.groups.classic.classic_members import ClientInfo
    from barnabas.groups.consumer.consumer_group import ConsumerGroup
    from barnabas.groups.consumer.consumer_member import Owned
    from barnabas.groups.consumer.reconciliation import Reported
    from barnabas.groups.consumer.step_context import StepContext

UNCHANGED_REBALANCE_TIMEOUT: Final = -1
MEMBERS_NAME_THEMSELVES_FROM: Final = 1
"""The first version in which members generate their own ids."""


# Checks, in Kafka's order and with its messages.


def check_request(request: m.ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError for a request that is invalid in any state of the group."""
    epoch = request.member_epoch
    if version >= MEMBERS_NAME_THEMSELVES_FROM or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _require_text(request.member_id, "MemberId")
    _require_text(request.group_id, "GroupId")
    _require_text(request.instance_id, "InstanceId")
    _require_text(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise KafkaError(Error.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise KafkaError(Error.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = ", ".join(assignors)
        message = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}."
        raise KafkaError(Error.UNSUPPORTED_ASSIGNOR, message)


def _require_text(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise KafkaError(Error.INVALID_REQUEST, f"{name} can't be empty.")


def _check_join(request: m.ConsumerGroupHeartbeatRequest) -> None:
    if _has_lost_its_epoch(request):
        message = (
            f"Member {request.member_id} sent epoch 0 without joining. It must abandon all its partitions and rejoin."
        )
        raise KafkaError(Error.FENCED_MEMBER_EPOCH, message)
    if request.rebalance_timeout_ms == UNCHANGED_REBALANCE_TIMEOUT:
        raise KafkaError(Error.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise KafkaError(Error.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        raise KafkaError(Error.INVALID_REQUEST, message)


def _has_lost_its_epoch(request: m.ConsumerGroupHeartbeatRequest) -> bool:
    """Whether this is the heartbeat of a member, with epoch 0 but without any of the other fields of a join.

    librdkafka 2.16 sends it: when the application unsubscribes while a revocation is pending, the client
    leaves the group, resets its epoch and carries on as if it were a member. Kafka answers INVALID_REQUEST, which is
    fatal to the consumer. An error that tells it to rejoin lets it recover. No other client is affected, because a real
    join always carries both fields."""
    is_partial = request.rebalance_timeout_ms == UNCHANGED_REBALANCE_TIMEOUT and request.topic_partitions is None
    return is_partial and bool(request.member_id)


def check_heartbeat(group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest, now: StepContext) -> None:
    """Raises KafkaError for a heartbeat that the group refuses, including one by which a member joins."""
    if len(group.members) >= now.settings.max_size and request.member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {now.settings.max_size} members."
        raise KafkaError(Error.GROUP_MAX_SIZE_REACHED, message)
    joins = request.member_epoch == JOIN_EPOCH
    if request.instance_id is not None:
        known = _check_instance(group, request)
    else:
        known = group.members.get(request.member_id)
        if known is None and not joins:
            raise _unknown(group, request.member_id)
    if known is not None and not joins:
        _check_epoch(known, request)
    if (refused := regex_subscriptions.refusal_of(group, request.subscribed_topic_regex)) is not None:
        raise refused


def _check_instance(group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest) -> ConsumerMember | None:
    """A static member keeps its instance id until it leaves: another member with the same one is refused."""
    assert request.instance_id is not None
    current = group.static_member(request.instance_id)
    if request.member_epoch != JOIN_EPOCH:
        return _instance(group, request)
    if current is not None and not current.uses_classic_protocol and current.epoch != STATIC_LEAVE_EPOCH:
        message = (
            f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group because "
            f"the instance id is owned by {current.member_id} member."
        )
        raise KafkaError(Error.UNRELEASED_INSTANCE_ID, message)
    if current is not None and current.member_id != request.member_id and request.member_id in group.members:
        message = f"Member {request.member_id} is already in group {group.group_id} with another instance id."
        raise KafkaError(Error.INVALID_REQUEST, message)
    return current


def _instance(group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    assert request.instance_id is not None
    current = group.static_member(request.instance_id)
    if current is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if current.member_id != request.member_id:
        message = (
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member "
            f"{current.member_id}."
        )
        raise KafkaError(Error.FENCED_INSTANCE_ID, message)
    return current


def _check_epoch(member: ConsumerMember, request: m.ConsumerGroupHeartbeatRequest) -> None:
    """A member may be one epoch behind, because it missed an answer, if it owns only partitions assigned to it."""
    received = request.member_epoch
    is_behind = received == member.previous_epoch and _owns_no_more_than(request, member.assigned)
    if received > member.epoch or (received < member.epoch and not is_behind):
        comparison = "greater" if received > member.epoch else "smaller"
        message = (
            f"The consumer group member has a {comparison} member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )
        raise KafkaError(Error.FENCED_MEMBER_EPOCH, message)
    if member.state is MemberState.UNKNOWN and request.topic_partitions != []:
        message = (
            "The consumer group member is in an unknown state. The member must abandon all its partitions and rejoin."
        )
        raise KafkaError(Error.FENCED_MEMBER_EPOCH, message)


def _owns_no_more_than(request: m.ConsumerGroupHeartbeatRequest, assigned: Owned) -> bool:
    if request.topic_partitions is None:
        return False
    return all(
        topic.topic_id in assigned and assigned[topic.topic_id].keys() >= set(topic.partitions)
        for topic in request.topic_partitions
    )


def _unknown(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


# Steps. They follow the checks, and refuse nothing.


def beat(
    group: ConsumerGroup,
    request: m.ConsumerGroupHeartbeatRequest,
    client: ClientInfo,
    now: StepContext,
    effects: Effects,
) -> m.ConsumerGroupHeartbeatResponse:
    """One heartbeat of a member, which may be the one by which it joins."""
    before = _member_for(group, request, client, effects)
    if before.member_id not in group.members:
        group.note_change(now.now_ms)
    after = _updated(before, request, client)
    has_new_subscription = note(group, before, after, now, effects)
    update_target(group, now, effects)
    member = move_on(
        group, after.member_id, request.topic_partitions, now, effects, has_new_subscription=has_new_subscription
    )
    response = _answer(group, member, now)
    if _is_full(request) or before.assigned != member.assigned:
        response.assignment = _assignment(member)
    regex_subscriptions.refresh(group, now, effects)
    return response


def welcome(
    group: ConsumerGroup, member_id: str, now: StepContext, effects: Effects
) -> m.ConsumerGroupHeartbeatResponse:
    """The answer to a member whose join has waited for an assignment, and which owns nothing yet."""
    member = move_on(group, member_id, [], now, effects, has_new_subscription=False)
    response = _answer(group, member, now)
    response.assignment = _assignment(member)
    return response


def leave(
    group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest, now: StepContext, effects: Effects
) -> m.ConsumerGroupHeartbeatResponse:
    """A member leaves, a static one perhaps only for a while. Raises KafkaError if it is not in the group."""
    if request.instance_id is not None:
        member = _instance(group, request)
    elif request.member_id in group.members:
        member = group.members[request.member_id]
    else:
        raise _unknown(group, request.member_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        away = member._replace(
            epoch=STATIC_LEAVE_EPOCH,
            assigned={topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()},
            pending_revocation={},
        )
        group.write(consumer_records.current_assignment(group.group_id, away), effects)
    else:
        fencing.fence(group, [member], now, effects)
    return m.ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def _member_for(
    group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest, client: ClientInfo, effects: Effects
) -> ConsumerMember:
    """The member as the group knows it: a new one, an existing one, or the static member that a new process takes over
    from its predecessor."""
    member_id = request.member_id or client.new_member_id
    if request.instance_id is not None and request.member_epoch == JOIN_EPOCH:
        previous = group.static_member(request.instance_id)
        if previous is not None:
            return replace_instance(group, previous, member_id, effects)
    return group.members.get(member_id) or ConsumerMember(member_id)


def replace_instance(
    group: ConsumerGroup, previous: ConsumerMember, member_id: str, effects: Effects
) -> ConsumerMember:
    """A static member returns under a new member id, and keeps its target and assignment. No other member notices."""
    target = group.target_of(previous.member_id)
    member = previous._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    for record in consumer_records.member_tombstones(group.group_id, previous.member_id):
        group.write(record, effects)
    group.write(consumer_records.member_metadata(group.group_id, member), effects)
    group.write(consumer_records.target_assignment(group.group_id, member_id, target), effects)
    group.write(consumer_records.current_assignment(group.group_id, member), effects)
    return member


def _updated(member: ConsumerMember, request: m.ConsumerGroupHeartbeatRequest, client: ClientInfo) -> ConsumerMember:
    """The member updated by the request. Fields that are null have not changed."""
    has_timeout = request.rebalance_timeout_ms != UNCHANGED_REBALANCE_TIMEOUT
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else member.rebalance_timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topics=member.subscribed_topics if names is None else frozenset(names),
        subscribed_regex=member.subscribed_regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.host,
        classic=None,
    )


def note(
    group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, now: StepContext, effects: Effects
) -> bool:
    """Writes the member, and a new group epoch if that or a change of topics calls for one.

    Returns whether the member's subscription has changed."""
    if before != after:
        group.write(consumer_records.member_metadata(group.group_id, after), effects)
    regex_change = regex_subscriptions.note_change(group, before, after, effects)
    has_new_topics = before.subscribed_topics != after.subscribed_topics
    if has_new_topics or regex_change is RegexChange.RESOLVED:
        fencing.bump_epoch(group, now, effects)
        _forget_partition_metadata(group, effects)
    elif group.hashed_at_change != now.topic_changes:
        group.hashed_at_change = now.topic_changes
        if fencing.current_hash(group, now) != group.metadata_hash:
            fencing.bump_epoch(group, now, effects)
        _forget_partition_metadata(group, effects)
    return has_new_topics or regex_change is not RegexChange.NONE


def _forget_partition_metadata(group: ConsumerGroup, effects: Effects) -> None:
    if group.has_partition_metadata:
        group.write(consumer_records.partition_metadata_tombstone(group.group_id), effects)


def move_on(
    group: ConsumerGroup,
    member_id: str,
    reported: Reported,
    now: StepContext,
    effects: Effects,
    *,
    has_new_subscription: bool,
) -> ConsumerMember:
    """Takes the member's next step towards its target. A classic member has other deadlines for it."""
    before = group.members[member_id]
    if before.is_reconciled_to(group.assignment_epoch) and not has_new_subscription:
        return before
    subscribed = topic_ids(group.topics_of(before), now.image.topics)
    target = Target(group.assignment_epoch, group.target_of(member_id), subscribed, group.owner_of)
    after = reconcile(before, target, reported, has_new_subscription=has_new_subscription)
    if after != before:
        group.write(consumer_records.current_assignment(group.group_id, after), effects)
        if after.state is MemberState.UNREVOKED_PARTITIONS and not after.uses_classic_protocol:
            group.expect_revocation(after, now.now_ms)
        else:
            group.rebalance_deadlines.pop(member_id, None)
    return after


def _answer(group: ConsumerGroup, member: ConsumerMember, now: StepContext) -> m.ConsumerGroupHeartbeatResponse:
    """An answer without an assignment, which is sent only when it has changed. The member's session begins anew."""
    group.keep_alive(member.member_id, now.now_ms + now.settings.session_timeout_ms)
    return m.ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=now.settings.heartbeat_interval_ms,
    )


def _is_full(request: m.ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields, so that the answer must as well: a member joins, or missed an answer."""
    if request.member_epoch == JOIN_EPOCH:
        return True
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    has_timeout = request.rebalance_timeout_ms != UNCHANGED_REBALANCE_TIMEOUT
    return has_timeout and has_subscription and request.topic_partitions is not None


def _assignment(member: ConsumerMember) -> m.ConsumerGroupHeartbeatResponse.Assignment:
    topics = [
        m.ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in sorted(member.assigned.items())
    ]
    return m.ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=topics)
