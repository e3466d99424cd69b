"""One member of a consumer group: its identity, its subscription, and how far it has got with its assignment.

A member's epoch is that of the target assignment it has reached. It stays behind while it has partitions to revoke:

    STABLE                it owns all partitions of its target
    UNREVOKED_PARTITIONS  it was told to revoke partitions and has not confirmed that yet
    UNRELEASED_PARTITIONS it waits for partitions that other members have yet to revoke

Members are immutable values: a change makes a new one, so that the states before and after can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from barnabas.protocol import messages as m

Owned: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""The partitions of a member by topic, each with the epoch in which it got it. A topic without partitions is left
out."""

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""Sent by a static member that leaves for a while, and its epoch until it returns."""

NOTHING_OWNED: Final[Owned] = MappingProxyType({})
NO_REGEX: Final = ""
NO_REBALANCE_TIMEOUT: Final = -1


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """From a record of a later version, which has more states."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:  # noqa: ARG003 (the signature is Enum's)
        return cls.UNKNOWN


class ConsumerMember(NamedTuple):
    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """The member may still send this one, if it did not get the answer that advanced it."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str | None = NO_REGEX
    server_assignor: str | None = None
    assigned: Owned = NOTHING_OWNED
    pending_revocation: Owned = NOTHING_OWNED
    """Partitions that it was told to revoke, and still owns."""
    classic: m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None
    """Set for a member that uses the classic protocol: its session timeout and its protocols."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    @property
    def regex(self) -> str | None:
        """The regular expression that it is subscribed to, if any."""
        return self.subscribed_regex or None

    @property
    def held(self) -> dict[Uuid, set[int]]:
        """All partitions that it may read now, including those it has to revoke."""
        held: dict[Uuid, set[int]] = {}
        for owned in (self.assigned, self.pending_revocation):
            for topic_id, partitions in owned.items():
                held.setdefault(topic_id, set()).update(partitions)
        return held

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def epoch_of(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch since which it owns a partition, even one that it has to revoke; None if it does not."""
        for owned in (self.assigned, self.pending_revocation):
            partitions = owned.get(topic_id)
            if partitions is not None and partition in partitions:
                return partitions[partition]
        return None

    def at_epoch(self, epoch: int) -> ConsumerMember:
        return self._replace(epoch=epoch, previous_epoch=self.epoch)
