"""Groups: which there are, who is in them, how far they have come, and how they and their offsets go.

    described = describe_consumer_groups(cluster, ["report"])
    alter_offsets(cluster, "report", {("orders", 0): 7})

A group is described by ConsumerGroupDescribe where it is of the newer protocol, and by DescribeGroups where it is not:
nobody but its coordinator knows which.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.admin.outcomes import passing, refusal
from barnabas.client.cluster import Call, Coordinated, Coordinator, KeyAnswer, TopicPartition
from barnabas.client.offset_queries import CommittedOffset, by_topic
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.client.cluster import Cluster

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of groups that share the partitions of topics, which a group without members may have lost."""
TYPE_IS_UNKNOWN: Final = "Unknown"

_STATES_VERSION_MIN: Final = 4
_TYPES_VERSION_MIN: Final = 5
"""The first versions of ListGroups that filter by states, and by types."""
_BY_NAME_VERSION_MAX: Final = 9
"""OffsetFetch and OffsetCommit name topics by their ids from version 10 on."""
_GROUPS_IN_A_LIST: Final = 8
"""The first version of OffsetFetch that asks for several groups."""
_NO_OFFSET: Final = -1
_VERSION: Final = Struct(">h")
_ASSIGNMENT_VERSION_MAX: Final = 3
"""The embedded protocol begins with its version; a newer one starts with the fields of the newest known."""
_OF_CLASSIC_PROTOCOL: Final = 0
_OF_CONSUMER_PROTOCOL: Final = 1


class GroupListing(NamedTuple):
    group: str
    protocol_type: str
    type: str
    state: str


class MemberState(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition]
    target: list[TopicPartition]
    epoch: int | None
    """None for members of classic groups, which have none."""
    is_of_consumer_protocol: bool | None
    """None where the broker does not say."""


class GroupDescription(NamedTuple):
    group: str
    type: str
    state: str
    assignor: str
    coordinator: Coordinator
    members: list[MemberState]
    epoch: int | None = None
    target_epoch: int | None = None


class OtherProtocolError(Exception):
    """A group that is none of consumers."""


def list_groups(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    types: Collection[str] = (),
    protocol_types: Collection[str] | None = None,
    timeout_ms: int | None = None,
) -> list[GroupListing]:
    """The groups of all brokers. Empty filters let all pass; a group without members may have no protocol type."""
    found: dict[str, GroupListing] = {}
    for broker_id in cluster.nodes(timeout_ms=timeout_ms):

        def make_request(version: int) -> m.ListGroupsRequest:
            request = m.ListGroupsRequest()
            if version >= _STATES_VERSION_MIN:
                request.states_filter = sorted(states)
            if version >= _TYPES_VERSION_MIN:
                request.types_filter = sorted(types)
            return request

        call = Call(ApiKey.LIST_GROUPS, make_request, lambda answer: passing(answer.error_code))
        response: m.ListGroupsResponse = cluster.ask_broker(broker_id, call, timeout_ms=timeout_ms)
        failure = refusal(response.error_code)
        if failure is not None:
            raise failure
        for each in response.groups:
            if protocol_types is None or each.protocol_type in protocol_types:
                listing = GroupListing(each.group_id, each.protocol_type, each.group_type, each.group_state)
                found.setdefault(each.group_id, listing)
    return list(found.values())


def describe_consumer_groups(
    cluster: Cluster, groups: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, GroupDescription | KafkaError | OtherProtocolError]:
    """Each group, or why it cannot be described."""
    wanted = list(dict.fromkeys(groups))
    found: dict[str, GroupDescription | KafkaError | OtherProtocolError] = {}
    rest = wanted
    missing: dict[str, str | None] = {}
    if wanted and ApiKey.CONSUMER_GROUP_DESCRIBE in cluster.any(timeout_ms=timeout_ms).versions():
        rest = []
        for group, answer in _ask_groups(cluster, ApiKey.CONSUMER_GROUP_DESCRIBE, wanted, timeout_ms).items():
            if answer.error in (Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION):
                rest.append(group)
                missing[group] = _message(answer)
            else:
                found[group] = _failure(answer) or _consumer_group(answer)
    if rest:
        for group, answer in _ask_groups(cluster, ApiKey.DESCRIBE_GROUPS, rest, timeout_ms).items():
            message = missing.get(group) if answer.error is Error.GROUP_ID_NOT_FOUND else None
            found[group] = _failure(answer, message) or _classic_group(answer)
    return {group: found[group] for group in wanted}


def fetch_offsets(
    cluster: Cluster, group: str, *, timeout_ms: int | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """All that a group has committed, whether a transaction that commits more is open or not."""

    def make_request(version: int) -> m.OffsetFetchRequest:
        if version < _GROUPS_IN_A_LIST:
            return m.OffsetFetchRequest(group_id=group, topics=None)
        asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        return m.OffsetFetchRequest(groups=[asked])

    def whole(response: m.OffsetFetchResponse) -> Any:
        return response.groups[0] if response.groups else response

    call = Call(
        ApiKey.OFFSET_FETCH, make_request, lambda answer: passing(whole(answer).error_code), _BY_NAME_VERSION_MAX
    )
    answer = whole(cluster.ask_coordinator(group, call, timeout_ms=timeout_ms))
    failure = refusal(answer.error_code)
    if failure is not None:
        raise failure
    return {
        (topic.name, each.partition_index): CommittedOffset(
            each.committed_offset, each.committed_leader_epoch, each.metadata or ""
        )
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == Error.NONE and each.committed_offset != _NO_OFFSET
    }


def alter_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
) -> None:
    """Set how far a group has come. It must have no members."""
    struct = m.OffsetCommitRequest
    topics = [
        struct.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                struct.OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offsets[name, number], committed_metadata=""
                )
                for number in numbers
            ],
        )
        for name, numbers in by_topic(offsets).items()
    ]
    request = struct(group_id=group, topics=topics)
    call = Call(ApiKey.OFFSET_COMMIT, lambda _: request, _passing_in_partitions, _BY_NAME_VERSION_MAX)
    response: m.OffsetCommitResponse = cluster.ask_coordinator(group, call, timeout_ms=timeout_ms)
    for topic in response.topics:
        for each in topic.partitions:
            failure = refusal(each.error_code)
            if failure is not None:
                raise failure


def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
) -> dict[TopicPartition, KafkaError | None]:
    """Forget how far a group has come: what went wrong with each partition. KafkaError where that is all of them."""
    struct = m.OffsetDeleteRequest
    topics = [
        struct.OffsetDeleteRequestTopic(
            name=name,
            partitions=[struct.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
        )
        for name, numbers in by_topic(partitions).items()
    ]
    request = struct(group_id=group, topics=topics)
    call = Call(ApiKey.OFFSET_DELETE, lambda _: request, lambda answer: passing(answer.error_code))
    response: m.OffsetDeleteResponse = cluster.ask_coordinator(group, call, timeout_ms=timeout_ms)
    failure = refusal(response.error_code)
    if failure is not None:
        raise failure
    return {
        (topic.name, each.partition_index): refusal(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def delete_groups(
    cluster: Cluster, groups: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, KafkaError | None]:
    """Delete groups with their offsets; what went wrong with each."""
    answers = cluster.ask_coordinators(
        groups,
        lambda asked: Call(ApiKey.DELETE_GROUPS, lambda _: m.DeleteGroupsRequest(groups_names=asked), _none),
        lambda response: [KeyAnswer(each.group_id, each.error_code, each) for each in response.results],
        timeout_ms=timeout_ms,
    )
    return {group: refusal(answer.error) for group, answer in answers.items()}


def _ask_groups(cluster: Cluster, api_key: ApiKey, groups: list[str], timeout_ms: int | None) -> dict[str, Coordinated]:
    def call_for(asked: list[str]) -> Call:
        if api_key is ApiKey.DESCRIBE_GROUPS:
            return Call(api_key, lambda _: m.DescribeGroupsRequest(groups=asked), _none)
        return Call(api_key, lambda _: m.ConsumerGroupDescribeRequest(group_ids=asked), _none)

    return cluster.ask_coordinators(
        groups,
        call_for,
        lambda response: [KeyAnswer(each.group_id, each.error_code, each) for each in response.groups],
        timeout_ms=timeout_ms,
    )


def _none(_: Any) -> int:
    """Errors are looked at group by group."""
    return Error.NONE


def _passing_in_partitions(response: Any) -> int:
    codes = (passing(each.error_code) for topic in response.topics for each in topic.partitions)
    return next((code for code in codes if code != Error.NONE), Error.NONE)


def _failure(answer: Coordinated, message: str | None = None) -> KafkaError | None:
    return refusal(answer.error, message or _message(answer))


def _message(answer: Coordinated) -> str | None:
    message: str | None = None if answer.content is None else answer.content.error_message
    return message


def _consumer_group(answer: Coordinated) -> GroupDescription:
    group: m.ConsumerGroupDescribeResponse.DescribedGroup = answer.content
    assert answer.coordinator is not None, "somebody has described it"
    members = [
        MemberState(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _partitions(each.assignment),
            _partitions(each.target_assignment),
            each.member_epoch,
            {_OF_CLASSIC_PROTOCOL: False, _OF_CONSUMER_PROTOCOL: True}.get(each.member_type),
        )
        for each in group.members
    ]
    return GroupDescription(
        group.group_id,
        CONSUMER,
        group.group_state,
        group.assignor_name,
        answer.coordinator,
        members,
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions(assignment: m.ConsumerGroupDescribeResponse.Assignment) -> list[TopicPartition]:
    return [(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions]


def _classic_group(answer: Coordinated) -> GroupDescription | OtherProtocolError:
    group: m.DescribeGroupsResponse.DescribedGroup = answer.content
    if group.protocol_type not in ("", CONSUMER_PROTOCOL):
        return OtherProtocolError(f"GroupId {group.group_id} is not a consumer group ({group.protocol_type}).")
    assert answer.coordinator is not None, "somebody has described it"
    members = []
    for each in group.members:
        partitions = _embedded_partitions(bytes(each.member_assignment))
        members.append(
            MemberState(
                each.member_id, each.group_instance_id, each.client_id, each.client_host, partitions, [], None, None
            )
        )
    return GroupDescription(
        group.group_id, CLASSIC, group.group_state, group.protocol_data, answer.coordinator, members
    )


def _embedded_partitions(data: bytes) -> list[TopicPartition]:
    """What a member of a classic group was assigned; one that waits for its share has no bytes at all."""
    if not data:
        return []
    version = min(_VERSION.unpack_from(data)[0], _ASSIGNMENT_VERSION_MAX)
    assignment, _ = decode_prefix(m.ConsumerProtocolAssignment, data, version, _VERSION.size)
    return [(topic.topic, number) for topic in assignment.assigned_partitions for number in topic.partitions]
