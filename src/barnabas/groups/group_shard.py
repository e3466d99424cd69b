"""All groups of one partition of `__consumer_offsets`: its log, replayed, and the steps that add to it.

A shard first replays the records of its log (`replay`), and then learns that it has `loaded` them all. From then on
every request is a step that changes the state at once and returns the records, answers and actions that it asks for
(see `coordination/effects`). Replaying those records gives the same groups and offsets again, except for what Kafka
does not write either: a rebalance of a classic group that is under way, and a group that was only a name for offsets
and has none left.

A group is classic, with an assignment that its members make (`classic/`), or a consumer group, with one that the broker
makes (`consumer/`). The first member to join an empty group decides which.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.coordination.effects import NO_PRODUCER_ID, Alarms, Effects, ProducerId
from barnabas.groups import conversion, group_records, group_views
from barnabas.groups.classic import classic_answers
from barnabas.groups.classic.classic_group import ClassicGroup, ClassicGroupSettings
from barnabas.groups.consumer import (
    classic_in_consumer,
    fencing,
    gathered_joins,
    heartbeat,
    regex_subscriptions,
)
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.groups.consumer.consumer_member import JOIN_EPOCH
from barnabas.groups.consumer.metadata_hash import TopicHashes
from barnabas.groups.consumer.step_context import ConsumerGroupSettings, StepContext, TopicsWatch
from barnabas.groups.consumer.target_assignment import await_target, update_target
from barnabas.groups.offsets import commits, group_offsets
from barnabas.groups.offsets.commits import OffsetCommits
from barnabas.groups.offsets.offset_expiry import expired_offsets
from barnabas.groups.offsets.shard_offsets import ShardOffsets
from barnabas.metadata.image import MetadataImage
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.coordination.effects import Record, ReplyTo
    from barnabas.groups.classic.classic_members import ClientInfo
    from barnabas.groups.consumer.regex_subscriptions import ResolveRegexes
    from barnabas.groups.group_views import Group
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.uuids import Uuid

SWEPT_GROUPS_MAX: Final = 500
"""Groups that one step checks for expired offsets; the rest wait for the next step, behind other work."""


class ShardSettings(NamedTuple):
    """The broker's configuration of groups and their offsets. Kafka's defaults."""

    group: ClassicGroupSettings = ClassicGroupSettings()
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4096


def no_metadata() -> MetadataImage:
    """A cluster without topics, which is all that classic groups need."""
    return MetadataImage(cluster_id="")


class GroupShard:
    """Invariants of a loaded shard: a group with offsets is in `_groups`; a group with a deadline has an alarm at that
    time or earlier."""

    __slots__ = (
        "_alarms",
        "_commits",
        "_groups",
        "_hashes",
        "_image",
        "_loading",
        "_offsets",
        "_settings",
        "_sweep_at_ms",
        "_to_sweep",
        "_watch_topics",
    )

    def __init__(self, settings: ShardSettings, image: Callable[[], MetadataImage] = no_metadata) -> None:
        self._settings = settings
        self._image = image
        """The cluster's metadata now."""
        self._groups: dict[str, Group] = {}
        self._offsets = ShardOffsets()
        self._commits = OffsetCommits(self._offsets, settings.offset_metadata_max_bytes)
        self._hashes = TopicHashes()
        self._watch_topics = TopicsWatch()
        self._loading: dict[str, m.GroupMetadataValue] = {}
        """The latest record of each classic group, until all of the log is replayed: only then do sessions begin."""
        self._alarms = Alarms()
        self._sweep_at_ms: int | None = None
        self._to_sweep: list[str] = []

    # Loading

    def replay(self, record: Record, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """Applies a record of the log, which was written in a transaction if it has a producer id. Only before
        `loaded`."""
        key, value = record
        if isinstance(key, m.OffsetCommitKey):
            assert value is None or isinstance(value, m.OffsetCommitValue), value
            self._offsets.replay(key, value, producer_id)
        elif isinstance(key, m.GroupMetadataKey):
            if value is None:
                self._loading.pop(key.group, None)
            else:
                assert isinstance(value, m.GroupMetadataValue), value
                self._loading[key.group] = value
        else:
            self._replay_consumer_group(group_records.consumer_group_id(key), record)

    def _replay_consumer_group(self, group_id: str, record: Record) -> None:
        group = self._groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self._groups[group_id] = ConsumerGroup(group_id)
        assert isinstance(group, ConsumerGroup), group
        group.replay(record)
        if group.is_dead:
            del self._groups[group_id]

    def commit_transaction(self, producer_id: ProducerId) -> None:
        """A commit marker in the log: the producer's offsets count from here on."""
        self._offsets.commit_transaction(producer_id)

    def abort_transaction(self, producer_id: ProducerId) -> None:
        """An abort marker in the log: the producer's offsets are dropped."""
        self._offsets.abort_transaction(producer_id)

    def loaded(self, now_ms: int) -> Effects:
        """All of the log is replayed: the sessions of members begin, and the checks for expired offsets."""
        for group in self._groups.values():
            assert isinstance(group, ConsumerGroup), group
            group.loaded(self._context(group.group_id, now_ms).settings.session_timeout_ms, now_ms)
            self._watch(group)
        for group_id, value in self._loading.items():
            if group_id not in self._groups:
                self._add(ClassicGroup.from_record(group_id, value, self._settings.group, now_ms))
        self._loading.clear()
        for group_id in self._offsets.group_ids - self._groups.keys():
            self._add(ClassicGroup(group_id, self._settings.group))
        self._sweep_at_ms = now_ms + self._settings.offsets_retention_check_interval_ms
        return Effects()

    def reconfigure(self, settings: ShardSettings) -> Effects:
        """Takes changed settings. Classic groups keep those that they were created with."""
        self._settings = settings
        self._commits = OffsetCommits(self._offsets, settings.offset_metadata_max_bytes)
        return Effects()

    # Members of classic groups

    def join(self, request: m.JoinGroupRequest, client: ClientInfo, reply_to: ReplyTo, now_ms: int) -> Effects:
        known = self._groups.get(request.group_id)
        if isinstance(known, ClassicGroup):
            return self._watched(known, known.join(request, client, reply_to, now_ms))
        if known is not None and not known.is_empty:
            now, effects = self._context(request.group_id, now_ms), Effects()
            classic_in_consumer.join(known, request, client, reply_to, now, effects)
            return self._stepped(known, now, effects)
        if request.member_id:
            is_in_range = self._settings.group.accepts_session_timeout(request.session_timeout_ms)
            error = Error.UNKNOWN_MEMBER_ID if is_in_range else Error.INVALID_SESSION_TIMEOUT
            return _answer(reply_to, m.JoinGroupResponse(member_id=request.member_id, error_code=error))
        group = ClassicGroup(request.group_id, self._settings.group)
        joined = group.join(request, client, reply_to, now_ms)
        if _is_refused(joined):
            return joined
        effects = Effects()
        if known is not None:
            group_views.delete_group(known, effects)
        self._add(group)
        if not joined.records:
            effects.write(
                group_records.new_group(group.group_id, group.state_timestamp_ms), partial(self._forget_new, group)
            )
        effects.extend(joined)
        return effects

    def _forget_new(self, group: ClassicGroup, error: Error, _now_ms: int) -> Effects:
        """That there is a group could not be written."""
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]
        return group.abandon(error)

    def sync(self, request: m.SyncGroupRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        if group is None:
            return _answer(reply_to, m.SyncGroupResponse(error_code=Error.UNKNOWN_MEMBER_ID))
        if isinstance(group, ClassicGroup):
            return self._watched(group, group.sync(request, reply_to, now_ms))
        now, effects = self._context(request.group_id, now_ms), Effects()
        classic_in_consumer.sync(group, request, reply_to, now, effects)
        return self._stepped(group, now, effects)

    def heartbeat(self, request: m.HeartbeatRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        if group is None:
            return _answer(reply_to, m.HeartbeatResponse(error_code=Error.UNKNOWN_MEMBER_ID))
        if isinstance(group, ClassicGroup):
            return self._watched(group, group.heartbeat(request, reply_to, now_ms))
        now, effects = self._context(request.group_id, now_ms), Effects()
        classic_in_consumer.heartbeat(group, request, reply_to, now, effects)
        return self._stepped(group, now, effects)

    def leave(self, request: m.LeaveGroupRequest, reply_to: ReplyTo, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._watched(group, group.leave(request, reply_to, now_ms))
        if group is not None:
            effects = Effects()
            now = self._context(group.group_id, now_ms)
            effects.answer(reply_to, fencing.remove_members(group, request, now, effects))
            return self._stepped(group, now, effects)
        return _answer(reply_to, classic_answers.all_unknown(request))

    # Members of consumer groups

    def consumer_heartbeat(
        self, request: m.ConsumerGroupHeartbeatRequest, client: ClientInfo, reply_to: ReplyTo, now_ms: int
    ) -> Effects:
        """ConsumerGroupHeartbeat: a member of a consumer group joins, stays or leaves."""
        effects = Effects()
        try:
            heartbeat.check_request(request, client.version, self._settings.consumer.assignors)
            now = self._context(request.group_id, now_ms)
            group = self._consumer_group_for(request, now, effects)
            if request.member_epoch < JOIN_EPOCH:
                response = heartbeat.leave(group, request, now, effects)
            else:
                heartbeat.check_heartbeat(group, request, now)
                self._put_in_place(group, effects)
                response = heartbeat.beat(group, request, client, now, effects)
        except KafkaError as refused:
            refusal = m.ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=refused.message)
            return _answer(reply_to, refusal)
        if gathered_joins.has_to_wait(group, request, now):
            gathered_joins.wait(group, response, reply_to, now)
        else:
            effects.answer(reply_to, response)
        return self._stepped(group, now, effects)

    def regexes_resolved(self, action: ResolveRegexes, found: Mapping[str, frozenset[str]], now_ms: int) -> Effects:
        """An action of this shard, or of its predecessor, has been carried out."""
        effects = Effects()
        group = self._groups.get(action.group_id)
        if isinstance(group, ConsumerGroup):
            now = self._context(group.group_id, now_ms)
            regex_subscriptions.resolved(group, action, found, now, effects)
            return self._stepped(group, now, effects)
        return effects

    def _consumer_group_for(
        self, request: m.ConsumerGroupHeartbeatRequest, now: StepContext, effects: Effects
    ) -> ConsumerGroup:
        """The consumer group that a heartbeat is for. A member that joins gets a new one if the group does not exist,
        or one that a classic group is upgraded to. Raises KafkaError if there is none and can be none."""
        group_id = request.group_id
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch == JOIN_EPOCH and (group is None or group.is_empty):
            return ConsumerGroup(group_id)
        if request.member_epoch == JOIN_EPOCH and group is not None:
            return conversion.upgraded(group, now, effects)
        if group is not None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        what = "Group" if request.member_epoch < JOIN_EPOCH else "Consumer group"
        raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"{what} {group_id} not found.")

    def _put_in_place(self, group: ConsumerGroup, effects: Effects) -> None:
        """Makes a new group known; it takes the place of a classic one."""
        known = self._groups.get(group.group_id)
        if known is group:
            return
        if isinstance(known, ClassicGroup) and not known.is_empty:
            effects.extend(known.abandon(Error.REBALANCE_IN_PROGRESS))
        elif known is not None:
            group_views.delete_group(known, effects)
        self._groups[group.group_id] = group

    def _context(self, group_id: str, now_ms: int) -> StepContext:
        image = self._image()
        settings = self._settings.consumer.of_group(image.configs.of_group(group_id))
        return StepContext(image, settings, self._hashes, self._watch_topics, now_ms, self._settings.group)

    # Offsets

    def commit_offsets(self, request: m.OffsetCommitRequest, version: int, reply_to: ReplyTo, now_ms: int) -> Effects:
        """Commits offsets of existing topics, each with its name and, if the broker knows it, its id."""
        group = self._groups.get(request.group_id)
        effects = self._commits.commit(group, request, version, reply_to, now_ms)
        if isinstance(group, ClassicGroup):
            group.keep_alive(request.member_id, now_ms)
            self._watch(group)
        self._add_group_of_offsets(request.group_id, effects)
        return effects

    def commit_offsets_in_transaction(
        self, request: m.TxnOffsetCommitRequest, reply_to: ReplyTo, now_ms: int
    ) -> Effects:
        """Writes offsets of existing topics in the producer's transaction."""
        group = self._groups.get(request.group_id)
        topics = self._image().topics
        effects = self._commits.commit_in_transaction(group, request, topics, reply_to, now_ms)
        self._add_group_of_offsets(request.group_id, effects)
        return effects

    def fetch_offsets(
        self, request: m.OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool
    ) -> m.OffsetFetchResponse.OffsetFetchResponseGroup:
        """The committed offsets of one group. That a group does not exist is no error: it has no offsets."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            error = commits.check_fetch(group, request.member_id, request.member_epoch)
            if error is not Error.NONE:
                return m.OffsetFetchResponse.OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)
        return group_offsets.fetch(self._offsets.of(request.group_id), request, require_stable=require_stable)

    def delete_offsets(self, request: m.OffsetDeleteRequest, reply_to: ReplyTo) -> Effects:
        group = self._groups.get(request.group_id)
        error = group_views.check_offset_deletion(group)
        if group is None or error is not Error.NONE:
            return _answer(reply_to, m.OffsetDeleteResponse(error_code=error))
        effects = Effects()
        effects.answer(reply_to, group_views.delete_offsets(group, self._offsets, request, effects))
        return effects

    def topics_deleted(self, topics: Mapping[str, Uuid], group_ids: Iterable[str] | None = None) -> Effects:
        """Deletes the offsets of deleted topics, but not those of a newer topic of the same name: of some groups, or of
        all."""
        effects = Effects()
        self._offsets.delete_topics(topics, self.groups_with_offsets() if group_ids is None else group_ids, effects)
        return effects

    def groups_with_offsets(self) -> list[str]:
        return list(self._offsets.group_ids)

    def _add_group_of_offsets(self, group_id: str, effects: Effects) -> None:
        """Committing offsets to an unknown group creates it, if only as a name for them."""
        if effects.records and group_id not in self._groups:
            self._add(ClassicGroup(group_id, self._settings.group))

    # Administration

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def committed_offsets(self) -> list[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all that groups have committed, for figures about them. Another thread
        may ask: what changes meanwhile is there or not."""
        return [
            (group_id, topic, partition, value.offset)
            for group_id in list(self._offsets.group_ids)
            for topic, offsets in list(self._offsets.of(group_id).by_topic())
            for partition, value in list(offsets.items())
        ]

    def group_figures(self) -> list[tuple[str, str, int]]:
        """Id, state and number of members of each group, for figures about them. Another thread may ask."""
        return [
            (group.group_id, group_views.state_seen_from_outside(group), len(group.members))
            for group in list(self._groups.values())
        ]

    def list_groups(
        self, states_filter: Iterable[str], types_filter: Iterable[str], group_ids: Iterable[str] | None = None
    ) -> list[m.ListGroupsResponse.ListedGroup]:
        """The groups that match: all, or those of some that are still there."""
        ids = self._groups if group_ids is None else (each for each in group_ids if each in self._groups)
        return group_views.list_groups((self._groups[group_id] for group_id in ids), states_filter, types_filter)

    def describe_groups(self, group_ids: Iterable[str], version: int) -> list[m.DescribeGroupsResponse.DescribedGroup]:
        return group_views.describe_groups(self._groups, group_ids, version)

    def describe_consumer_groups(
        self, group_ids: Iterable[str]
    ) -> list[m.ConsumerGroupDescribeResponse.DescribedGroup]:
        assignors = self._settings.consumer.assignors
        return group_views.describe_consumer_groups(self._groups, group_ids, assignors, self._image().topics)

    def delete_groups(self, group_ids: Iterable[str], reply_to: ReplyTo) -> Effects:
        effects = Effects()
        answer = m.DeleteGroupsResponse()
        for group_id in dict.fromkeys(group_ids):
            group = self._groups.get(group_id)
            error = group_views.check_group_deletion(group)
            answer.results.append(m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error))
            if group is not None and error is Error.NONE:
                self._delete_group(group, effects)
        effects.answer(reply_to, answer)
        return effects

    def _delete_group(self, group: Group, effects: Effects) -> None:
        self._offsets.delete_group(group.group_id, effects)
        group_views.delete_group(group, effects)
        del self._groups[group.group_id]

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next. It may be too early, but never too late."""
        alarm_ms, sweep_ms = self._alarms.next_ms, self._sweep_at_ms
        return sweep_ms if alarm_ms is None or (sweep_ms is not None and sweep_ms < alarm_ms) else alarm_ms

    def expire(self, now_ms: int) -> Effects:
        effects = Effects()
        for group_id in self._alarms.take_due(now_ms):
            group = self._groups.get(group_id)
            if isinstance(group, ClassicGroup):
                effects.extend(group.expire(now_ms))
            elif group is not None:
                now = self._context(group_id, now_ms)
                fencing.expire(group, now, effects)
                if group.members and group.successor is None:
                    update_target(group, now, effects)
                _finish_step(group, now, effects)
            if group is not None:
                self._watch(group)
        if self._sweep_at_ms is not None and now_ms >= self._sweep_at_ms:
            self._sweep(now_ms, effects)
        return effects

    def unload(self) -> Effects:
        """This node no longer coordinates the partition: waiting requests are answered NOT_COORDINATOR. The shard must
        not be used after this."""
        effects = Effects()
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                effects.extend(group.abandon(Error.NOT_COORDINATOR))
            else:
                gathered_joins.abandon(group, effects)
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

    def _sweep_group(self, group: Group, now_ms: int, effects: Effects) -> None:
        group_offsets = self._offsets.of(group.group_id)
        for topic, partition in expired_offsets(group, group_offsets, now_ms, self._settings.offsets_retention_ms):
            self._offsets.delete(group.group_id, topic, partition, effects)
        if group.group_id not in self._offsets.group_ids and group_views.is_abandoned(group):
            self._delete_group(group, effects)

    def _add(self, group: Group) -> None:
        self._groups[group.group_id] = group
        self._watch(group)

    def _watch(self, group: Group) -> None:
        """Sets the alarm for the group's next deadline. A group that was converted in its step is replaced here."""
        if isinstance(group, ConsumerGroup) and group.successor is not None:
            group = self._groups[group.group_id] = group.successor
        if (deadline_ms := group.next_deadline_ms) is not None:
            self._alarms.set(group.group_id, deadline_ms)

    def _stepped(self, group: ConsumerGroup, now: StepContext, effects: Effects) -> Effects:
        """Ends a step of a consumer group, which may also answer joins that have waited."""
        _finish_step(group, now, effects)
        return self._watched(group, effects)

    def _watched(self, group: Group, effects: Effects) -> Effects:
        """Ends a group's step: its next deadline may have changed."""
        self._watch(group)
        return effects


def _finish_step(group: ConsumerGroup, now: StepContext, effects: Effects) -> None:
    gathered_joins.answer_joins(group, now, effects)
    await_target(group, now)


def _answer(reply_to: ReplyTo, response: Message) -> Effects:
    effects = Effects()
    effects.answer(reply_to, response)
    return effects


def _is_refused(effects: Effects) -> bool:
    """Whether a first join left nothing in its group: neither a member nor an issued member id."""
    return any(
        isinstance(response, m.JoinGroupResponse) and response.error_code not in (Error.NONE, Error.MEMBER_ID_REQUIRED)
        for _, response in effects.answers
    )
