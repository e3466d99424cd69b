"""All groups of one partition of `__consumer_offsets`: what its log adds up to, and the steps that add to the log.

A shard is first fed with the records of its log, `replay` by `replay`, and then told that it is `loaded`. From then on
every request is a step that changes the state at once and returns the records and answers it asks for (see `effects`).
Replaying those records gives the same groups and offsets again, except for what Kafka does not write down either: a
rebalance that is under way, and a group that is but a name for offsets when it has none left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.coordination.alarms import Alarms
from barnabas.coordination.effects import NO_PRODUCER_ID, Effects, ProducerId
from barnabas.groups import admin, offsets, records
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.classic_state import GroupSettings
from barnabas.groups.expiry import expired_offsets
from barnabas.groups.offsets import GroupOffsets
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.coordination.effects import Record, ReplyTo
    from barnabas.groups.classic_member import ClientInfo
    from barnabas.protocol.structs import Message
    from barnabas.protocol.uuids import Uuid

UNKNOWN_GROUP_HAS_ITS_OWN_ERROR_FROM: Final = 9
"""The first version of OffsetCommit that says of a group that there is none; before, its generation is called wrong."""

SWEPT_GROUPS_MAX: Final = 500
"""Groups that one step searches for expired offsets; those left wait for the next step, behind other work."""


class ShardSettings(NamedTuple):
    """What the broker's configuration says about groups and their offsets. Kafka's defaults."""

    group: GroupSettings = GroupSettings()
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4096


class GroupShard:
    """Invariants of a loaded shard: a group with offsets is in `_groups`, and a group in `_offsets` has some; a group
    with a deadline has an alarm no later than that."""

    __slots__ = ("_alarms", "_groups", "_loading", "_offsets", "_settings", "_sweep_at_ms", "_to_sweep", "_writers")

    def __init__(self, settings: ShardSettings) -> None:
        self._settings = settings
        self._groups: dict[str, ClassicGroup] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self._writers: dict[ProducerId, set[str]] = {}
        """The groups in which a producer's open transaction has written offsets."""
        self._loading: dict[str, m.GroupMetadataValue] = {}
        """What the log said last of each group, until it is all read: only then there are members with sessions."""
        self._alarms = Alarms()
        self._sweep_at_ms: int | None = None
        self._to_sweep: list[str] = []

    # Loading

    def replay(self, record: Record, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """Applies a record of the log, written in a transaction if there is a producer id. Only before `loaded`."""
        key, value = record
        if isinstance(key, m.OffsetCommitKey):
            if value is None:
                self._forget_offset(key.group, key.topic, key.partition)
            else:
                assert isinstance(value, m.OffsetCommitValue), value
                self._replay_commit(key, value, producer_id)
        elif isinstance(key, m.GroupMetadataKey):
            if value is None:
                self._loading.pop(key.group, None)
            else:
                assert isinstance(value, m.GroupMetadataValue), value
                self._loading[key.group] = value

    def commit_transaction(self, producer_id: ProducerId) -> None:
        """A marker in the log: what the producer wrote counts from here on."""
        for group_id in self._writers.pop(producer_id, ()):
            if (group_offsets := self._offsets.get(group_id)) is not None:
                group_offsets.commit_transaction(producer_id)

    def abort_transaction(self, producer_id: ProducerId) -> None:
        """A marker in the log: what the producer wrote never counted."""
        for group_id in self._writers.pop(producer_id, ()):
            if (group_offsets := self._offsets.get(group_id)) is not None:
                group_offsets.abort_transaction(producer_id)
                if group_offsets.is_empty:
                    del self._offsets[group_id]

    def loaded(self, now_ms: int) -> Effects:
        """The log is read: members have a session from now, and expired offsets are looked for."""
        for group_id, value in self._loading.items():
            self._add(ClassicGroup.from_record(group_id, value, self._settings.group, now_ms))
        self._loading.clear()
        for group_id in self._offsets.keys() - self._groups.keys():
            self._add(ClassicGroup(group_id, self._settings.group))
        self._sweep_at_ms = now_ms + self._settings.offsets_retention_check_interval_ms
        return Effects()

    # Members

    def join(self, request: m.JoinGroupRequest, client: ClientInfo, reply_to: ReplyTo, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        if group is not None:
            return self._watched(group, group.join(request, client, reply_to, now_ms))
        if request.member_id:
            refusal = m.JoinGroupResponse(member_id=request.member_id, error_code=Error.UNKNOWN_MEMBER_ID)
            return _answer(reply_to, refusal)
        group = ClassicGroup(request.group_id, self._settings.group)
        effects = group.join(request, client, reply_to, now_ms)
        if not _is_refused(effects):
            self._add(group)
            if not effects.records:
                effects.write(records.new_group(group.group_id, group.state_timestamp_ms))
        return effects

    def sync(self, request: m.SyncGroupRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        if group is None:
            return _answer(reply_to, m.SyncGroupResponse(error_code=Error.UNKNOWN_MEMBER_ID))
        return self._watched(group, group.sync(request, reply_to, now_ms))

    def heartbeat(self, request: m.HeartbeatRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        if group is None:
            return _answer(reply_to, m.HeartbeatResponse(error_code=Error.UNKNOWN_MEMBER_ID))
        return self._watched(group, group.heartbeat(request, reply_to, now_ms))

    def leave(self, request: m.LeaveGroupRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        if group is not None:
            return self._watched(group, group.leave(request, reply_to, now_ms))
        if request.member_id:  # up to version 2, which leaves for one member
            return _answer(reply_to, m.LeaveGroupResponse(error_code=Error.UNKNOWN_MEMBER_ID))
        members = [
            m.LeaveGroupResponse.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=Error.UNKNOWN_MEMBER_ID,
            )
            for member in request.members
        ]
        return _answer(reply_to, m.LeaveGroupResponse(members=members))

    # Offsets

    def commit_offsets(self, request: m.OffsetCommitRequest, version: int, reply_to: ReplyTo, now_ms: int) -> Effects:
        """Commits the offsets of topics that exist, each named and, where the broker knows it, with its id."""
        group = self._groups.get(request.group_id)
        error = _check_commit(group, request, version)
        if error is not Error.NONE:
            return _answer(reply_to, _commit_refused(request, error))
        effects = Effects()
        answer = m.OffsetCommitResponse()
        for topic in request.topics:
            answered = m.OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            answer.topics.append(answered)
            for partition in topic.partitions:
                error = self._check_metadata(partition)
                answered.partitions.append(_commit_answer(partition, error))
                if error is Error.NONE:
                    value = offsets.committed_value(partition, topic.topic_id, request.retention_time_ms, now_ms)
                    self._commit_offset(request.group_id, topic.name, partition.partition_index, value, effects)
        if group is not None:
            group.keep_alive(request.member_id, now_ms)
            self._watch(group)
        elif effects.records:
            self._add(ClassicGroup(request.group_id, self._settings.group))
        effects.answer(reply_to, answer)
        return effects

    def fetch_offsets(
        self, request: m.OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool
    ) -> m.OffsetFetchResponse.OffsetFetchResponseGroup:
        """The committed offsets of one group. One that does not exist has none, which is not an error."""
        known = self._offsets.get(request.group_id)
        return offsets.fetch(GroupOffsets() if known is None else known, request, require_stable=require_stable)

    def delete_offsets(self, request: m.OffsetDeleteRequest, reply_to: ReplyTo) -> Effects:
        group = self._groups.get(request.group_id)
        error = admin.check_offset_deletion(group)
        if group is None or error is not Error.NONE:
            return _answer(reply_to, m.OffsetDeleteResponse(error_code=error))
        effects = Effects()
        answer = m.OffsetDeleteResponse()
        for topic in request.topics:
            error = Error.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else Error.NONE
            answered = m.OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
            answer.topics.append(answered)
            for partition in topic.partitions:
                index = partition.partition_index
                answered.partitions.append(
                    m.OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                )
                if error is Error.NONE and self._has_offset(group.group_id, topic.name, index):
                    self._delete_offset(group.group_id, topic.name, index, effects)
        effects.answer(reply_to, answer)
        return effects

    def topics_deleted(self, topics: Mapping[str, Uuid]) -> Effects:
        """Deletes the offsets of topics that are gone. A commit to a younger topic of the same name stays."""
        effects = Effects()
        for group_id, group_offsets in list(self._offsets.items()):
            for topic, partition in group_offsets.partitions():
                if topic in topics:
                    value = group_offsets.get(topic, partition)
                    if value is None or value.topic_id in (ZERO_UUID, topics[topic]):
                        self._delete_offset(group_id, topic, partition, effects)
        return effects

    # Administration

    def list_groups(
        self, states_filter: Iterable[str], types_filter: Iterable[str]
    ) -> list[m.ListGroupsResponse.ListedGroup]:
        return admin.list_groups(self._groups.values(), states_filter, types_filter)

    def describe_groups(self, group_ids: Iterable[str], version: int) -> list[m.DescribeGroupsResponse.DescribedGroup]:
        return admin.describe_groups(self._groups, group_ids, version)

    def delete_groups(self, group_ids: Iterable[str], reply_to: ReplyTo) -> Effects:
        effects = Effects()
        answer = m.DeleteGroupsResponse()
        for group_id in dict.fromkeys(group_ids):
            error = admin.check_group_deletion(self._groups.get(group_id))
            answer.results.append(m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error))
            if error is Error.NONE:
                self._delete_group(group_id, effects)
        effects.answer(reply_to, answer)
        return effects

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` may next have something to do; never later than that."""
        deadlines = (self._alarms.next_ms, self._sweep_at_ms)
        return min((each for each in deadlines if each is not None), default=None)

    def expire(self, now_ms: int) -> Effects:
        effects = Effects()
        for group_id in self._alarms.take_due(now_ms):
            if (group := self._groups.get(group_id)) is not None:
                effects.extend(self._watched(group, group.expire(now_ms)))
        if self._sweep_at_ms is not None and now_ms >= self._sweep_at_ms:
            self._sweep(now_ms, effects)
        return effects

    def resign(self) -> Effects:
        """Another node leads the partition now: whoever waits is sent there. The shard is of no use any more."""
        effects = Effects()
        for group in self._groups.values():
            effects.extend(group.abandon(Error.NOT_COORDINATOR))
        self._groups.clear()
        self._alarms = Alarms()
        self._sweep_at_ms = None
        return effects

    def _sweep(self, now_ms: int, effects: Effects) -> None:
        """Deletes expired offsets, and groups that have neither members nor offsets."""
        if not self._to_sweep:
            self._to_sweep = list(self._groups)
        for group_id in self._to_sweep[-SWEPT_GROUPS_MAX:]:
            if (group := self._groups.get(group_id)) is not None:
                self._sweep_group(group, now_ms, effects)
        del self._to_sweep[-SWEPT_GROUPS_MAX:]
        pause_ms = 0 if self._to_sweep else self._settings.offsets_retention_check_interval_ms
        self._sweep_at_ms = now_ms + pause_ms

    def _sweep_group(self, group: ClassicGroup, now_ms: int, effects: Effects) -> None:
        group_offsets = self._offsets.get(group.group_id)
        if group_offsets is not None:
            for topic, partition in expired_offsets(group, group_offsets, now_ms, self._settings.offsets_retention_ms):
                self._delete_offset(group.group_id, topic, partition, effects)
        if group.group_id not in self._offsets and group.is_empty and not group.pending_deadlines_ms:
            self._delete_group(group.group_id, effects)

    def _add(self, group: ClassicGroup) -> None:
        self._groups[group.group_id] = group
        self._watch(group)

    def _watch(self, group: ClassicGroup) -> None:
        if (deadline_ms := group.next_deadline_ms) is not None:
            self._alarms.set(group.group_id, deadline_ms)

    def _watched(self, group: ClassicGroup, effects: Effects) -> Effects:
        """Passes a group's step on, having looked whether something is due sooner now."""
        self._watch(group)
        return effects

    def _offsets_of(self, group_id: str) -> GroupOffsets:
        """A group's offsets, to add to."""
        if (group_offsets := self._offsets.get(group_id)) is None:
            group_offsets = self._offsets[group_id] = GroupOffsets()
        return group_offsets

    def _has_offset(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is an offset to delete, be it one that a transaction is about to commit."""
        group_offsets = self._offsets.get(group_id)
        if group_offsets is None:
            return False
        return group_offsets.get(topic, partition) is not None or not group_offsets.is_stable(topic, partition)

    def _replay_commit(self, key: m.OffsetCommitKey, value: m.OffsetCommitValue, producer_id: ProducerId) -> None:
        group_offsets = self._offsets_of(key.group)
        if producer_id == NO_PRODUCER_ID:
            group_offsets.commit(key.topic, key.partition, value)
        else:
            group_offsets.write(producer_id, key.topic, key.partition, value)
            self._writers.setdefault(producer_id, set()).add(key.group)

    def _commit_offset(
        self, group_id: str, topic: str, partition: int, value: m.OffsetCommitValue, effects: Effects
    ) -> None:
        effects.write(records.offset_commit(group_id, topic, partition, value))
        self._offsets_of(group_id).commit(topic, partition, value)

    def _delete_offset(self, group_id: str, topic: str, partition: int, effects: Effects) -> None:
        effects.write(records.offset_tombstone(group_id, topic, partition))
        self._forget_offset(group_id, topic, partition)

    def _forget_offset(self, group_id: str, topic: str, partition: int) -> None:
        if (group_offsets := self._offsets.get(group_id)) is not None:
            group_offsets.remove(topic, partition)
            if group_offsets.is_empty:
                del self._offsets[group_id]

    def _delete_group(self, group_id: str, effects: Effects) -> None:
        if (group_offsets := self._offsets.get(group_id)) is not None:
            for topic, partition in group_offsets.partitions():
                self._delete_offset(group_id, topic, partition, effects)
        effects.write(records.group_tombstone(group_id))
        del self._groups[group_id]

    def _check_metadata(self, partition: m.OffsetCommitRequest.OffsetCommitRequestPartition) -> Error:
        fits = offsets.metadata_fits(partition.committed_metadata, self._settings.offset_metadata_max_bytes)
        return Error.NONE if fits else Error.OFFSET_METADATA_TOO_LARGE


def _answer(reply_to: ReplyTo, response: Message) -> Effects:
    effects = Effects()
    effects.answer(reply_to, response)
    return effects


def _is_refused(effects: Effects) -> bool:
    """Whether a first join left no trace in its group: neither a member nor the promise of one."""
    return any(
        isinstance(response, m.JoinGroupResponse) and response.error_code not in (Error.NONE, Error.MEMBER_ID_REQUIRED)
        for _, response in effects.answers
    )


def _check_commit(group: ClassicGroup | None, request: m.OffsetCommitRequest, version: int) -> Error:
    generation = request.generation_id_or_member_epoch
    if group is not None:
        return group.check_commit(request.member_id, request.group_instance_id, generation)
    if generation < 0:
        return Error.NONE  # a consumer that assigns itself its partitions, or an administrator
    if version < UNKNOWN_GROUP_HAS_ITS_OWN_ERROR_FROM:
        return Error.ILLEGAL_GENERATION
    return Error.GROUP_ID_NOT_FOUND


def _commit_answer(
    partition: m.OffsetCommitRequest.OffsetCommitRequestPartition, error: Error
) -> m.OffsetCommitResponse.OffsetCommitResponsePartition:
    return m.OffsetCommitResponse.OffsetCommitResponsePartition(
        partition_index=partition.partition_index, error_code=error
    )


def _commit_refused(request: m.OffsetCommitRequest, error: Error) -> m.OffsetCommitResponse:
    topics = [
        m.OffsetCommitResponse.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[_commit_answer(partition, error) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    return m.OffsetCommitResponse(topics=topics)
