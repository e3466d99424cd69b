"""What a member of a classic group says, and offsets: one call each, in any version, with nothing retried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.requests import LEAVE_OF_MANY_MEMBERS, OFFSETS_BY_ID, OFFSETS_OF_MANY_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

UNAVAILABLE = (Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)
MEMBER_IDS_REQUIRED_FROM = 4

Offsets = dict[int, "Committed"]


class Committed(NamedTuple):
    """What a group has committed for one partition; the offset is −1 where there is nothing."""

    offset: int
    error: Error = Error.NONE
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(slots=True)
class Joined:
    """A member, its place in a generation, and the connection that it speaks through."""

    connection: Connection
    group: str
    member_id: str
    generation: int
    leader: str
    instance_id: str | None = None


def latest(api: ApiKey) -> int:
    return APIS[api].max_version


def await_coordinator(connection: Connection, *groups: str) -> None:
    """The internal topic is created by the first who asks, and each of its partitions is loaded on its own."""
    for group in groups:
        request = m.DescribeGroupsRequest(groups=[group])

        def is_there(group: str = group, request: m.DescribeGroupsRequest = request) -> bool:
            if find_coordinator(connection, group)[0] != Error.NONE:
                return False
            (described,) = connection.call(request, 6, m.DescribeGroupsResponse).groups
            return described.error_code not in UNAVAILABLE

        wait_until(is_there, f"{group} has a coordinator")


def find_coordinator(connection: Connection, key: str, key_type: int = 0, version: int = 6) -> tuple[Error, int, int]:
    """The error, the node and its port."""
    if version < 4:
        request = m.FindCoordinatorRequest(key=key, key_type=key_type)
        answer = connection.call(request, version, m.FindCoordinatorResponse)
        return Error(answer.error_code), answer.node_id, answer.port
    request = m.FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
    (found,) = connection.call(request, version, m.FindCoordinatorResponse).coordinators
    assert found.key == key
    return Error(found.error_code), found.node_id, found.port


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer that wants these topics, with the version in front."""
    return b"\x00\x00" + encode(m.ConsumerProtocolSubscription(topics=list(topics)), 0)


def join_request(
    group: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    protocols: Mapping[str, bytes] | None = None,
    protocol_type: str = "consumer",
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 10_000,
) -> m.JoinGroupRequest:
    request = m.JoinGroupRequest
    offered = {"range": subscription("t")} if protocols is None else protocols
    return request(
        group_id=group,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[request.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in offered.items()],
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
    )


def send_join(connection: Connection, request: m.JoinGroupRequest, version: int = 9) -> Callable[[], Joined]:
    """Join with a member id, got first where the version wants that; the answer may be awaited later."""
    if version >= MEMBER_IDS_REQUIRED_FROM and not request.member_id and request.group_instance_id is None:
        required = connection.call(request, version, m.JoinGroupResponse)
        assert Error(required.error_code) == Error.MEMBER_ID_REQUIRED
        request.member_id = required.member_id
    connection.send(request, version)

    def joined() -> Joined:
        _, answer = connection.receive(m.JoinGroupResponse, version)
        assert Error(answer.error_code) == Error.NONE
        return Joined(
            connection,
            request.group_id,
            answer.member_id,
            answer.generation_id,
            answer.leader,
            request.group_instance_id,
        )

    return joined


def join(connection: Connection, request: m.JoinGroupRequest, version: int = 9) -> Joined:
    return send_join(connection, request, version)()


def refused_join(connection: Connection, request: m.JoinGroupRequest, version: int = 9) -> Error:
    return Error(connection.call(request, version, m.JoinGroupResponse).error_code)


def sync_request(member: Joined, assignments: Mapping[str, bytes] | None = None) -> m.SyncGroupRequest:
    request = m.SyncGroupRequest
    return request(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        assignments=[
            request.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ],
    )


def sync(
    member: Joined,
    assignments: Mapping[str, bytes] | None = None,
    *,
    protocol: tuple[str, str] = ("consumer", "range"),
    version: int = 5,
) -> tuple[Error, bytes]:
    """The error and the member's assignment."""
    request = sync_request(member, assignments)
    request.protocol_type, request.protocol_name = protocol if version >= 5 else (None, None)
    answer = member.connection.call(request, version, m.SyncGroupResponse)
    return Error(answer.error_code), bytes(answer.assignment)


def beat(member: Joined, version: int = 4) -> Error:
    request = m.HeartbeatRequest(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
    )
    return Error(member.connection.call(request, version, m.HeartbeatResponse).error_code)


def leave(member: Joined, version: int = 5) -> Error:
    request = m.LeaveGroupRequest
    if version < LEAVE_OF_MANY_MEMBERS:
        asked = request(group_id=member.group, member_id=member.member_id)
        return Error(member.connection.call(asked, version, m.LeaveGroupResponse).error_code)
    identity = request.MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id)
    answer = member.connection.call(request(group_id=member.group, members=[identity]), version, m.LeaveGroupResponse)
    assert Error(answer.error_code) == Error.NONE
    (left,) = answer.members
    return Error(left.error_code)


def commit_request(
    group: str,
    topic: Topic,
    offsets: Mapping[int, int],
    version: int = 9,
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    retention_time_ms: int = -1,
) -> m.OffsetCommitRequest:
    request = m.OffsetCommitRequest
    partitions = [
        request.OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch if version >= 6 else -1,
            committed_metadata=metadata,
        )
        for partition, offset in offsets.items()
    ]
    named = {"topic_id": topic.id} if version >= OFFSETS_BY_ID else {"name": topic.name}
    return request(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_time_ms,
        topics=[request.OffsetCommitRequestTopic(**named, partitions=partitions)],
    )


def commit(connection: Connection, request: m.OffsetCommitRequest, version: int = 9) -> dict[int, Error]:
    (answered,) = connection.call(request, version, m.OffsetCommitResponse).topics
    (asked,) = request.topics
    assert (answered.name, answered.topic_id) == (asked.name, asked.topic_id)
    return {each.partition_index: Error(each.error_code) for each in answered.partitions}


def fetch_offsets(
    connection: Connection, group: str, topic: Topic, partitions: Sequence[int], version: int = 9
) -> Offsets:
    """What the group has committed for these partitions."""
    request = m.OffsetFetchRequest
    if version < OFFSETS_OF_MANY_GROUPS:
        old = request.OffsetFetchRequestTopic(name=topic.name, partition_indexes=list(partitions))
        answer = connection.call(request(group_id=group, topics=[old]), version, m.OffsetFetchResponse)
        assert Error(answer.error_code) == Error.NONE
        (found,) = answer.topics
        assert found.name == topic.name
        return {each.partition_index: _committed(each) for each in found.partitions}
    named = {"topic_id": topic.id} if version >= OFFSETS_BY_ID else {"name": topic.name}
    wanted = request.OffsetFetchRequestTopics(**named, partition_indexes=list(partitions))
    asked = request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=[wanted])])
    (answered,) = connection.call(asked, version, m.OffsetFetchResponse).groups
    assert (answered.group_id, Error(answered.error_code)) == (group, Error.NONE)
    (of_topic,) = answered.topics
    assert (of_topic.name, of_topic.topic_id) == (wanted.name, wanted.topic_id)
    return {each.partition_index: _committed(each) for each in of_topic.partitions}


def fetch_all_offsets(connection: Connection, group: str, version: int = 9) -> dict[tuple[str, int], int]:
    """Everything that the group has committed, by the name of the topic."""
    request = m.OffsetFetchRequest
    if version < OFFSETS_OF_MANY_GROUPS:
        answer = connection.call(request(group_id=group, topics=None), version, m.OffsetFetchResponse)
        assert Error(answer.error_code) == Error.NONE
        return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}
    asked = request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=None)])
    (answered,) = connection.call(asked, version, m.OffsetFetchResponse).groups
    assert Error(answered.error_code) == Error.NONE
    return {(t.name, p.partition_index): p.committed_offset for t in answered.topics for p in t.partitions}


def _committed(
    found: m.OffsetFetchResponse.OffsetFetchResponsePartition | m.OffsetFetchResponse.OffsetFetchResponsePartitions,
) -> Committed:
    return Committed(found.committed_offset, Error(found.error_code), found.committed_leader_epoch, found.metadata)


def describe(connection: Connection, group: str, version: int = 6) -> m.DescribeGroupsResponse.DescribedGroup:
    request = m.DescribeGroupsRequest(groups=[group])
    (described,) = connection.call(request, version, m.DescribeGroupsResponse).groups
    assert described.group_id == group
    return described


def list_groups(
    connection: Connection, states: Sequence[str] = (), types: Sequence[str] = (), version: int = 5
) -> dict[str, tuple[str, str, str]]:
    """By name: protocol type, state and type of each group."""
    request = m.ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answer = connection.call(request, version, m.ListGroupsResponse)
    assert Error(answer.error_code) == Error.NONE
    return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups}


def delete_groups(connection: Connection, *groups: str, version: int = 2) -> dict[str, Error]:
    answer = connection.call(m.DeleteGroupsRequest(groups_names=list(groups)), version, m.DeleteGroupsResponse)
    return {each.group_id: Error(each.error_code) for each in answer.results}


def delete_offsets(
    connection: Connection, group: str, topic: str, partitions: Sequence[int]
) -> dict[int, Error] | Error:
    """The error of each partition, or the one that concerns the group."""
    request = m.OffsetDeleteRequest
    wanted = [request.OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
    asked = request(group_id=group, topics=[request.OffsetDeleteRequestTopic(name=topic, partitions=wanted)])
    answer = connection.call(asked, 0, m.OffsetDeleteResponse)
    if answer.error_code:
        return Error(answer.error_code)
    (answered,) = answer.topics
    return {each.partition_index: Error(each.error_code) for each in answered.partitions}
