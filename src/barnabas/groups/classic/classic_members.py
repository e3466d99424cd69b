"""The members of a classic group, and their table: by id and by instance id, the leader, and which protocols all share.

A rebalance of a thousand members asks after every join whether all have joined and what all support, so both are
counted as members come, change and go instead of being computed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, NewType

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from barnabas.coordination.effects import ReplyTo
    from barnabas.protocol import messages as m

MemberId = NewType("MemberId", str)
InstanceId = NewType("InstanceId", str)
"""A member's `group.instance.id`, which makes it static: under a new member id it is still the same member."""

NO_MEMBER_ID: Final = MemberId("")
NO_ASSIGNMENT: Final = b""
NEVER_MS: Final = 1 << 63
"""A deadline that never passes."""


class ClientInfo(NamedTuple):
    """What a request to join a group does not say about its sender."""

    client_id: str
    host: str
    """The client's address as Kafka writes it, with a leading slash: `/127.0.0.1`."""
    version: int
    """The version of the request."""
    new_member_id: str
    """A member id, in case the member has none yet: its instance id or else its client id, a dash, and a UUID."""


def protocols_of(request: m.JoinGroupRequest) -> dict[str, bytes]:
    """The protocols that a member supports, in order of preference, with its metadata for each.

    If a name occurs twice, the first one counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return protocols


def rebalance_timeout_of(request: m.JoinGroupRequest) -> int:
    """How long the member may take to rejoin: the session timeout in version 0, which has no field for it."""
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms


class ClassicMember:
    """One member: its identity, the protocols it supports, its assignment, and its request that waits.

    Invariants: at most one of `waiting_for_join` and `waiting_for_sync` is set; the session of a waiting member does
    not expire, unless it `is_new`."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_deadline_ms",
        "session_timeout_ms",
        "waiting_for_join",
        "waiting_for_sync",
    )

    def __init__(
        self,
        member_id: MemberId,
        instance_id: InstanceId | None,
        *,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Mapping[str, bytes],
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.waiting_for_join: ReplyTo | None = None
        self.waiting_for_sync: ReplyTo | None = None
        self.is_new = False
        """Its first join is not answered yet, so that it does not know its member id and cannot send heartbeats."""
        self.session_deadline_ms: int = NEVER_MS

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_alive_by_waiting(self) -> bool:
        return not self.is_new and (self.waiting_for_join is not None or self.waiting_for_sync is not None)

    def vote(self, candidates: Container[str]) -> str:
        """The candidate that this member prefers."""
        return next(name for name in self.protocols if name in candidates)

    def says_the_same(self, request: m.JoinGroupRequest) -> bool:
        """Whether the request has the same protocols as the member, in name, order and metadata."""
        return list(protocols_of(request).items()) == list(self.protocols.items())


class ClassicMembers:
    """Invariants: the leader is a member, and there is one whenever there are members; an instance id belongs to
    exactly one member; `joined_count` members wait for the answer to a JoinGroup request."""

    __slots__ = ("_by_id", "_id_of_instance", "_support", "joined_count", "leader_id")

    def __init__(self) -> None:
        self._by_id: dict[MemberId, ClassicMember] = {}
        self._id_of_instance: dict[InstanceId, MemberId] = {}
        self._support: Counter[str] = Counter()
        """How many members support each protocol."""
        self.joined_count = 0
        self.leader_id: MemberId | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._by_id[MemberId(member_id)]

    def get(self, member_id: str) -> ClassicMember | None:
        return self._by_id.get(MemberId(member_id))

    def of_instance(self, instance_id: str | None) -> ClassicMember | None:
        """The member that currently has this instance id."""
        member_id = None if instance_id is None else self._id_of_instance.get(InstanceId(instance_id))
        return None if member_id is None else self._by_id[member_id]

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self._by_id, member.member_id
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._id_of_instance, member.instance_id
            self._id_of_instance[member.instance_id] = member.member_id
        self._support.update(member.protocols.keys())
        self.joined_count += member.waiting_for_join is not None
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: ClassicMember) -> None:
        """Removes a member. If it led, the member that has been in the group longest takes over."""
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._id_of_instance[member.instance_id]
        self._support.subtract(member.protocols.keys())
        self.joined_count -= member.waiting_for_join is not None
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._by_id), None)

    def replace(self, member: ClassicMember, new_id: MemberId) -> ClassicMember:
        """The same static member under a new id. It keeps its assignment and leadership, and has no request that
        waits."""
        leads = self.leader_id == member.member_id
        self.remove(member)
        successor = ClassicMember(
            new_id,
            member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=member.protocols,
            assignment=member.assignment,
        )
        self.add(successor)
        if leads:
            self.leader_id = new_id
        return successor

    def update(self, member: ClassicMember, request: m.JoinGroupRequest) -> None:
        """A member that rejoins states its protocols and timeouts anew."""
        self._support.subtract(member.protocols.keys())
        member.protocols = protocols_of(request)
        self._support.update(member.protocols.keys())
        member.rebalance_timeout_ms = rebalance_timeout_of(request)
        member.session_timeout_ms = request.session_timeout_ms

    def let_wait_for_join(self, member: ClassicMember, reply_to: ReplyTo) -> None:
        assert member.waiting_for_join is None, member.member_id
        member.waiting_for_join = reply_to
        self.joined_count += 1

    def end_wait_for_join(self, member: ClassicMember) -> ReplyTo | None:
        """The request to be answered, if the member waits."""
        reply_to = member.waiting_for_join
        if reply_to is not None:
            member.waiting_for_join = None
            self.joined_count -= 1
        return reply_to

    def elect_joined_leader(self) -> bool:
        """Makes a member the leader that has joined, and returns whether there is one."""
        if self.leader_id is None:
            return False
        if self._by_id[self.leader_id].waiting_for_join is None:
            joined = next((member.member_id for member in self if member.waiting_for_join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    def all_support_one_of(self, protocol_names: Iterable[str]) -> bool:
        return any(self._support[name] == len(self._by_id) for name in protocol_names)

    def select_protocol(self) -> str:
        """Of the protocols that all members support, the one that most prefer. A tie goes to the vote of the member
        that has been in the group longest."""
        candidates = {name for name, count in self._support.items() if count == len(self._by_id)}
        votes = Counter(member.vote(candidates) for member in self)
        return votes.most_common(1)[0][0]


def longest_rebalance_timeout_ms(members: Iterable[ClassicMember]) -> int:
    return max((member.rebalance_timeout_ms for member in members), default=0)
