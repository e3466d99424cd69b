"""Drives one group of a shard whose members speak either protocol, as their clients would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.groups.classic.classic_group import ClassicGroup, ClassicGroupSettings
from barnabas.groups.consumer.embedded_protocol import by_topic_id, read_assignment
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import Error
from tests.unit.groups import consumer_requests, requests
from tests.unit.groups.consumer_requests import cluster, topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.coordination.effects import Effects, Record
    from barnabas.groups.classic.classic_members import ClassicMember
    from barnabas.protocol.compiler.structs import Message

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
START_MS = 1_000_000
SUBSCRIPTION_VERSION = 3

R = TypeVar("R", bound="Message")
Owned = dict[str, frozenset[int]]
"""Partitions by the name of their topic."""


def subscription(
    topics: Iterable[str], owned: Mapping[str, Iterable[int]] | None = None, version: int = SUBSCRIPTION_VERSION
) -> bytes:
    owned_partitions = [
        m.ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=sorted(partitions))
        for name, partitions in (owned or {}).items()
        if partitions
    ]
    message = m.ConsumerProtocolSubscription(topics=sorted(topics), owned_partitions=owned_partitions)
    return version.to_bytes(2, "big") + encode(message, version)


def assignment(owned: Mapping[str, Iterable[int]], user_data: bytes | None = None) -> bytes:
    partitions = [
        m.ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=sorted(numbers))
        for name, numbers in owned.items()
    ]
    message = m.ConsumerProtocolAssignment(assigned_partitions=partitions, user_data=user_data)
    return b"\0\3" + encode(message, SUBSCRIPTION_VERSION)


class Driver:
    def __init__(self, topics: Mapping[str, int], **consumer_settings: Any) -> None:
        self.now_ms = START_MS
        self.image = cluster(*(topic(name, count) for name, count in topics.items()))
        consumer = ConsumerGroupSettings(assignment_interval_ms=0, session_timeout_ms=SESSION_MS)
        self.settings = ShardSettings(
            group=ClassicGroupSettings(group_initial_rebalance_delay_ms=0),
            consumer=consumer._replace(**consumer_settings),
        )
        self.log: list[Record] = []
        self.answers: dict[int, Any] = {}
        self.calls = 0
        self.restart()

    def restart(self) -> None:
        """What a new coordinator makes of the log."""
        self.shard = GroupShard(self.settings, lambda: self.image)
        for record in self.log:
            self.shard.replay(record)
        self.take(self.shard.loaded(self.now_ms))

    def take(self, effects: Effects) -> None:
        self.log += effects.records
        for reply_to, response in effects.answers:
            assert isinstance(reply_to, int)
            assert reply_to not in self.answers, "answered twice"
            self.answers[reply_to] = response

    def _call(self) -> int:
        self.calls += 1
        return self.calls

    def pass_time(self, duration_ms: int) -> None:
        until_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.shard.expire(self.now_ms))
        self.now_ms = until_ms

    # The newer protocol.

    def beat(self, request: m.ConsumerGroupHeartbeatRequest) -> m.ConsumerGroupHeartbeatResponse:
        return self.answered(self.begin_to_beat(request))

    def begin_to_beat(self, request: m.ConsumerGroupHeartbeatRequest) -> int:
        """Returns the number under which the answer is found once there is one."""
        call = self._call()
        self.take(self.shard.consumer_heartbeat(request, consumer_requests.CLIENT, call, self.now_ms))
        return call

    def answered(self, call: int) -> m.ConsumerGroupHeartbeatResponse:
        response: m.ConsumerGroupHeartbeatResponse = self.answers[call]
        encode(response, 1)
        return response

    # The classic protocol. What it returns is the number under which the answer is found once there is one.

    def join(
        self,
        member_id: str = "",
        *,
        metadata: bytes,
        protocols: Sequence[str] = ("range",),
        instance_id: str | None = None,
        version: int = 9,
        session_timeout_ms: int = SESSION_MS,
        protocol_type: str = "consumer",
    ) -> int:
        request = m.JoinGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=protocol_type,
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
        )
        call = self._call()
        client = requests.client(f"{instance_id or 'made'}-{call}", version)
        self.take(self.shard.join(request, client, call, self.now_ms))
        return call

    def joined(self, call: int) -> m.JoinGroupResponse:
        response: m.JoinGroupResponse = self.answers[call]
        encode(response, 9)
        return response

    def sync(
        self, joined: m.JoinGroupResponse, given: Mapping[str, bytes] | None = None, instance_id: str | None = None
    ) -> int:
        request = m.SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=each)
                for member_id, each in (given or {}).items()
            ],
        )
        call = self._call()
        self.take(self.shard.sync(request, call, self.now_ms))
        return call

    def synced(self, call: int) -> Owned:
        response: m.SyncGroupResponse = self.answers[call]
        encode(response, 5)
        assert response.error_code == Error.NONE, Error(response.error_code)
        by_id = by_topic_id(read_assignment(bytes(response.assignment)).assigned_partitions, self.image.topics)
        return {self.image.topics.ids[topic_id].name: partitions for topic_id, partitions in by_id.items()}

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> Error:
        request = m.HeartbeatRequest(
            group_id=GROUP, member_id=member_id, generation_id=generation, group_instance_id=instance_id
        )
        call = self._call()
        self.take(self.shard.heartbeat(request, call, self.now_ms))
        return Error(self.answers[call].error_code)

    def leave(self, member_id: str, instance_id: str | None = None) -> Error:
        identity = m.LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
        call = self._call()
        self.take(self.shard.leave(m.LeaveGroupRequest(group_id=GROUP, members=[identity]), call, self.now_ms))
        return Error(self.answers[call].members[0].error_code)

    def classic_group(self, *shares: Mapping[str, Iterable[int]], topics: Sequence[str] = ("foo",)) -> list[str]:
        """A stable classic group of members that have these partitions; their ids."""
        ids = [self.joined(self.join(metadata=subscription(topics))).member_id for _ in shares]
        for _ in range(2):  # the first round lets the first member in on its own
            calls = [self.join(member_id, metadata=subscription(topics)) for member_id in ids]
            self.pass_time(0)
        joined = [self.joined(call) for call in calls]
        given = dict(zip(ids, map(assignment, shares), strict=True))
        syncs = [self.sync(each, given if each.leader == each.member_id else None) for each in joined]
        assert [self.synced(call) for call in syncs] == [
            {name: frozenset(partitions) for name, partitions in share.items()} for share in shares
        ]
        return ids

    def classic_members(self) -> list[ClassicMember]:
        group = self.shard._groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return list(group.members)

    # What others see.

    def state(self) -> tuple[str, str]:
        [listed] = self.shard.list_groups([], [])
        return listed.group_type, listed.group_state
