"""A shard and Apache Kafka are asked the same, request by request, and give the same answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tools import apache_kafka

from barnabas.client.broker_connection import Connection
from barnabas.groups import group_records
from barnabas.groups.classic.classic_group import ClassicGroupSettings
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.protocol import messages as m
from barnabas.protocol.batch import decode_records, iter_headers
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import Error
from tests.unit.groups import requests
from tests.unit.groups.requests import TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.coordination.effects import Effects, Record
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.uuids import Uuid

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs")]

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
COORDINATOR_SECONDS_MAX = 60.0


class Pair:
    """Asks Kafka first, as it makes up the member ids, then the shard, and compares."""

    def __init__(self, kafka: Connection, topic_id: Uuid) -> None:
        self.kafka = kafka
        self.topic_id = topic_id
        self.log: list[Record] = []
        self.shard = GroupShard(ShardSettings(group=ClassicGroupSettings(group_initial_rebalance_delay_ms=0)))
        self.now_ms = 1_000_000
        self.shard.loaded(self.now_ms)

    def ask(self, request: Message, version: int) -> Any:
        """Their answer, having seen that ours is the same."""
        theirs = self.kafka.send(request, version)
        theirs.throttle_time_ms = 0
        self.now_ms += 1
        ours = self._answer(decode(type(request), encode(request, version), version), version, theirs)
        assert decode(type(theirs), encode(ours, version), version) == theirs
        return theirs

    def _answer(self, request: Message, version: int, theirs: Any) -> Message:
        shard = self.shard
        if isinstance(request, m.OffsetFetchRequest):
            for group in request.groups:
                for topic in group.topics or ():
                    topic.name = TOPIC
            fetched = [shard.fetch_offsets(group, require_stable=request.require_stable) for group in request.groups]
            return m.OffsetFetchResponse(groups=fetched)
        if isinstance(request, m.ListGroupsRequest):
            return m.ListGroupsResponse(groups=shard.list_groups(request.states_filter, request.types_filter))
        if isinstance(request, m.DescribeGroupsRequest):
            return m.DescribeGroupsResponse(groups=shard.describe_groups(request.groups, version))
        return self._answer_to_step(self._step(request, version, theirs))

    def _step(self, request: Message, version: int, theirs: Any) -> Effects:
        if isinstance(request, m.JoinGroupRequest):
            return self.shard.join(request, requests.client(theirs.member_id, version), "us", self.now_ms)
        if isinstance(request, m.SyncGroupRequest):
            return self.shard.sync(request, "us", self.now_ms)
        if isinstance(request, m.HeartbeatRequest):
            return self.shard.heartbeat(request, "us", self.now_ms)
        if isinstance(request, m.LeaveGroupRequest):
            return self.shard.leave(request, "us", self.now_ms)
        if isinstance(request, m.OffsetCommitRequest):
            for topic in request.topics:
                topic.name, topic.topic_id = TOPIC, self.topic_id  # as the handler does
            return self.shard.commit_offsets(request, version, "us", self.now_ms)
        if isinstance(request, m.OffsetDeleteRequest):
            return self.shard.delete_offsets(request, "us")
        assert isinstance(request, m.DeleteGroupsRequest)
        return self.shard.delete_groups(request.groups_names, "us")

    def _answer_to_step(self, effects: Effects) -> Message:
        """What comes at once, or else when time has passed."""
        while not effects.answers:
            deadline_ms = self.shard.next_deadline_ms
            assert deadline_ms is not None
            self.now_ms = max(self.now_ms, deadline_ms)
            effects.extend(self.shard.expire(self.now_ms))
        self.log += effects.records
        [(reply_to, answer)] = effects.answers
        assert reply_to == "us"
        if isinstance(answer, m.JoinGroupResponse) and answer.error_code != Error.NONE:
            answer.protocol_name = None  # as the handler does in versions that allow it
        return answer

    def member_of(self, group_id: str) -> str:
        """A member that joins a group alone and is assigned all of it."""
        offered = self.ask(requests.join(group_id), 9)
        assert offered.error_code == Error.MEMBER_ID_REQUIRED
        joined = self.ask(requests.join(group_id, offered.member_id), 9)
        assert joined.error_code == Error.NONE
        self.ask(requests.sync(group_id, offered.member_id, joined.generation_id), 4)
        return str(offered.member_id)


@pytest.fixture(scope="module")
def node() -> Iterator[apache_kafka.KafkaNode]:
    with apache_kafka.KafkaNode(properties=SETTINGS) as node:
        yield node


@pytest.fixture(scope="module")
def kafka(node: apache_kafka.KafkaNode) -> Iterator[Connection]:
    with Connection(node.host, node.port, client_id="client") as connection:
        topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=5, replication_factor=1)
        connection.send(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        wait_for_coordinator(connection)
        yield connection


def wait_for_coordinator(connection: Connection) -> None:
    """Until it has read its topic: a list of groups leaves those out that no shard has taken up yet."""
    deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
    nobody = m.HeartbeatRequest(group_id="any", member_id="nobody")
    found = answered = None
    while found != Error.NONE or answered != Error.UNKNOWN_MEMBER_ID:
        assert time.monotonic() < deadline, (found, answered)
        found = connection.send(m.FindCoordinatorRequest(key="any"), 3).error_code
        answered = connection.send(nobody, 4).error_code
        time.sleep(0.05)


@pytest.fixture
def pair(kafka: Connection, topic_id: Uuid) -> Iterator[Pair]:
    """Both without groups, before and after."""
    pair = Pair(kafka, topic_id)
    yield pair
    for group in kafka.send(m.ListGroupsRequest(), 5).groups:
        described = kafka.send(m.DescribeGroupsRequest(groups=[group.group_id]), 5).groups[0]
        kafka.send(requests.leave(group.group_id, *(member.member_id for member in described.members)), 5)
    everything = [group.group_id for group in kafka.send(m.ListGroupsRequest(), 5).groups]
    kafka.send(m.DeleteGroupsRequest(groups_names=everything), 2)


@pytest.fixture(scope="module")
def topic_id(kafka: Connection) -> Uuid:
    named = m.MetadataRequest.MetadataRequestTopic(name=TOPIC)
    found: Uuid = kafka.send(m.MetadataRequest(topics=[named])).topics[0].topic_id
    return found


def fetched(*groups: m.OffsetFetchRequest.OffsetFetchRequestGroup, stable: bool = False) -> m.OffsetFetchRequest:
    return m.OffsetFetchRequest(groups=list(groups), require_stable=stable)


def test_offsets_committed_without_members(pair: Pair) -> None:
    for version in (2, 5, 8, 9):
        pair.ask(requests.commit("g", {0: 10 + version, 1: 20}, metadata="m"), version)
        pair.ask(fetched(requests.fetch("g", 0, 1, 2), stable=True), 9)
    pair.ask(requests.commit("g", {0: 7}, metadata=None), 9)
    pair.ask(requests.commit("g", {0: -1}), 9)
    for version in (8, 9):
        pair.ask(fetched(requests.fetch("g", 0, 1, 4), requests.fetch_all("g"), requests.fetch("none", 0)), version)
        pair.ask(fetched(requests.fetch_all("none")), version)


def test_metadata_may_have_so_many_utf_16_units(pair: Pair) -> None:
    for metadata in ("x" * 4096, "x" * 4097, "é" * 4096, "\N{PARTY POPPER}" * 2048, "\N{PARTY POPPER}" * 2049):
        pair.ask(requests.commit("g", {0: 1}, metadata=metadata), 9)
    pair.ask(requests.commit("only too much", {0: 1}, metadata="x" * 5000), 9)
    pair.ask(fetched(requests.fetch("only too much", 0)), 9)


def test_commits_with_a_topic_id(pair: Pair, topic_id: Uuid) -> None:
    pair.ask(requests.commit("g", {3: 33}, topic_id=topic_id), 10)
    pair.ask(fetched(requests.fetch("g", 3, 4, topic_id=topic_id)), 10)
    pair.ask(fetched(requests.fetch("g", 3, 4)), 9)


def test_commits_of_nobody_known(pair: Pair) -> None:
    for version in (2, 8, 9):
        pair.ask(requests.commit("none", {0: 1}, generation=3, member_id="somebody"), version)
        pair.ask(requests.commit("none", {0: 1}, generation=3), version)
    pair.ask(requests.commit("none", {0: 1}, generation=-1, member_id="somebody"), 9)
    pair.ask(requests.commit("static", {0: 1}, generation=-1, instance_id="one"), 9)


def test_commits_to_a_group_with_members(pair: Pair) -> None:
    member_id = pair.member_of("g")
    for version in (2, 7, 9):
        pair.ask(requests.commit("g", {0: 5}, member_id=member_id, generation=1), version)
        pair.ask(requests.commit("g", {0: 6}, member_id=member_id, generation=2), version)
        pair.ask(requests.commit("g", {0: 6}, member_id="somebody", generation=1), version)
        pair.ask(requests.commit("g", {0: 6}, member_id=member_id), version)
        pair.ask(requests.commit("g", {0: 6}), version)
    pair.ask(requests.commit("g", {0: 6}, member_id=member_id, generation=1, instance_id="one"), 9)
    pair.ask(fetched(requests.fetch_all("g")), 9)
    pair.ask(requests.leave("g", member_id), 5)
    pair.ask(requests.commit("g", {0: 7}, member_id=member_id, generation=1), 9)
    pair.ask(requests.commit("g", {0: 8}), 9)
    pair.ask(fetched(requests.fetch_all("g")), 9)


def test_requests_to_a_group_that_waits_for_its_leader(pair: Pair) -> None:
    offered = pair.ask(requests.join("g"), 9)
    pair.ask(m.DescribeGroupsRequest(groups=["g"]), 6)
    pair.ask(requests.commit("g", {0: 5}), 9)
    pair.ask(requests.join("g", offered.member_id), 9)
    pair.ask(requests.commit("g", {0: 6}, member_id=offered.member_id, generation=1), 9)
    pair.ask(requests.commit("g", {0: 6}, member_id=offered.member_id, generation=2), 9)
    pair.ask(requests.commit("g", {0: 6}), 9)
    pair.ask(requests.delete_offsets("g", 0), 0)
    pair.ask(m.DescribeGroupsRequest(groups=["g"]), 6)
    pair.ask(m.ListGroupsRequest(states_filter=["CompletingRebalance"]), 5)
    pair.ask(m.DeleteGroupsRequest(groups_names=["g"]), 2)
    pair.ask(fetched(requests.fetch_all("g")), 9)


def test_who_asks_for_the_offsets_of_a_classic_group_does_not_matter(pair: Pair) -> None:
    pair.ask(requests.commit("g", {0: 5}), 9)
    for group_id in ("g", "none"):
        for request in (requests.fetch(group_id, 0), requests.fetch_all(group_id)):
            request.member_id = "somebody"
            request.member_epoch = 3
            pair.ask(fetched(request), 9)


def test_requests_of_members_to_a_group_that_does_not_exist(pair: Pair) -> None:
    for version in (1, 4):
        pair.ask(requests.heartbeat("none", "somebody"), version)
    pair.ask(requests.sync("none", "somebody"), 5)
    pair.ask(requests.join("none", "somebody"), 9)
    pair.ask(requests.leave("none", "somebody", "somebody else"), 5)
    pair.ask(m.ListGroupsRequest(), 5)


def test_groups_are_listed_by_state_and_type(pair: Pair) -> None:
    pair.member_of("members")
    for states in ([], ["Empty"], [" stable "], ["STABLE", "Empty"], ["Dead"], ["none such"]):
        for types in ([], ["classic"], ["Classic"], ["consumer"]):
            pair.ask(m.ListGroupsRequest(states_filter=states, types_filter=types), 5)
    pair.ask(m.ListGroupsRequest(types_filter=["none such"]), 5)
    for version in (0, 3, 4):
        pair.ask(m.ListGroupsRequest(), version)


def test_groups_are_described(pair: Pair) -> None:
    pair.ask(requests.commit("simple", {0: 1}), 9)
    member_id = pair.member_of("members")
    for version in (0, 5, 6):
        pair.ask(m.DescribeGroupsRequest(groups=["simple", "members", "none"]), version)
    pair.ask(requests.leave("members", member_id), 5)
    pair.ask(m.DescribeGroupsRequest(groups=["members"]), 6)


def test_groups_are_deleted_when_nobody_is_in_them(pair: Pair) -> None:
    pair.ask(requests.commit("simple", {0: 1}), 9)
    member_id = pair.member_of("members")
    pair.ask(m.DeleteGroupsRequest(groups_names=["members"]), 2)
    pair.ask(requests.leave("members", member_id), 5)
    pair.ask(m.DeleteGroupsRequest(groups_names=["members"]), 2)
    pair.ask(m.DeleteGroupsRequest(groups_names=["members"]), 2)
    pair.ask(m.DeleteGroupsRequest(groups_names=["simple"]), 1)
    pair.ask(fetched(requests.fetch("simple", 0), requests.fetch_all("simple")), 9)
    pair.ask(m.ListGroupsRequest(), 5)


def test_offsets_are_deleted_where_nobody_is_subscribed(pair: Pair) -> None:
    pair.ask(requests.delete_offsets("none", 0), 0)
    pair.ask(requests.commit("g", {0: 1, 1: 2}), 9)
    pair.ask(requests.delete_offsets("g", 0, 3), 0)
    pair.ask(fetched(requests.fetch_all("g")), 9)
    member_id = pair.member_of("g")
    pair.ask(requests.delete_offsets("g", 1), 0)
    pair.ask(requests.leave("g", member_id), 5)
    pair.ask(requests.delete_offsets("g", 1), 0)
    pair.ask(fetched(requests.fetch_all("g")), 9)
    pair.ask(m.ListGroupsRequest(), 5)


def test_offsets_of_members_that_are_no_consumers_are_not_deleted(pair: Pair) -> None:
    offered = pair.ask(requests.join("g", protocol_type="connect"), 9)
    pair.ask(requests.join("g", offered.member_id, protocol_type="connect"), 9)
    pair.ask(requests.sync("g", offered.member_id, protocol_type="connect"), 5)
    pair.ask(requests.delete_offsets("g", 0), 0)
    pair.ask(m.DescribeGroupsRequest(groups=["g"]), 6)


def written_by(node: apache_kafka.KafkaNode, group_id: str) -> list[Record]:
    """What Kafka's log says of a group."""
    data = (node.data_dir / "__consumer_offsets-0" / "00000000000000000000.log").read_bytes()
    batches = [data[position : position + header.size] for position, header in iter_headers(data)]
    read = [group_records.decode(each.key, each.value) for batch in batches for each in decode_records(batch)]
    return [record for record in read if record is not None and group_of(record) == group_id]


def group_of(record: Record) -> str:
    assert isinstance(record.key, m.OffsetCommitKey | m.GroupMetadataKey)
    return record.key.group


def without_times(log: list[Record]) -> list[Record]:
    for _, value in log:
        if isinstance(value, m.GroupMetadataValue):
            assert value.current_state_timestamp > 0
            value.current_state_timestamp = 0
        elif isinstance(value, m.OffsetCommitValue):
            assert value.commit_timestamp > 0
            value.commit_timestamp = 0
            value.expire_timestamp = min(value.expire_timestamp, 0)
    return log


def test_both_write_the_same_records(pair: Pair, node: apache_kafka.KafkaNode) -> None:
    member_id = pair.member_of("recorded")
    pair.ask(requests.commit("recorded", {0: 5, 1: 6}, member_id=member_id, generation=1, metadata="m"), 9)
    pair.ask(requests.join("recorded", member_id, metadata=requests.subscription("bar")), 9)
    pair.ask(requests.sync("recorded", member_id, 2), 5)
    pair.ask(requests.leave("recorded", member_id), 5)
    pair.ask(requests.commit("recorded", {2: 7}), 9)
    pair.ask(requests.commit("recorded", {3: 8}, retention_ms=3_600_000), 4)
    pair.ask(requests.delete_offsets("recorded", 1, 4), 0)
    pair.ask(requests.commit("recorded", {2: 9}), 6)
    pair.ask(m.DeleteGroupsRequest(groups_names=["recorded"]), 2)

    theirs = without_times(written_by(node, "recorded"))
    ours = without_times(pair.log)
    deleted = [record for record in ours[-4:] if record.value is None]
    assert len(deleted) == 4
    assert sorted(map(repr, theirs[-4:])) == sorted(map(repr, deleted)), "a map's order is nobody's promise"
    assert theirs[:-4] == ours[:-4]
