"""Requests to a group in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.protocol.uuids import Uuid

TOPIC = "foo"


def client(new_member_id: str, version: int = 9) -> ClientInfo:
    return ClientInfo(client_id="client", host="/127.0.0.1", version=version, new_member_id=new_member_id)


def subscription(*topics: str) -> bytes:
    return b"\0\0" + encode(m.ConsumerProtocolSubscription(topics=list(topics)), 0)


def join(
    group_id: str,
    member_id: str = "",
    *,
    protocol_type: str = "consumer",
    metadata: bytes | None = None,
    instance_id: str | None = None,
    session_timeout_ms: int = 45_000,
) -> m.JoinGroupRequest:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(
        name="range", metadata=subscription(TOPIC) if metadata is None else metadata
    )
    return m.JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        group_instance_id=instance_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        protocol_type=protocol_type,
        protocols=[protocol],
    )


def sync(group_id: str, member_id: str, generation: int = 1, *, protocol_type: str = "consumer") -> m.SyncGroupRequest:
    """The leader's, who keeps all for itself."""
    given = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all of it")
    return m.SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        protocol_type=protocol_type,
        protocol_name="range",
        assignments=[given],
    )


def heartbeat(group_id: str, member_id: str, generation: int = 1) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(group_id=group_id, member_id=member_id, generation_id=generation)


def leave(group_id: str, *member_ids: str) -> m.LeaveGroupRequest:
    members = [m.LeaveGroupRequest.MemberIdentity(member_id=member_id) for member_id in member_ids]
    return m.LeaveGroupRequest(group_id=group_id, members=members)


def commit(
    group_id: str,
    offsets: dict[int, int],
    *,
    topic: str = TOPIC,
    topic_id: Uuid = ZERO_UUID,
    metadata: str | None = "",
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    retention_ms: int = -1,
) -> m.OffsetCommitRequest:
    partitions = [
        m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=4, committed_metadata=metadata
        )
        for partition, offset in offsets.items()
    ]
    committed = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)
    return m.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_ms,
        topics=[committed],
    )


def fetch(
    group_id: str, *partitions: int, topic: str = TOPIC, topic_id: Uuid = ZERO_UUID
) -> m.OffsetFetchRequest.OffsetFetchRequestGroup:
    topics = m.OffsetFetchRequest.OffsetFetchRequestTopics(
        name=topic, topic_id=topic_id, partition_indexes=list(partitions)
    )
    return m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=[topics])


def fetch_all(group_id: str) -> m.OffsetFetchRequest.OffsetFetchRequestGroup:
    return m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)


def delete_offsets(group_id: str, *partitions: int, topic: str = TOPIC) -> m.OffsetDeleteRequest:
    named = [m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
    return m.OffsetDeleteRequest(
        group_id=group_id, topics=[m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=named)]
    )
