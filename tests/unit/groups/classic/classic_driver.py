"""Drives a classic group as a broker would, with a clock that stands still until it is told to move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.groups.classic.classic_group import ClassicGroup, ClassicGroupSettings, ClassicGroupState
from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.coordination.effects import Effects, Record

R = TypeVar("R", bound=m.Message)

START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_MS = 3_000
RANGE_AND_ROUND_ROBIN = (("range", b"R"), ("roundrobin", b"RR"))


class Call(Generic[R]):
    """A request that a group has been given: what it answers, once it does, and never twice."""

    def __init__(self) -> None:
        self.answer: R | None = None

    @property
    def waits(self) -> bool:
        return self.answer is None

    @property
    def response(self) -> R:
        assert self.answer is not None, "the group has not answered"
        return self.answer


class Driver:
    def __init__(self, settings: ClassicGroupSettings | None = None) -> None:
        self.now_ms = START_MS
        self.settings = settings or ClassicGroupSettings(group_initial_rebalance_delay_ms=INITIAL_DELAY_MS)
        self.group = ClassicGroup("readers", self.settings)
        self.records: list[Record] = []
        self.ids_made = 0
        self.unanswered: set[Call[Any]] = set()

    def call(self) -> Call[Any]:
        call: Call[Any] = Call()
        self.unanswered.add(call)
        return call

    def take(self, effects: Effects) -> None:
        self.records.extend(effects.records)
        for reply_to, response in effects.answers:
            assert isinstance(reply_to, Call)
            assert reply_to.answer is None, f"answered twice: {reply_to.answer} and {response}"
            reply_to.answer = response
            self.unanswered.discard(reply_to)

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = RANGE_AND_ROUND_ROBIN,
        protocol_type: str = "consumer",
        version: int = 9,
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
    ) -> Call[m.JoinGroupResponse]:
        request = m.JoinGroupRequest(
            group_id="readers",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
        )
        self.ids_made += 1
        client = ClientInfo("app", "/10.0.0.1", version, f"{instance_id or 'app'}-{self.ids_made}")
        call: Call[m.JoinGroupResponse] = self.call()
        self.take(self.group.join(request, client, call, self.now_ms))
        if not call.waits:
            encode(call.response, version)
        return call

    def enter(self, *, protocols: Sequence[tuple[str, bytes]] = RANGE_AND_ROUND_ROBIN) -> Call[m.JoinGroupResponse]:
        """A dynamic member comes in as clients do: it asks for an id and joins with it."""
        first = self.join(protocols=protocols).response
        assert first.error_code == Error.MEMBER_ID_REQUIRED
        return self.join(first.member_id, protocols=protocols)

    def sync(
        self,
        joined: m.JoinGroupResponse,
        *,
        assignments: dict[str, bytes] | None = None,
        instance_id: str | None = None,
        generation: int | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = None,
    ) -> Call[m.SyncGroupResponse]:
        request = m.SyncGroupRequest(
            group_id="readers",
            generation_id=joined.generation_id if generation is None else generation,
            member_id=joined.member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        call: Call[m.SyncGroupResponse] = self.call()
        self.take(self.group.sync(request, call, self.now_ms))
        return call

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> Error:
        request = m.HeartbeatRequest(
            group_id="readers",
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        call: Call[m.HeartbeatResponse] = self.call()
        self.take(self.group.heartbeat(request, call, self.now_ms))
        return Error(call.response.error_code)

    def leave(self, *identities: tuple[str, str | None]) -> list[Error]:
        members = [
            m.LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in identities
        ]
        call: Call[m.LeaveGroupResponse] = self.call()
        self.take(self.group.leave(m.LeaveGroupRequest(group_id="readers", members=members), call, self.now_ms))
        assert call.response.error_code == Error.NONE
        return [Error(member.error_code) for member in call.response.members]

    def pass_time(self, duration_ms: int) -> None:
        """Moves the clock, and wakes the group at each time that it has asked for."""
        until_ms = self.now_ms + duration_ms
        while (deadline_ms := self.group.next_deadline_ms) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.group.expire(self.now_ms))
        self.now_ms = until_ms

    def restart(self) -> None:
        """What a new coordinator makes of the records. Whoever was waiting has lost its connection."""
        self.unanswered.clear()
        self.group = ClassicGroup("readers", self.settings)
        if self.records:
            value = self.records[-1].value
            assert isinstance(value, m.GroupMetadataValue)
            self.group = ClassicGroup.from_record("readers", value, self.settings, self.now_ms)

    def settle(self, *calls: Call[m.JoinGroupResponse], instance_ids: Sequence[str] = ()) -> list[m.JoinGroupResponse]:
        """Lets the joins be answered and the leader assign to each member the bytes of its own id."""
        if any(call.waits for call in calls):
            self.pass_time(2 * INITIAL_DELAY_MS)
        joined = [call.response for call in calls]
        assignments = {response.member_id: response.member_id.encode() for response in joined}
        instance_of = dict(zip((response.member_id for response in joined), instance_ids, strict=bool(instance_ids)))
        syncs = [
            self.sync(
                response,
                assignments=assignments if response.leader == response.member_id else None,
                instance_id=instance_of.get(response.member_id),
            )
            for response in joined
        ]
        for response, sync in zip(joined, syncs, strict=True):
            assert sync.response.error_code == Error.NONE
            assert sync.response.assignment == assignments[response.member_id]
        assert self.group.state is ClassicGroupState.STABLE
        return joined

    def stable(self, count: int) -> list[m.JoinGroupResponse]:
        """A stable group of so many dynamic members, the leader first."""
        return self.settle(*[self.enter() for _ in range(count)])
