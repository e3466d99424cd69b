"""Whatever members and administrators ask for, in whatever order, a shard's log tells what the shard tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.groups import group_records
from barnabas.groups.classic.classic_group import ClassicGroupSettings, ClassicGroupState
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from tests.unit.groups import requests

if TYPE_CHECKING:
    from barnabas.coordination.effects import Effects, Record

GROUP_IDS = ("g", "h")
TOPIC_IDS = {"foo": Uuid(bytes([1] * 16)), "bar": Uuid(bytes([2] * 16))}
AT_REST = (ClassicGroupState.EMPTY.value, ClassicGroupState.STABLE.value)
RETENTION_MS = 120_000
CHECK_INTERVAL_MS = 30_000
SETTINGS = ShardSettings(
    group=ClassicGroupSettings(group_max_size=3, group_initial_rebalance_delay_ms=1_000),
    offsets_retention_ms=RETENTION_MS,
    offsets_retention_check_interval_ms=CHECK_INTERVAL_MS,
    offset_metadata_max_bytes=10,
)

group_ids = st.sampled_from(GROUP_IDS)
topics = st.sampled_from(list(TOPIC_IDS))
partitions = st.integers(0, 2)


def replayed(log: list[Record], now_ms: int) -> GroupShard:
    shard = GroupShard(SETTINGS)
    for record in log:
        read = group_records.decode(*group_records.encode(record))
        assert read == record
        shard.replay(read)
    shard.loaded(now_ms)
    return shard


def offsets_in(shard: GroupShard, group_id: str) -> dict[tuple[str, int], tuple[int, int, str | None]]:
    fetched = shard.fetch_offsets(requests.fetch_all(group_id), require_stable=True)
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.committed_leader_epoch, each.metadata)
        for topic in fetched.topics
        for each in topic.partitions
    }


class ShardLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[Record] = []
        self.shard = replayed(self.log, self.now_ms)
        self.members: list[tuple[str, str]] = []
        """Group and member id of everybody who was ever given one."""
        self.generations: dict[tuple[str, str], int] = {}
        self.waiting: set[int] = set()
        self.request_count = 0

    def ask(self) -> int:
        self.request_count += 1
        self.waiting.add(self.request_count)
        return self.request_count

    def take(self, effects: Effects) -> list[Any]:
        """Does what a driver does with a step's effects; nobody is answered twice."""
        self.log += effects.records
        for reply_to, answer in effects.answers:
            assert isinstance(reply_to, int)
            self.waiting.remove(reply_to)
            if isinstance(answer, m.JoinGroupResponse):
                self.learn(answer)
        return [answer for _, answer in effects.answers]

    def learn(self, answer: m.JoinGroupResponse) -> None:
        for group_id, member_id in self.members:
            if member_id == answer.member_id and answer.error_code == Error.NONE:
                self.generations[group_id, member_id] = answer.generation_id

    def is_written(self, group_id: str) -> bool:
        values = [record.value for record in self.log if record.key == m.GroupMetadataKey(group=group_id)]
        return bool(values) and values[-1] is not None

    @rule(
        group_id=group_ids,
        topic=topics,
        version=st.sampled_from([3, 9]),
        instance_id=st.sampled_from([None, None, "one"]),
        session_timeout_ms=st.sampled_from([6_000, 45_000, 1]),
    )
    def join_anew(
        self, group_id: str, topic: str, version: int, instance_id: str | None, session_timeout_ms: int
    ) -> None:
        member_id = f"m{len(self.members)}"
        self.members.append((group_id, member_id))
        request = requests.join(
            group_id,
            metadata=requests.subscription(topic),
            instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
        )
        self.take(self.shard.join(request, requests.client(member_id, version), self.ask(), self.now_ms))

    @precondition(lambda self: self.members)
    @rule(data=st.data(), topic=topics)
    def join_again(self, data: st.DataObject, topic: str) -> None:
        group_id, member_id = data.draw(st.sampled_from(self.members))
        request = requests.join(group_id, member_id, metadata=requests.subscription(topic))
        self.take(self.shard.join(request, requests.client("unused", 9), self.ask(), self.now_ms))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        group_id, member_id = data.draw(st.sampled_from(self.members))
        generation = self.generations.get((group_id, member_id), 0)
        request = requests.sync(group_id, member_id, generation)
        self.take(self.shard.sync(request, self.ask(), self.now_ms))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        group_id, member_id = data.draw(st.sampled_from(self.members))
        generation = self.generations.get((group_id, member_id), 0)
        request = requests.heartbeat(group_id, member_id, generation)
        assert len(self.take(self.shard.heartbeat(request, self.ask(), self.now_ms))) == 1

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        group_id, member_id = data.draw(st.sampled_from(self.members))
        self.take(self.shard.leave(requests.leave(group_id, member_id), self.ask(), self.now_ms))

    @rule(
        data=st.data(),
        topic=topics,
        partition=partitions,
        offset=st.integers(-1, 100),
        metadata=st.sampled_from([None, "", "short", "much too long"]),
        retention_ms=st.sampled_from([-1, -1, 5_000]),
    )
    def commit(
        self, data: st.DataObject, topic: str, partition: int, offset: int, metadata: str | None, retention_ms: int
    ) -> None:
        nobody = [(group_id, "") for group_id in GROUP_IDS]
        group_id, member_id = data.draw(st.sampled_from(nobody + self.members))
        request = requests.commit(
            group_id,
            {partition: offset},
            topic=topic,
            topic_id=TOPIC_IDS[topic],
            metadata=metadata,
            member_id=member_id,
            generation=self.generations.get((group_id, member_id), 0) if member_id else -1,
            retention_ms=retention_ms,
        )
        (answer,) = self.take(self.shard.commit_offsets(request, 9, self.ask(), self.now_ms))
        if answer.topics[0].partitions[0].error_code == Error.NONE:
            # The record of an offset that says when it expires has no room for its leader epoch.
            leader_epoch = 4 if retention_ms == -1 else -1
            assert offsets_in(self.shard, group_id)[topic, partition] == (offset, leader_epoch, metadata or "")

    @rule(group_id=group_ids, topic=topics, partition=partitions)
    def delete_offsets(self, group_id: str, topic: str, partition: int) -> None:
        request = requests.delete_offsets(group_id, partition, topic=topic)
        (answer,) = self.take(self.shard.delete_offsets(request, self.ask()))
        if answer.error_code == Error.NONE and answer.topics[0].partitions[0].error_code == Error.NONE:
            assert (topic, partition) not in offsets_in(self.shard, group_id)

    @rule(group_id=group_ids)
    def delete_group(self, group_id: str) -> None:
        (answer,) = self.take(self.shard.delete_groups([group_id], self.ask()))
        if answer.results[0].error_code == Error.NONE:
            assert offsets_in(self.shard, group_id) == {}

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.take(self.shard.topics_deleted({topic: TOPIC_IDS[topic]}))
        for group_id in GROUP_IDS:
            assert all(name != topic for name, _ in offsets_in(self.shard, group_id))

    @rule()
    def reach_the_next_deadline(self) -> None:
        deadline_ms = self.shard.next_deadline_ms
        assert deadline_ms is not None
        self.now_ms = max(self.now_ms, deadline_ms)
        self.take(self.shard.expire(self.now_ms))

    @rule(milliseconds=st.sampled_from([1_000, 10_000, RETENTION_MS]))
    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.take(self.shard.expire(self.now_ms))

    @rule()
    def restart(self) -> None:
        self.waiting.clear()
        self.shard = replayed(self.log, self.now_ms)

    @rule()
    def move_away_and_back(self) -> None:
        answers = self.take(self.shard.unload())
        assert {answer.error_code for answer in answers} <= {Error.NOT_COORDINATOR}
        assert self.waiting == set(), "nobody is left waiting"
        self.shard = replayed(self.log, self.now_ms)

    @invariant()
    def the_log_tells_the_same(self) -> None:
        """Of groups that rest; a rebalance, and a group that is only a name without offsets, are not written."""
        again = replayed(self.log, self.now_ms)
        for group_id in GROUP_IDS:
            assert offsets_in(again, group_id) == offsets_in(self.shard, group_id)
        listed = {group.group_id: group for group in again.list_groups([], [])}
        for group in self.shard.list_groups(AT_REST, []):
            if self.is_written(group.group_id) or offsets_in(self.shard, group.group_id):
                assert listed[group.group_id] == group
                ids = [group.group_id]
                assert again.describe_groups(ids, 6) == self.shard.describe_groups(ids, 6)

    @invariant()
    def a_group_with_offsets_exists(self) -> None:
        listed = {group.group_id for group in self.shard.list_groups([], [])}
        assert all(group_id in listed for group_id in GROUP_IDS if offsets_in(self.shard, group_id))

    @invariant()
    def something_is_always_due_some_time(self) -> None:
        deadline_ms = self.shard.next_deadline_ms
        assert deadline_ms is not None
        assert deadline_ms <= self.now_ms + CHECK_INTERVAL_MS


TestShardLife = ShardLife.TestCase
TestShardLife.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
