"""Requests that are well-formed and make no sense: whatever they say and in whatever order they come, a step answers
them, its records and answers can be written, and a restart finds the state that they left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from barnabas.coordination.effects import ProducerId
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from tests.unit.groups import requests
from tests.unit.groups.strange_driver import Driver, told
from tests.unit.groups.strange_values import (
    INT32,
    INT64,
    TEXT,
    assignments,
    assignors,
    group_ids,
    instance_ids,
    listed,
    member_ids,
    mostly,
    names,
    partitions,
    protocols,
    regexes,
    subscriptions,
    timeouts,
    topic_ids,
    topic_names,
)

if TYPE_CHECKING:
    from barnabas.protocol.uuids import Uuid


class StrangeRequests(Driver):
    @rule()
    def carry_out_orders(self) -> None:
        """Some time, and be it after a restart."""
        actions, self.actions = self.actions, []
        for action in actions:
            self.take(self.shard.regexes_resolved(action, action.find(), self.now_ms))

    # Members.

    @initialize(
        count=st.integers(0, 3),
        metadata=st.lists(subscriptions, min_size=3, max_size=3),
        given=st.lists(assignments, min_size=3, max_size=3),
    )
    def begin_with_a_classic_group(self, count: int, metadata: list[bytes], given: list[bytes]) -> None:
        """Of so many members. Random requests hardly ever make one of several."""
        members = list(zip(["a", "b", "c"][:count], metadata, given, strict=False))
        for member_id, subscribed, _ in members:
            join = requests.join("g", metadata=subscribed)
            self.take(self.shard.join(join, requests.client(member_id, 0), self.ask(), self.now_ms))
        for _ in range(2):  # The first rebalance waits for who else may come.
            self.pass_time(0)
        for member_id, _, _ in members:
            sync = requests.sync("g", member_id, self.epochs[member_id])
            sync.assignments = [
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=whose, assignment=what)
                for whose, _, what in members
            ]
            self.take(self.shard.sync(sync, self.ask(), self.now_ms))

    @rule(
        data=st.data(),
        group_id=group_ids,
        member_id=member_ids,
        instance_id=instance_ids,
        names=mostly(names, st.one_of(st.none(), st.just([]))),
        regex=regexes,
        assignor=assignors,
        rebalance_timeout_ms=timeouts,
        rack_id=mostly(st.none(), TEXT),
        owned=mostly(st.just([]), st.one_of(st.none(), listed)),
        version=st.sampled_from([0, 1]),
    )
    def consumer_heartbeat(
        self,
        data: st.DataObject,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        names: list[str] | None,
        regex: str | None,
        assignor: str | None,
        rebalance_timeout_ms: int,
        rack_id: str | None,
        owned: list[tuple[Uuid, list[int]]] | None,
        version: int,
    ) -> None:
        reported = None
        if owned is not None:
            reported = [m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=id_, partitions=p) for id_, p in owned]
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=self.epoch(data, member_id),
            instance_id=instance_id,
            rack_id=rack_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=names,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=reported,
        )
        client = requests.client(f"new-{self.calls}", version)
        call = self.ask()
        self.take(self.shard.consumer_heartbeat(request, client, call, self.now_ms))
        assert call not in self.waiting

    @rule(
        group_id=group_ids,
        member_id=member_ids,
        instance_id=instance_ids,
        session_timeout_ms=timeouts,
        rebalance_timeout_ms=timeouts,
        protocol_type=mostly(st.just("consumer"), st.sampled_from(["connect", ""])),
        protocols=mostly(protocols, st.just([])),
        version=st.sampled_from([0, 4, 9]),
    )
    def join(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: list[tuple[str, bytes]],
        version: int,
    ) -> None:
        request = m.JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=[
                m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
        )
        # Names that the pool has, so that later requests meet those who were given theirs.
        new_id = ["a", "b", "c"][self.calls % 3]
        group = self.shard._groups.get(group_id)
        if group is not None and new_id in group.members:
            new_id = f"new-{self.calls}"
        self.take(self.shard.join(request, requests.client(new_id, version), self.ask(), self.now_ms))

    @rule(
        data=st.data(),
        group_id=group_ids,
        member_id=member_ids,
        instance_id=instance_ids,
        protocol_type=st.sampled_from([None, "consumer", ""]),
        protocol_name=st.sampled_from([None, "range", ""]),
        given=st.lists(st.tuples(member_ids, assignments), max_size=3),
    )
    def sync(
        self,
        data: st.DataObject,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        protocol_type: str | None,
        protocol_name: str | None,
        given: list[tuple[str, bytes]],
    ) -> None:
        request = m.SyncGroupRequest(
            group_id=group_id,
            generation_id=self.epoch(data, member_id),
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=whose, assignment=what) for whose, what in given
            ],
        )
        self.take(self.shard.sync(request, self.ask(), self.now_ms))

    @rule(data=st.data(), group_id=group_ids, member_id=member_ids, instance_id=instance_ids)
    def heartbeat(self, data: st.DataObject, group_id: str, member_id: str, instance_id: str | None) -> None:
        request = m.HeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id=self.epoch(data, member_id),
            group_instance_id=instance_id,
        )
        assert len(self.take(self.shard.heartbeat(request, self.ask(), self.now_ms))) == 1

    @rule(group_id=group_ids, identities=st.lists(st.tuples(member_ids, instance_ids), max_size=4))
    def leave(self, group_id: str, identities: list[tuple[str, str | None]]) -> None:
        members = [
            m.LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in identities
        ]
        request = m.LeaveGroupRequest(group_id=group_id, members=members)
        self.take(self.shard.leave(request, self.ask(), self.now_ms))

    # Offsets.

    @rule(
        data=st.data(),
        group_id=group_ids,
        member_id=member_ids,
        instance_id=instance_ids,
        named=st.lists(st.tuples(topic_names, topic_ids, partitions), max_size=3),
        offset=INT64,
        leader_epoch=INT32,
        metadata=st.one_of(st.none(), TEXT),
        retention_ms=INT64,
        version=st.sampled_from([2, 8, 10]),
    )
    def commit_offsets(
        self,
        data: st.DataObject,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        named: list[tuple[str, Uuid, list[int]]],
        offset: int,
        leader_epoch: int,
        metadata: str | None,
        retention_ms: int,
        version: int,
    ) -> None:
        topics = [
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name=name,
                topic_id=id_,
                partitions=[
                    m.OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for index in indexes
                ],
            )
            for name, id_, indexes in named
        ]
        request = m.OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=self.epoch(data, member_id),
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=topics,
        )
        self.take(self.shard.commit_offsets(request, version, self.ask(), self.now_ms))

    @rule(
        data=st.data(),
        group_id=group_ids,
        member_id=member_ids,
        instance_id=instance_ids,
        producer=st.integers(1, 2),
        named=st.lists(st.tuples(topic_names, partitions), max_size=3),
        offset=INT64,
    )
    def commit_offsets_in_transaction(
        self,
        data: st.DataObject,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        producer: int,
        named: list[tuple[str, list[int]]],
        offset: int,
    ) -> None:
        topics = [
            m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset
                    )
                    for index in indexes
                ],
            )
            for name, indexes in named
        ]
        request = m.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group_id,
            producer_id=producer,
            producer_epoch=0,
            generation_id=self.epoch(data, member_id),
            member_id=member_id,
            group_instance_id=instance_id,
            topics=topics,
        )
        self.take(self.shard.commit_offsets_in_transaction(request, self.ask(), self.now_ms))

    @rule(producer=st.integers(1, 2), is_commit=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool) -> None:
        producer_id = ProducerId(producer)
        self.log.append((is_commit, producer_id))
        (self.shard.commit_transaction if is_commit else self.shard.abort_transaction)(producer_id)

    @rule(
        data=st.data(),
        group_id=group_ids,
        member_id=st.one_of(st.none(), member_ids),
        names=st.one_of(st.none(), st.lists(st.tuples(topic_names, topic_ids, partitions), max_size=3)),
        require_stable=st.booleans(),
    )
    def fetch_offsets(
        self,
        data: st.DataObject,
        group_id: str,
        member_id: str | None,
        names: list[tuple[str, Uuid, list[int]]] | None,
        require_stable: bool,
    ) -> None:
        topics = None
        if names is not None:
            topics = [
                m.OffsetFetchRequest.OffsetFetchRequestTopics(name=name, topic_id=id_, partition_indexes=indexes)
                for name, id_, indexes in names
            ]
        request = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group_id, member_id=member_id, member_epoch=self.epoch(data, member_id or ""), topics=topics
        )
        answer = self.shard.fetch_offsets(request, require_stable=require_stable)
        encode(m.OffsetFetchResponse(groups=[answer]), 9)

    # Administration.

    @rule(group_id=group_ids, named=st.lists(st.tuples(topic_names, partitions), max_size=3))
    def delete_offsets(self, group_id: str, named: list[tuple[str, list[int]]]) -> None:
        topics = [
            m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=each) for each in indexes
                ],
            )
            for name, indexes in named
        ]
        request = m.OffsetDeleteRequest(group_id=group_id, topics=topics)
        self.take(self.shard.delete_offsets(request, self.ask()))

    @rule(names=st.lists(group_ids, max_size=3))
    def delete_groups(self, names: list[str]) -> None:
        self.take(self.shard.delete_groups(names, self.ask()))

    @rule(names=st.lists(st.sampled_from(["g", "h", "nope", ""]), max_size=4))
    def look_at_groups(self, names: list[str]) -> None:
        encode(m.DescribeGroupsResponse(groups=self.shard.describe_groups(names, 6)), 6)
        encode(m.ConsumerGroupDescribeResponse(groups=self.shard.describe_consumer_groups(names)), 1)
        encode(m.ListGroupsResponse(groups=self.shard.list_groups(names[:1], names[1:])), 5)

    @rule(name=st.sampled_from(["foo", "bar", "gone"]), count=st.integers(0, 4))
    def change_a_topic(self, name: str, count: int) -> None:
        before = self.image.topics.get(name)
        if count:
            self.topics[name] = max(count, self.topics.get(name, 0))
        else:
            self.topics.pop(name, None)
            self.lives[name] += before is not None
        self.publish(self.image.offset + 1)
        if before is not None and not count:
            self.take(self.shard.topics_deleted({name: before.topic_id}))

    @rule(milliseconds=st.sampled_from([0, 1, 6_000, 11_000, 45_000, 300_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.take(self.shard.expire(self.now_ms))

    @rule()
    def restart(self) -> None:
        self.waiting.clear()
        self.shard = self.replayed()

    # What holds.

    @invariant()
    def the_log_tells_the_same(self) -> None:
        again = self.replayed()
        for group_id in ("g", "h"):
            one, other = self.shard._groups.get(group_id), again._groups.get(group_id)
            if isinstance(one, ConsumerGroup) or isinstance(other, ConsumerGroup):
                assert isinstance(one, ConsumerGroup)
                assert isinstance(other, ConsumerGroup)
                assert told(one) == told(other)
            request = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None, member_epoch=-1)
            assert self.shard.fetch_offsets(request, require_stable=False) == again.fetch_offsets(
                request, require_stable=False
            )

    @invariant()
    def what_exists_is_given_to_one_member_at_most(self) -> None:
        for group in self.shard._groups.values():
            if isinstance(group, ConsumerGroup):
                for kind in (_owned(group), _wanted(group)):
                    assert len(kind) == len(set(kind))
                    for topic_id, partition in kind:
                        known = self.image.topics.by_id(topic_id)
                        assert known is None or 0 <= partition < len(known.partitions)

    @invariant()
    def instances_are_members(self) -> None:
        for group in self.shard._groups.values():
            if isinstance(group, ConsumerGroup):
                instances = {each.instance_id: each.member_id for each in group.members.values() if each.instance_id}
                assert group.static_members == instances


def _owned(group: ConsumerGroup) -> list[tuple[Uuid, int]]:
    return [
        (topic_id, partition)
        for member in group.members.values()
        for part in (member.assigned, member.pending_revocation)
        for topic_id, owned_partitions in part.items()
        for partition in owned_partitions
    ]


def _wanted(group: ConsumerGroup) -> list[tuple[Uuid, int]]:
    return [
        (topic_id, partition)
        for target in group.targets.values()
        for topic_id, target_partitions in target.items()
        for partition in target_partitions
    ]


StrangeRequests.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStrangeRequests = StrangeRequests.TestCase
