"""One member of a consumer group: who it is, what it wants to read, and how far it has come with its assignment.

A member's epoch is that of the target assignment it has reached. It stays behind while it has partitions to give up:

    STABLE                it owns its target, or as much of it as there is
    UNREVOKED_PARTITIONS  it was told to give up partitions and has not said yet that it did
    UNRELEASED_PARTITIONS it waits for partitions that others have yet to give up

Members are values: whatever happens to one makes another. That lets a group be compared with its own past.
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
"""Partitions of a member by topic, each with the epoch in which the member got it. No topic is without partitions."""

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that goes away for a while: it sends it, and has it until its instance is back."""

NOTHING_OWNED: Final[Owned] = MappingProxyType({})
NO_REGEX: Final = ""
NO_REBALANCE_TIMEOUT: Final = -1


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """Of a record that a later version wrote, in which there are more states."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:  # noqa: ARG003 (the signature is Enum's)
        return cls.UNKNOWN


class ConsumerMember(NamedTuple):
    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """The one before, which the member may still name if it did not get the answer that moved it on."""
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
    """What it has been told to give up. It still owns that."""
    classic: m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None
    """Of a member that speaks the classic protocol: its session timeout, and what it said when it joined."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    @property
    def regex(self) -> str | None:
        """The regular expression that it is subscribed to, if it is to one."""
        return self.subscribed_regex or None

    @property
    def held(self) -> dict[Uuid, set[int]]:
        """All that it may read now, with what it has to give up."""
        held: dict[Uuid, set[int]] = {}
        for owned in (self.assigned, self.pending_revocation):
            for topic_id, partitions in owned.items():
                held.setdefault(topic_id, set()).update(partitions)
        return held

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def epoch_of(self, topic_id: Uuid, partition: int) -> int | None:
        """Since which epoch it owns a partition, be it one that it has to give up; None if it does not."""
        for owned in (self.assigned, self.pending_revocation):
            partitions = owned.get(topic_id)
            if partitions is not None and partition in partitions:
                return partitions[partition]
        return None

    def at_epoch(self, epoch: int) -> ConsumerMember:
        return self._replace(epoch=epoch, previous_epoch=self.epoch)
