"""A member of a classic group: it joins, the leader assigns, and all members heartbeat until one joins or leaves.

By chance a member leaves, or dies without a word and comes back as another, or stalls for longer than its session and
then goes on as if nothing had happened, which is what generations are there to stop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.simulator.load.client import GaveUpError, Kind
from barnabas.testing.simulator.load.group_member import GIVE_UP_S, GroupMember, MembershipOverError
from barnabas.testing.simulator.load.history import Assignment, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.testing.simulator.load.client import ClusterClient
    from barnabas.testing.simulator.load.history import History

SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 5_000
HEARTBEAT_S: Final = 2.0
JOIN_TIMEOUT_S: Final = REBALANCE_MS / 1000 + 4.0
PROTOCOL_TYPE: Final = "consumer"
PROTOCOL: Final = "simulated"
PROTOCOL_VERSION: Final = 0
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5

LEAVES, DIES, STALLS = 0.02, 0.02, 0.03
"""How often, of 1, before a heartbeat."""


class ClassicMember(GroupMember):
    def __init__(
        self, client: ClusterClient, group: str, partitions: Sequence[TopicPartition], history: History
    ) -> None:
        super().__init__(client, group, partitions, history)
        self._partitions = tuple(partitions)
        self._generation = -1

    async def run(self) -> None:
        while not self.is_stopped:
            try:
                await self._rebalance()
                await self._belong()
            except (MembershipOverError, GaveUpError):
                self._owned = frozenset()
                await self.client.pause(1.0)
        await self._committer.see_the_end()

    async def _rebalance(self) -> None:
        """Joins, and learns what it owns in the new generation."""
        self._owned = frozenset()
        joined = await self._join()
        self._member_id, self._generation = joined.member_id, joined.generation_id
        sent_s = self.client.now_s
        answer = await self.client.ask_coordinator(
            Kind.GROUP,
            self.group,
            m.SyncGroupRequest(
                group_id=self.group,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=self._assign(joined) if joined.leader == self._member_id else [],
            ),
            version=SYNC_VERSION,
            give_up_s=GIVE_UP_S,
            timeout_s=JOIN_TIMEOUT_S,
        )
        response = answer.response
        if response.error_code:
            self._refused(Error(response.error_code))
        self._owned = _decode(response.assignment)
        self._history.generations.append(
            Assignment(
                self.group,
                self._member_id,
                self._generation,
                self._owned,
                answer.node,
                self.client.coordinator_epoch(answer.node, self.group),
                sent_s,
                self.client.now_s,
            )
        )

    async def _join(self) -> m.JoinGroupResponse:
        topics = sorted({each.topic for each in self._partitions})
        subscription = bytearray(PROTOCOL_VERSION.to_bytes(2, "big"))
        codec.writer(m.ConsumerProtocolSubscription, PROTOCOL_VERSION)(
            m.ConsumerProtocolSubscription(topics=topics, user_data=None), subscription
        )
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=bytes(subscription))
        while True:
            answer = await self.client.ask_coordinator(
                Kind.GROUP,
                self.group,
                m.JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    member_id=self._member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[protocol],
                ),
                version=JOIN_VERSION,
                give_up_s=GIVE_UP_S,
                timeout_s=JOIN_TIMEOUT_S,
            )
            response: m.JoinGroupResponse = answer.response
            error = Error(response.error_code)
            if error is Error.NONE:
                return response
            if error is Error.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
            else:
                self._refused(error)

    def _assign(self, joined: m.JoinGroupResponse) -> list[Any]:
        """As the leader: each partition to one of the members."""
        members = sorted(each.member_id for each in joined.members)
        owned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for number, partition in enumerate(self._partitions):
            owned[members[number % len(members)]].append(partition)
        assignment = m.SyncGroupRequest.SyncGroupRequestAssignment
        return [assignment(member_id=member, assignment=_encode(each)) for member, each in owned.items()]

    async def _belong(self) -> None:
        """Heartbeats and commits, until there is a rebalance or the membership is over."""
        client = self.client
        await self._committer.look()
        while not self.is_stopped:
            await asyncio.sleep(HEARTBEAT_S * client.chance.uniform(0.7, 1.3))
            luck = client.chance.random()
            if luck < LEAVES:
                await self._leave()
            elif luck < LEAVES + DIES:
                self._member_id = ""
                await client.pause(2 * SESSION_MS / 1000)
                raise MembershipOverError
            elif luck < LEAVES + DIES + STALLS:
                await asyncio.sleep(SESSION_MS / 1000 * client.chance.uniform(0.9, 2.5))
                await self._commit()
            if await self._heartbeat() is Error.REBALANCE_IN_PROGRESS:
                if client.chance.random() < 0.5:
                    await self._commit()
                return
            if client.chance.random() < 0.4:
                await self._commit()
        await self._leave()

    async def _heartbeat(self) -> Error:
        request = m.HeartbeatRequest(group_id=self.group, generation_id=self._generation, member_id=self._member_id)
        answer = await self.client.ask_coordinator(
            Kind.GROUP, self.group, request, version=HEARTBEAT_VERSION, give_up_s=GIVE_UP_S
        )
        error = Error(answer.response.error_code)
        if error is not Error.NONE and error is not Error.REBALANCE_IN_PROGRESS:
            self._refused(error)
        return error

    async def _commit(self) -> None:
        if self._owned:
            error = await self._committer.commit(self._owned, self._member_id, self._generation)
            if error in (Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID, Error.GROUP_ID_NOT_FOUND):
                self._refused(error)

    async def _leave(self) -> None:
        member = m.LeaveGroupRequest.MemberIdentity(member_id=self._member_id, group_instance_id=None)
        request = m.LeaveGroupRequest(group_id=self.group, members=[member])
        self._member_id = ""
        await self.client.ask_coordinator(Kind.GROUP, self.group, request, version=LEAVE_VERSION, give_up_s=GIVE_UP_S)
        raise MembershipOverError

    def _refused(self, error: Error) -> None:
        if error is not Error.ILLEGAL_GENERATION and error is not Error.REBALANCE_IN_PROGRESS:
            self._member_id = ""
        raise MembershipOverError


def _encode(partitions: Sequence[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    message = m.ConsumerProtocolAssignment(
        assigned_partitions=[
            m.ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic.items()
        ],
        user_data=None,
    )
    out = bytearray(PROTOCOL_VERSION.to_bytes(2, "big"))
    codec.writer(m.ConsumerProtocolAssignment, PROTOCOL_VERSION)(message, out)
    return bytes(out)


def _decode(assignment: bytes) -> frozenset[TopicPartition]:
    if not assignment:
        return frozenset()
    message = codec.decode(m.ConsumerProtocolAssignment, assignment, PROTOCOL_VERSION, 2)
    return frozenset(
        TopicPartition(topic.topic, number) for topic in message.assigned_partitions for number in topic.partitions
    )
