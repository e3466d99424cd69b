"""ConsumerGroupHeartbeat: joining, living in and leaving a consumer group, all by one request.

A heartbeat says what has changed on the member's side, and is answered with what has changed on the group's. It is
checked first and changes nothing if it is refused. Then the member is written as it is now; the group's epoch rises if
that, or a topic, asks for another assignment; a target is made for the epoch; and the member takes its next step to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.groups import consumer_fencing, consumer_record, consumer_regex
from barnabas.groups.consumer_assignment import topic_ids, update_target
from barnabas.groups.consumer_member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from barnabas.groups.consumer_reconciliation import Target, reconcile
from barnabas.groups.consumer_regex import RegexChange
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.coordination.effects import Effects
    from barnabas.groups.classic_member import ClientInfo
    from barnabas.groups.consumer_circumstances import Circumstances
    from barnabas.groups.consumer_group import ConsumerGroup
    from barnabas.groups.consumer_member import Owned
    from barnabas.groups.consumer_reconciliation import Reported

UNCHANGED_REBALANCE_TIMEOUT: Final = -1
MEMBERS_NAME_THEMSELVES_FROM: Final = 1
"""The first version in which a member makes up its own id."""


# Checks, in Kafka's order and words.


def check_request(request: m.ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError for a request that is wrong whatever the state of the group."""
    epoch = request.member_epoch
    if version >= MEMBERS_NAME_THEMSELVES_FROM or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _require_text(request.member_id, "MemberId")
    _require_text(request.group_id, "GroupId")
    _require_text(request.instance_id, "InstanceId")
    _require_text(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise KafkaError(Error.INVALID_REQUEST, "member epoch -2 is for static members, and this names no instance id")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise KafkaError(Error.INVALID_REQUEST, f"member epoch {epoch} stands for nothing")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = f"there is no assignor {request.server_assignor} here: choose one of {', '.join(assignors)}"
        raise KafkaError(Error.UNSUPPORTED_ASSIGNOR, message)


def _require_text(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise KafkaError(Error.INVALID_REQUEST, f"{name} is blank")


def _check_join(request: m.ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == UNCHANGED_REBALANCE_TIMEOUT:
        raise KafkaError(Error.INVALID_REQUEST, "who joins has to name its rebalance timeout")
    if request.topic_partitions is None or request.topic_partitions:
        raise KafkaError(Error.INVALID_REQUEST, "who joins owns no partitions, and has to say so")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        message = "who joins has to name topics or a regular expression for them"
        raise KafkaError(Error.INVALID_REQUEST, message)


def check_heartbeat(group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest, now: Circumstances) -> None:
    """Raises KafkaError for a heartbeat that the group refuses. It may be the first one, with epoch 0."""
    if len(group.members) >= now.settings.max_size and request.member_id not in group.members:
        message = f"group {group.group_id} is full: group.consumer.max.size allows {now.settings.max_size} members"
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
    if (refused := consumer_regex.refusal_of(group, request.subscribed_topic_regex)) is not None:
        raise refused


def _check_instance(group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest) -> ConsumerMember | None:
    """Whoever has an instance id keeps it until it leaves: another member with the same id is turned away."""
    assert request.instance_id is not None
    current = group.static_member(request.instance_id)
    if request.member_epoch != JOIN_EPOCH:
        return _instance(group, request)
    if current is not None and not current.uses_classic_protocol and current.epoch != STATIC_LEAVE_EPOCH:
        message = f"instance id {request.instance_id} belongs to member {current.member_id}, which has not left"
        raise KafkaError(Error.UNRELEASED_INSTANCE_ID, message)
    if current is not None and current.member_id != request.member_id and request.member_id in group.members:
        message = f"{request.member_id} is in group {group.group_id} already, and cannot be another member too"
        raise KafkaError(Error.INVALID_REQUEST, message)
    return current


def _instance(group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    assert request.instance_id is not None
    current = group.static_member(request.instance_id)
    if current is None:
        raise KafkaError(
            Error.UNKNOWN_MEMBER_ID, f"nobody in group {group.group_id} has instance id {request.instance_id}"
        )
    if current.member_id != request.member_id:
        message = f"member {current.member_id} has taken over instance id {request.instance_id}"
        raise KafkaError(Error.FENCED_INSTANCE_ID, message)
    return current


def _check_epoch(member: ConsumerMember, request: m.ConsumerGroupHeartbeatRequest) -> None:
    """A member may be one epoch behind, having missed an answer, if it owns nothing that it should not."""
    received = request.member_epoch
    is_behind = received == member.previous_epoch and _owns_no_more_than(request, member.assigned)
    if received > member.epoch or (received < member.epoch and not is_behind):
        message = f"{member.member_id} is in epoch {member.epoch}, not {received}: it has to give up all and rejoin"
        raise KafkaError(Error.FENCED_MEMBER_EPOCH, message)
    if member.state is MemberState.UNKNOWN and request.topic_partitions != []:
        message = f"what {member.member_id} owns is not known: it has to give up all and rejoin"
        raise KafkaError(Error.FENCED_MEMBER_EPOCH, message)


def _owns_no_more_than(request: m.ConsumerGroupHeartbeatRequest, assigned: Owned) -> bool:
    if request.topic_partitions is None:
        return False
    return all(
        topic.topic_id in assigned and assigned[topic.topic_id].keys() >= set(topic.partitions)
        for topic in request.topic_partitions
    )


def _unknown(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(Error.UNKNOWN_MEMBER_ID, f"nobody in group {group.group_id} is called {member_id!r}")


# Steps. They are taken only after the checks, and refuse nothing.


def beat(
    group: ConsumerGroup,
    request: m.ConsumerGroupHeartbeatRequest,
    client: ClientInfo,
    now: Circumstances,
    effects: Effects,
) -> m.ConsumerGroupHeartbeatResponse:
    """One heartbeat of a member, which it may join the group with."""
    before = _take_up(group, request, client, effects)
    if before.member_id not in group.members:
        group.note_change(now.now_ms)
    after = _told(before, request, client)
    has_new_subscription = note(group, before, after, now, effects)
    update_target(group, now, effects)
    member = move_on(
        group, after.member_id, request.topic_partitions, now, effects, has_new_subscription=has_new_subscription
    )
    response = _answer(group, member, now)
    if _is_full(request) or before.assigned != member.assigned:
        response.assignment = _assignment(member)
    consumer_regex.refresh(group, now, effects)
    return response


def welcome(
    group: ConsumerGroup, member_id: str, now: Circumstances, effects: Effects
) -> m.ConsumerGroupHeartbeatResponse:
    """The answer to a member that has joined before, and owns nothing yet."""
    member = move_on(group, member_id, [], now, effects, has_new_subscription=False)
    response = _answer(group, member, now)
    response.assignment = _assignment(member)
    return response


def leave(
    group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest, now: Circumstances, effects: Effects
) -> m.ConsumerGroupHeartbeatResponse:
    """A member goes, for good or, if it is static, for a while. Raises KafkaError if it is not in the group."""
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
        group.write(consumer_record.current_assignment(group.group_id, away), effects)
    else:
        consumer_fencing.fence(group, [member], now, effects)
    return m.ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def _take_up(
    group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest, client: ClientInfo, effects: Effects
) -> ConsumerMember:
    """The member as the group knows it: one that is new, one that is in it, or one that a static member's new process
    takes over from the old one."""
    member_id = request.member_id or client.new_member_id
    if request.instance_id is not None and request.member_epoch == JOIN_EPOCH:
        previous = group.static_member(request.instance_id)
        if previous is not None:
            return replace_instance(group, previous, member_id, effects)
    return group.members.get(member_id) or ConsumerMember(member_id)


def replace_instance(
    group: ConsumerGroup, previous: ConsumerMember, member_id: str, effects: Effects
) -> ConsumerMember:
    """A static member comes back under a new member id, to all that it had. No other member notices."""
    target = group.target_of(previous.member_id)
    member = previous._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    for record in consumer_record.member_tombstones(group.group_id, previous.member_id):
        group.write(record, effects)
    group.write(consumer_record.member_metadata(group.group_id, member), effects)
    group.write(consumer_record.target_assignment(group.group_id, member_id, target), effects)
    group.write(consumer_record.current_assignment(group.group_id, member), effects)
    return member


def _told(member: ConsumerMember, request: m.ConsumerGroupHeartbeatRequest, client: ClientInfo) -> ConsumerMember:
    """The member with what the request says of it. What it does not name has not changed."""
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
    group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, now: Circumstances, effects: Effects
) -> bool:
    """Writes the member down, and a new epoch of the group where that or the topics call for one.

    True if the member is subscribed to something else than before."""
    if before != after:
        group.write(consumer_record.member_metadata(group.group_id, after), effects)
    regex_change = consumer_regex.note_change(group, before, after, effects)
    has_new_topics = before.subscribed_topics != after.subscribed_topics
    if has_new_topics or regex_change is RegexChange.RESOLVED:
        consumer_fencing.bump_epoch(group, now, effects)
        _forget_partition_metadata(group, effects)
    elif group.hashed_at_change != now.topic_changes:
        group.hashed_at_change = now.topic_changes
        if consumer_fencing.current_hash(group, now) != group.metadata_hash:
            consumer_fencing.bump_epoch(group, now, effects)
        _forget_partition_metadata(group, effects)
    return has_new_topics or regex_change is not RegexChange.NONE


def _forget_partition_metadata(group: ConsumerGroup, effects: Effects) -> None:
    if group.has_partition_metadata:
        group.write(consumer_record.partition_metadata_tombstone(group.group_id), effects)


def move_on(
    group: ConsumerGroup,
    member_id: str,
    reported: Reported,
    now: Circumstances,
    effects: Effects,
    *,
    has_new_subscription: bool,
) -> ConsumerMember:
    """The member's next step to its target. One of the classic protocol has other deadlines for it."""
    before = group.members[member_id]
    if before.is_reconciled_to(group.assignment_epoch) and not has_new_subscription:
        return before
    subscribed = topic_ids(group.topics_of(before), now.image.topics)
    target = Target(group.assignment_epoch, group.target_of(member_id), subscribed, group.owner_of)
    after = reconcile(before, target, reported, has_new_subscription=has_new_subscription)
    if after != before:
        group.write(consumer_record.current_assignment(group.group_id, after), effects)
        if after.state is MemberState.UNREVOKED_PARTITIONS and not after.uses_classic_protocol:
            group.expect_revocation(after, now.now_ms)
        else:
            group.rebalance_deadlines.pop(member_id, None)
    return after


def _answer(group: ConsumerGroup, member: ConsumerMember, now: Circumstances) -> m.ConsumerGroupHeartbeatResponse:
    """Without an assignment, which need not be told when it has not changed. The member's session begins anew."""
    group.keep_alive(member.member_id, now.now_ms + now.settings.session_timeout_ms)
    return m.ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=now.settings.heartbeat_interval_ms,
    )


def _is_full(request: m.ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member tells, and so wants to know, everything: when it joins, and when it missed an answer."""
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
