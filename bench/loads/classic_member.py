"""A member of a classic group that rebalances cooperatively: it goes on owning what it is not asked to give up.

The leader's assignor is as simple as the protocol allows: everybody keeps what it has up to its share, and what is free
goes to those who have less. What one member has above its share is free only once that member has given it up, one
rebalance later.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from bench.loads.channel import NOT_YET, RETRY_SECONDS, Channel
from bench.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.loads.ownership import Ownership
    from bench.loads.rolling import RollingLoad

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 1, 0
PROTOCOL_TYPE, PROTOCOL = "consumer", "cooperative-sticky"

_VERSION = struct.Struct(">h")


class ClassicMember:
    """Runs until it is told to leave."""

    def __init__(self, load: RollingLoad, ownership: Ownership, channel: Channel) -> None:
        self.epoch = -1
        """The generation that it is settled in; −1 while it takes part in a rebalance."""
        self.owned: set[int] = set()
        self._load = load
        self._ownership = ownership
        self._channel = channel
        self._member_id = ""
        self._leaving = asyncio.Event()

    def begin_to_leave(self) -> None:
        self._leaving.set()

    async def run(self) -> None:
        while not self._leaving.is_set():
            await self._rebalance()
            await self._heartbeat_until_something_changes()
        self._ownership.release(self._member_id, self.owned)
        self.owned = set()
        await self._leave()
        await self._channel.close()

    async def _rebalance(self) -> None:
        """Join and sync until a generation takes nothing away from this member."""
        while True:
            joined = await self._join()
            is_leader = joined.leader == joined.member_id
            assigned = await self._sync(joined, _assign(joined, self._load) if is_leader else {})
            if assigned is None:
                continue
            revoked = self.owned - assigned
            self._ownership.release(self._member_id, revoked)
            self._ownership.acquire(self._member_id, assigned - self.owned)
            self.owned = assigned
            if not revoked:
                self.epoch = joined.generation_id
                return

    async def _join(self) -> m.JoinGroupResponse:
        request = m.JoinGroupRequest
        while True:
            protocol = request.JoinGroupRequestProtocol(name=PROTOCOL, metadata=self._subscription())
            answer: m.JoinGroupResponse = await self._channel.send(
                request(
                    group_id=self._load.group,
                    member_id=self._member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[protocol],
                    session_timeout_ms=self._load.session_timeout_ms,
                    rebalance_timeout_ms=self._load.session_timeout_ms,
                ),
                JOIN_VERSION,
            )
            if answer.error_code == Error.NONE:
                return answer
            if answer.error_code == Error.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
            elif answer.error_code in NOT_YET:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                raise WireError(f"JoinGroup was refused: {Error(answer.error_code).name}")

    async def _sync(self, joined: m.JoinGroupResponse, assignments: Mapping[str, set[int]]) -> set[int] | None:
        """What this member may own now, or nothing where the next rebalance has begun already."""
        request = m.SyncGroupRequest
        answer: m.SyncGroupResponse = await self._channel.send(
            request(
                group_id=self._load.group,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=[
                    request.SyncGroupRequestAssignment(
                        member_id=member_id, assignment=_encode_assignment(self._load.topic, partitions)
                    )
                    for member_id, partitions in assignments.items()
                ],
            ),
            SYNC_VERSION,
        )
        if answer.error_code == Error.REBALANCE_IN_PROGRESS:
            return None
        if answer.error_code != Error.NONE:
            raise WireError(f"SyncGroup was refused: {Error(answer.error_code).name}")
        return _decode_assignment(answer.assignment)

    async def _heartbeat_until_something_changes(self) -> None:
        request = m.HeartbeatRequest(group_id=self._load.group, generation_id=self.epoch, member_id=self._member_id)
        while not await _is_set_within(self._leaving, self._load.heartbeat_seconds):
            answer: m.HeartbeatResponse = await self._channel.send(request, HEARTBEAT_VERSION)
            if answer.error_code == Error.REBALANCE_IN_PROGRESS:
                break
            if answer.error_code != Error.NONE:
                raise WireError(f"Heartbeat was refused: {Error(answer.error_code).name}")
        self.epoch = -1

    async def _leave(self) -> None:
        request = m.LeaveGroupRequest
        identity = request.MemberIdentity(member_id=self._member_id)
        asked = request(group_id=self._load.group, members=[identity])
        answer: m.LeaveGroupResponse = await self._channel.send(asked, LEAVE_VERSION)
        if answer.error_code != Error.NONE:
            raise WireError(f"LeaveGroup was refused: {Error(answer.error_code).name}")

    def _subscription(self) -> bytes:
        message = m.ConsumerProtocolSubscription
        owned = message.TopicPartition(topic=self._load.topic, partitions=sorted(self.owned))
        said = message(topics=[self._load.topic], owned_partitions=[owned] if self.owned else [])
        return _VERSION.pack(SUBSCRIPTION_VERSION) + codec.encode(said, SUBSCRIPTION_VERSION)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _assign(joined: m.JoinGroupResponse, load: RollingLoad) -> dict[str, set[int]]:
    """The leader's part: who may own what in this generation."""
    owned = {each.member_id: _owned_by(each.metadata) for each in joined.members}
    return assign_cooperatively(owned, load.partitions)


def assign_cooperatively(owned: Mapping[str, set[int]], partitions: int) -> dict[str, set[int]]:
    """Shares that differ by one at most, once everybody has given up what is too much."""
    share, larger = divmod(partitions, len(owned))
    free = sorted(set(range(partitions)).difference(*owned.values()), reverse=True)
    assigned: dict[str, set[int]] = {}
    # Who has most goes first, so that the larger shares cost as few moves as can be.
    for member_id in sorted(owned, key=lambda each: (-len(owned[each]), each)):
        size = share + (larger > 0)
        larger -= larger > 0
        kept = set(sorted(owned[member_id])[:size])
        assigned[member_id] = kept
        while len(kept) < size and free:
            kept.add(free.pop())
    return assigned


def _owned_by(metadata: bytes) -> set[int]:
    (version,) = _VERSION.unpack_from(metadata)
    said = codec.decode(m.ConsumerProtocolSubscription, metadata, version, _VERSION.size)
    return {partition for topic in said.owned_partitions for partition in topic.partitions}


def _encode_assignment(topic: str, partitions: set[int]) -> bytes:
    message = m.ConsumerProtocolAssignment
    assigned = [message.TopicPartition(topic=topic, partitions=sorted(partitions))] if partitions else []
    return _VERSION.pack(ASSIGNMENT_VERSION) + codec.encode(message(assigned_partitions=assigned), ASSIGNMENT_VERSION)


def _decode_assignment(data: bytes) -> set[int]:
    if not data:
        return set()
    (version,) = _VERSION.unpack_from(data)
    said = codec.decode(m.ConsumerProtocolAssignment, data, version, _VERSION.size)
    return {partition for topic in said.assigned_partitions for partition in topic.partitions}
