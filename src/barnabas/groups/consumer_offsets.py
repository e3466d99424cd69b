"""Who may commit and fetch the offsets of a consumer group.

A commit of the member's own epoch is taken as it is. One of an earlier epoch may come from a member that has not heard
yet of the next one: it is taken for partitions that the member has owned since that epoch or longer, because nobody
else can have read them meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.groups.consumer_group import ConsumerGroup
    from barnabas.groups.consumer_member import ConsumerMember
    from barnabas.protocol.uuids import Uuid

COMMIT_WITH_MEMBER_EPOCH: Final = 9
"""The first version of OffsetCommit in which the generation may be a member's epoch."""


def check_commit(group: ConsumerGroup, member_id: str, epoch: int, version: int) -> Error:
    """Whether an offset commit may be taken, as far as that does not depend on the partition."""
    if epoch < 0 and group.is_empty:
        return Error.NONE
    member = group.members.get(member_id)
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    if version < COMMIT_WITH_MEMBER_EPOCH and not member.uses_classic_protocol:
        return Error.UNSUPPORTED_VERSION
    return _stale(member) if epoch > member.epoch else Error.NONE


def check_transactional_commit(group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int) -> Error:
    """The same for a producer's transaction, which may leave out who its consumer is."""
    if epoch < 0 and (group.is_empty or (epoch == -1 and not member_id and instance_id is None)):
        return Error.NONE
    member = group.members.get(member_id)
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    return Error.ILLEGAL_GENERATION if epoch > member.epoch else Error.NONE


def check_partition(group: ConsumerGroup, member_id: str, epoch: int, topic_id: Uuid, partition: int) -> Error:
    """Whether a commit that was not refused as a whole may be taken for a partition."""
    member = group.members.get(member_id)
    if member is None or epoch == member.epoch:
        return Error.NONE
    owned_since = member.epoch_of(topic_id, partition)
    return _stale(member) if owned_since is None or epoch < owned_since else Error.NONE


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> Error:
    """Whether a member may be told the offsets. Whoever does not say that it is one may."""
    if member_id is None and epoch < 0:
        return Error.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    return Error.NONE if epoch == member.epoch else _stale(member)


def _stale(member: ConsumerMember) -> Error:
    return Error.ILLEGAL_GENERATION if member.uses_classic_protocol else Error.STALE_MEMBER_EPOCH
