"""The members of a classic group as a table: by id and by instance id, who leads, and which protocols all share.

A rebalance of a thousand members asks after every join whether all have joined and what all support, so both are
counted as members come, change and go instead of being looked up.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.groups.classic_member import ClassicMember, InstanceId, MemberId, protocols_of, rebalance_timeout_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.coordination.effects import ReplyTo
    from barnabas.protocol import messages as m


class ClassicMembers:
    """Invariants: the leader is a member, and there is one as soon as there are members; an instance id stands for
    exactly one member; `joined_count` members wait for the answer to a JoinGroup request."""

    __slots__ = ("_by_id", "_id_of_instance", "_support", "joined_count", "leader_id")

    def __init__(self) -> None:
        self._by_id: dict[MemberId, ClassicMember] = {}
        self._id_of_instance: dict[InstanceId, MemberId] = {}
        self._support: Counter[str] = Counter()
        """How many members support a protocol."""
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
        """The member that currently goes by this instance id."""
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
        """Takes a member out. A leader hands over to the member that has been there longest."""
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._id_of_instance[member.instance_id]
        self._support.subtract(member.protocols.keys())
        self.joined_count -= member.waiting_for_join is not None
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._by_id), None)

    def replace(self, member: ClassicMember, new_id: MemberId) -> ClassicMember:
        """The same static member under a new id, with its assignment and its office. Nothing of it waits."""
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
        """A member that joins again says anew what it supports and how long it may take."""
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
        """Whoever is to be answered, if the member waits."""
        reply_to = member.waiting_for_join
        if reply_to is not None:
            member.waiting_for_join = None
            self.joined_count -= 1
        return reply_to

    def elect_joined_leader(self) -> bool:
        """Makes sure that a member which has joined leads, and says whether there is one."""
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
        """Of the protocols that all support, the one that most members like best. Among equals, the one that the
        longest-standing member who voted for one of them chose."""
        candidates = {name for name, count in self._support.items() if count == len(self._by_id)}
        votes = Counter(member.vote(candidates) for member in self)
        return votes.most_common(1)[0][0]
