"""One member of a classic group: who it is, what it can do, what it owns, and which request of it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NewType

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from barnabas.coordination.effects import ReplyTo
    from barnabas.protocol import messages as m

MemberId = NewType("MemberId", str)
InstanceId = NewType("InstanceId", str)
"""A member's `group.instance.id`, which makes it static: it comes back under a new member id as the same member."""

NO_MEMBER_ID: Final = MemberId("")
NO_ASSIGNMENT: Final = b""
NEVER_MS: Final = 1 << 63
"""A deadline that does not come."""


class ClientInfo(NamedTuple):
    """What a JoinGroup request does not say of its sender."""

    client_id: str
    host: str
    """The client's address as Kafka writes it: with a slash before it, as in `/127.0.0.1`."""
    version: int
    """Of the JoinGroup request."""
    new_member_id: str
    """For the member, should it have none yet: its instance id or else its client id, a dash, and a UUID."""


def protocols_of(request: m.JoinGroupRequest) -> dict[str, bytes]:
    """The protocols that a member supports, the one it likes best first, with its metadata for each.

    Of a name that comes twice the first one counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return protocols


def rebalance_timeout_of(request: m.JoinGroupRequest) -> int:
    """How long the member may take to rejoin. Version 0 has no such field: there the session timeout serves."""
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms


class ClassicMember:
    """Invariants: at most one of `waiting_for_join` and `waiting_for_sync` is set; a member that waits is alive
    whatever its session says, unless it `is_new`."""

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
        """It has not been answered yet, so it does not know its member id and cannot send heartbeats."""
        self.session_deadline_ms: int = NEVER_MS

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_alive_by_waiting(self) -> bool:
        return not self.is_new and (self.waiting_for_join is not None or self.waiting_for_sync is not None)

    def vote(self, candidates: Container[str]) -> str:
        """The candidate that this member likes best."""
        return next(name for name in self.protocols if name in candidates)

    def says_the_same(self, request: m.JoinGroupRequest) -> bool:
        """Whether the request repeats what is known of the member, in names, order and metadata."""
        return list(protocols_of(request).items()) == list(self.protocols.items())


def longest_rebalance_timeout_ms(members: Iterable[ClassicMember]) -> int:
    return max((member.rebalance_timeout_ms for member in members), default=0)
