"""Consumer groups of a shard and of Apache Kafka are asked the same, request by request, and give the same answers and
write the same records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tools import apache_kafka

from barnabas.client.broker_connection import Connection
from barnabas.groups import group_records
from barnabas.groups.classic.classic_group import ClassicGroupSettings
from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.groups.consumer.regex_subscriptions import ResolveRegexes
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.protocol import messages as m
from barnabas.protocol.batch import decode_records, iter_headers
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import Error
from tests.unit.groups import requests
from tests.unit.groups.consumer_requests import assigned, beat, cluster, join, leave, topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.coordination.effects import Effects, Record
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.uuids import Uuid

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs")]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.size": "4",
    "group.consumer.migration.policy": "disabled",
}
TOPICS = {"foo": 4, "bar": 3, "food": 2}
SECONDS_MAX = 60.0
SLOW_GROUPS = ("assigns seldom", "assigns seldom too")


class Pair:
    """Asks Kafka first, then the shard, and compares."""

    def __init__(self, kafka: Connection, node: apache_kafka.KafkaNode, topic_ids: Mapping[str, Uuid]) -> None:
        self.kafka = kafka
        self.node = node
        self.topic_ids = topic_ids
        self.log: list[Record] = []
        settings = ShardSettings(
            group=ClassicGroupSettings(group_initial_rebalance_delay_ms=0),
            consumer=ConsumerGroupSettings(assignment_interval_ms=0, max_size=4, migration_policy="disabled"),
        )
        self.image = cluster(
            *(topic(name, count, topic_ids[name]) for name, count in TOPICS.items()),
            group_configs={name: {"consumer.assignment.interval.ms": "15000"} for name in SLOW_GROUPS},
        )
        self.shard = GroupShard(settings, lambda: self.image)
        self.now_ms = 1_000_000
        self.shard.loaded(self.now_ms)

    def ask(self, request: Message, version: int = 1) -> Any:
        """Their answer, having seen that ours is the same."""
        theirs = self.kafka.send(request, version)
        theirs.throttle_time_ms = 0
        self.now_ms += 1
        ours = self._answer(decode(type(request), encode(request, version), version), version, theirs)
        assert in_order(decode(type(theirs), encode(ours, version), version)) == in_order(theirs)
        return theirs

    def _answer(self, request: Message, version: int, theirs: Any) -> Message:
        shard = self.shard
        if isinstance(request, m.OffsetFetchRequest):
            fetched = [shard.fetch_offsets(group, require_stable=request.require_stable) for group in request.groups]
            return m.OffsetFetchResponse(groups=fetched)
        if isinstance(request, m.ListGroupsRequest):
            return m.ListGroupsResponse(groups=shard.list_groups(request.states_filter, request.types_filter))
        if isinstance(request, m.DescribeGroupsRequest):
            return m.DescribeGroupsResponse(groups=shard.describe_groups(request.groups, version))
        if isinstance(request, m.ConsumerGroupDescribeRequest):
            return m.ConsumerGroupDescribeResponse(groups=shard.describe_consumer_groups(request.group_ids))
        effects = self._step(request, version, theirs)
        while not effects.answers:
            deadline_ms = shard.next_deadline_ms
            assert deadline_ms is not None
            self.now_ms = max(self.now_ms, deadline_ms)
            effects.extend(shard.expire(self.now_ms))
        self.log += effects.records
        for action in effects.actions:
            assert isinstance(action, ResolveRegexes)
            self.log += shard.regexes_resolved(action, action.find(), self.now_ms).records
        [(_, answer)] = effects.answers
        if isinstance(answer, m.JoinGroupResponse) and answer.error_code != Error.NONE:
            answer.protocol_name = None  # as the handler does in versions that allow it
        return answer

    def _step(self, request: Message, version: int, theirs: Any) -> Effects:
        if isinstance(request, m.ConsumerGroupHeartbeatRequest):
            client = ClientInfo("client", "/127.0.0.1", version, theirs.member_id or "")
            return self.shard.consumer_heartbeat(request, client, "us", self.now_ms)
        if isinstance(request, m.OffsetCommitRequest):
            for each in request.topics:
                each.topic_id = self.topic_ids[each.name]  # as the handler does
            return self.shard.commit_offsets(request, version, "us", self.now_ms)
        if isinstance(request, m.JoinGroupRequest):
            return self.shard.join(request, requests.client(theirs.member_id, version), "us", self.now_ms)
        if isinstance(request, m.SyncGroupRequest):
            return self.shard.sync(request, "us", self.now_ms)
        if isinstance(request, m.HeartbeatRequest):
            return self.shard.heartbeat(request, "us", self.now_ms)
        if isinstance(request, m.LeaveGroupRequest):
            return self.shard.leave(request, "us", self.now_ms)
        if isinstance(request, m.OffsetDeleteRequest):
            return self.shard.delete_offsets(request, "us")
        assert isinstance(request, m.DeleteGroupsRequest)
        return self.shard.delete_groups(request.groups_names, "us")

    def describe(self, *group_ids: str) -> Any:
        return self.ask(m.ConsumerGroupDescribeRequest(group_ids=list(group_ids)))

    def compare_logs(self, group_id: str) -> None:
        """What both have written of a group, one after the other."""
        ours = [in_order_of_partitions(each) for each in self.log if group_of(each) == group_id]
        theirs = [in_order_of_partitions(each) for each in written_by(self.node, group_id)]
        assert [without_times(each) for each in theirs] == [without_times(each) for each in ours]


def in_order(response: Any) -> Any:
    """Kafka answers in the order of its maps, which nobody promises. Why a regular expression is invalid is said in the
    words of the library that compiles it."""
    for part in (response, *getattr(response, "groups", ())):
        if getattr(part, "error_message", None):
            part.error_message = part.error_message.partition("is not a valid regular expression")[0]
    if isinstance(response, m.ConsumerGroupHeartbeatResponse) and response.assignment is not None:
        sort_topics(response.assignment.topic_partitions)
    if isinstance(response, m.ConsumerGroupDescribeResponse):
        for group in response.groups:
            group.members.sort(key=lambda member: member.member_id)
            for member in group.members:
                member.subscribed_topic_names = sorted(member.subscribed_topic_names)
                sort_topics(member.assignment.topic_partitions)
                sort_topics(member.target_assignment.topic_partitions)
    if isinstance(response, m.ListGroupsResponse):
        response.groups.sort(key=lambda group: group.group_id)
    return response


def sort_topics(topics: list[Any]) -> None:
    topics.sort(key=lambda each: each.topic_id)
    for each in topics:
        each.partitions = sorted(each.partitions)


def in_order_of_partitions(record: Record) -> Record:
    value: Any = record.value
    if isinstance(value, m.ConsumerGroupTargetAssignmentMemberValue):
        sort_topics(value.topic_partitions)
    elif isinstance(value, m.ConsumerGroupCurrentMemberAssignmentValue):
        for topics in (value.assigned_partitions, value.partitions_pending_revocation):
            topics.sort(key=lambda each: each.topic_id)
            for each in topics:
                if each.assignment_epochs is not None:
                    pairs = sorted(zip(each.partitions, each.assignment_epochs, strict=True))
                    each.partitions = [partition for partition, _ in pairs]
                    each.assignment_epochs = [epoch for _, epoch in pairs]
    elif isinstance(value, m.ConsumerGroupRegularExpressionValue):
        value.topics = sorted(value.topics)
    return record


def without_times(record: Record) -> Record:
    value: Any = record.value
    if isinstance(value, m.ConsumerGroupTargetAssignmentMetadataValue):
        assert value.assignment_timestamp > 0
        value.assignment_timestamp = 0
    elif isinstance(value, m.ConsumerGroupRegularExpressionValue):
        value.timestamp = value.version = 0
    elif isinstance(value, m.OffsetCommitValue):
        value.commit_timestamp = 0
    elif isinstance(value, m.GroupMetadataValue):
        value.current_state_timestamp = 0
    return record


def group_of(record: Record) -> str:
    key: Any = record.key
    return str(key.group if isinstance(key, m.OffsetCommitKey | m.GroupMetadataKey) else key.group_id)


def written_by(node: apache_kafka.KafkaNode, group_id: str) -> list[Record]:
    """What Kafka's log says of a group."""
    data = (node.data_dir / "__consumer_offsets-0" / "00000000000000000000.log").read_bytes()
    batches = [data[position : position + header.size] for position, header in iter_headers(data)]
    read = [group_records.decode(each.key, each.value) for batch in batches for each in decode_records(batch)]
    return [record for record in read if record is not None and group_of(record) == group_id]


@pytest.fixture(scope="module")
def node() -> Iterator[apache_kafka.KafkaNode]:
    with apache_kafka.KafkaNode(properties=SETTINGS) as node:
        yield node


@pytest.fixture(scope="module")
def kafka(node: apache_kafka.KafkaNode) -> Iterator[Connection]:
    with Connection(node.host, node.port, client_id="client") as connection:
        topics = [
            m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in TOPICS.items()
        ]
        connection.send(m.CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        wait_until(lambda: bool(connection.send(m.FindCoordinatorRequest(key="any"), 3).error_code == Error.NONE))
        # A group that does not exist is what the coordinator knows as soon as it has read its topic.
        wait_until(lambda: connection.send(beat("none", "a", 5)).error_code == Error.GROUP_ID_NOT_FOUND)
        yield connection


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def topic_ids(kafka: Connection) -> dict[str, Uuid]:
    named = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in TOPICS]
    return {str(each.name): each.topic_id for each in kafka.send(m.MetadataRequest(topics=named)).topics}


@pytest.fixture
def pair(kafka: Connection, node: apache_kafka.KafkaNode, topic_ids: dict[str, Uuid]) -> Pair:
    """Each test uses groups of its own names."""
    return Pair(kafka, node, topic_ids)


def test_a_member_alone_is_assigned_everything_at_once(pair: Pair) -> None:
    joined = pair.ask(join("alone", "a", "foo", "bar"))
    assert joined.error_code == Error.NONE
    owned = assigned(joined)
    pair.ask(beat("alone", "a", joined.member_epoch))
    pair.ask(beat("alone", "a", joined.member_epoch, owned))
    pair.describe("alone")
    full = beat("alone", "a", joined.member_epoch, owned, rebalance_timeout_ms=7, subscribed_topic_names=["foo", "bar"])
    pair.ask(full)
    pair.ask(join("alone", "a", "foo", "bar"))
    pair.ask(leave("alone", "a"))
    pair.describe("alone")
    pair.compare_logs("alone")


@pytest.mark.parametrize(("assignor", "topics"), [("uniform", ["foo"]), ("range", ["foo", "bar"])])
def test_members_that_come_and_go(pair: Pair, assignor: str, topics: list[str]) -> None:
    """The uniform assignor begins with the topic that comes first in one of Kafka's maps, so it gets one here."""
    group = f"come and go {assignor}"
    fields = {"server_assignor": assignor}
    first = pair.ask(join(group, "a", *topics, **fields))
    second = pair.ask(join(group, "b", *topics, **fields))
    assert assigned(second) == {}, "the first member has yet to give up what it is to have"
    pair.describe(group)
    told = pair.ask(beat(group, "a", first.member_epoch))
    assert told.member_epoch == first.member_epoch
    pair.ask(beat(group, "a", first.member_epoch))
    pair.ask(beat(group, "b", second.member_epoch))
    pair.ask(beat(group, "a", first.member_epoch, assigned(first)))
    pair.describe(group)
    given_up = pair.ask(beat(group, "a", first.member_epoch, assigned(told)))
    assert given_up.member_epoch == second.member_epoch
    got = pair.ask(beat(group, "b", second.member_epoch))
    assert assigned(got)
    pair.describe(group)
    third = pair.ask(join(group, "c", "foo", **fields))
    pair.ask(leave(group, "b"))
    pair.ask(beat(group, "a", given_up.member_epoch))
    pair.ask(beat(group, "c", third.member_epoch, {}))
    pair.describe(group)
    pair.compare_logs(group)


def make_slow(kafka: Connection, group_id: str) -> None:
    """Lets a group have a new target every 15 seconds only, which is the most that Kafka allows."""
    alter = m.IncrementalAlterConfigsRequest
    wanted = alter.AlterableConfig(name="consumer.assignment.interval.ms", config_operation=0, value="15000")
    resource = alter.AlterConfigsResource(resource_type=32, resource_name=group_id, configs=[wanted])
    assert kafka.send(alter(resources=[resource])).responses[0].error_code == Error.NONE
    wait_until(lambda: "15000" in slow_interval(kafka, group_id))


def slow_interval(kafka: Connection, group_id: str) -> str:
    described = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=32, resource_name=group_id)
    return repr(kafka.send(m.DescribeConfigsRequest(resources=[described])).results[0].configs)


def test_a_target_is_made_no_more_often_than_the_interval_allows(pair: Pair) -> None:
    group, _ = SLOW_GROUPS
    make_slow(pair.kafka, group)
    first = pair.ask(join(group, "a", "foo"))
    second = pair.ask(join(group, "b", "foo"))
    assert second.member_epoch == first.member_epoch
    pair.describe(group)
    pair.ask(beat(group, "a", first.member_epoch))
    pair.ask(beat(group, "b", second.member_epoch))
    pair.compare_logs(group)


def test_a_member_that_changes_its_subscription(pair: Pair) -> None:
    joined = pair.ask(join("subscription", "a", "foo"))
    epoch = joined.member_epoch
    fewer = pair.ask(beat("subscription", "a", epoch, subscribed_topic_names=["bar"]))
    pair.describe("subscription")
    pair.ask(beat("subscription", "a", fewer.member_epoch))
    changed = pair.ask(beat("subscription", "a", fewer.member_epoch, {}))
    pair.describe("subscription")
    both = pair.ask(beat("subscription", "a", changed.member_epoch, subscribed_topic_names=["bar", "foo"]))
    pair.ask(beat("subscription", "a", both.member_epoch, assigned(both) or {}))
    pair.ask(beat("subscription", "a", both.member_epoch, subscribed_topic_names=["no such topic"]))
    pair.describe("subscription")
    pair.compare_logs("subscription")


def test_a_subscription_that_changes_before_the_next_target(pair: Pair) -> None:
    _, group = SLOW_GROUPS
    make_slow(pair.kafka, group)
    first = pair.ask(join(group, "s", "foo", "bar"))
    pair.ask(beat(group, "s", first.member_epoch, subscribed_topic_names=["bar"]))
    pair.describe(group)
    pair.ask(beat(group, "s", first.member_epoch, {}, subscribed_topic_names=[]))
    pair.describe(group)
    pair.compare_logs(group)


def test_epochs_that_are_not_the_members(pair: Pair, topic_ids: dict[str, Uuid]) -> None:
    first = pair.ask(join("epochs", "a", "foo"))
    second = pair.ask(join("epochs", "b", "bar"))
    moved = pair.ask(beat("epochs", "a", first.member_epoch))
    assert moved.member_epoch > first.member_epoch
    owned = assigned(first)
    assert owned is not None
    foo = topic_ids["foo"]
    for epoch in (first.member_epoch, first.member_epoch - 1, moved.member_epoch + 1, 77):
        for reported in (None, owned, {}, {foo: [0]}, {foo: [0, 99]}, {topic_ids["bar"]: [0]}):
            pair.ask(beat("epochs", "a", epoch, reported))
    pair.ask(beat("epochs", "nobody", 2))
    pair.ask(beat("no such group", "a", 2))
    pair.ask(leave("epochs", "nobody"))
    pair.ask(leave("no such group", "a"))
    pair.ask(leave("no such group", "a", instance_id="i", epoch=-2))
    pair.ask(beat("epochs", "b", second.member_epoch))


@pytest.mark.parametrize("version", [0, 1])
def test_requests_that_are_wrong_in_themselves(pair: Pair, version: int) -> None:
    wrong = [
        join("", "a", "foo"),
        join("  ", "a", "foo"),
        join("wrong", "a", "foo", instance_id=""),
        join("wrong", "a", "foo", rack_id=""),
        join("wrong", "a", "foo", rebalance_timeout_ms=-1),
        join("wrong", "a", "foo", topic_partitions=None),
        join("wrong", "a", "foo", server_assignor="none such"),
        join("wrong", "a", "foo", server_assignor=""),
        beat("wrong", "", 5),
        beat("wrong", "a", -3),
        leave("wrong", "a", epoch=-2),
        leave("wrong", ""),
        leave("wrong", "", instance_id="i", epoch=-2),
    ]
    without_subscription = join("wrong", "a")
    without_subscription.subscribed_topic_names = None
    for request in (*wrong, without_subscription):
        assert pair.ask(request, version).error_code != Error.NONE
    if version == 1:
        pair.ask(join("wrong", "", "foo"), version)
    pair.describe("wrong")


def test_a_member_without_an_id_gets_one_where_the_version_has_it_so(pair: Pair) -> None:
    assert pair.ask(join("named", "", "foo"), 0).error_code == Error.NONE
    pair.describe("named")


def test_a_group_that_is_full(pair: Pair) -> None:
    for member_id in "abcd":
        pair.ask(join("full", member_id, "foo"))
    assert pair.ask(join("full", "e", "foo")).error_code == Error.GROUP_MAX_SIZE_REACHED
    pair.ask(join("full", "d", "foo"))


def test_static_members(pair: Pair) -> None:
    first = pair.ask(join("static", "a", "foo", instance_id="one"))
    pair.ask(join("static", "b", "foo", instance_id="one"))
    pair.ask(beat("static", "b", first.member_epoch, instance_id="one"))
    pair.ask(beat("static", "a", first.member_epoch, instance_id="two"))
    pair.ask(beat("static", "a", first.member_epoch, instance_id="one"))
    pair.ask(leave("static", "b", instance_id="one", epoch=-2))
    pair.ask(leave("static", "b", instance_id="two", epoch=-2))
    pair.ask(leave("static", "a", instance_id="one", epoch=-2))
    pair.describe("static")
    pair.ask(beat("static", "a", first.member_epoch, instance_id="one"))
    again = pair.ask(join("static", "c", "foo", instance_id="one"))
    assert again.member_epoch == first.member_epoch
    assert assigned(again) == assigned(first)
    pair.describe("static")
    pair.ask(leave("static", "c", instance_id="one", epoch=-2))
    changed = pair.ask(join("static", "d", "bar", instance_id="one"))
    pair.ask(beat("static", "d", changed.member_epoch, instance_id="one"))
    pair.describe("static")
    pair.ask(leave("static", "d", instance_id="one"))
    pair.describe("static")
    pair.compare_logs("static")


def test_members_that_an_administrator_removes(pair: Pair) -> None:
    for member_id, instance_id in (("a", None), ("b", "one"), ("c", "two")):
        pair.ask(join("removed", member_id, "foo", instance_id=instance_id))
    identities = [("nobody", None), ("", "none such"), ("a", "one"), ("", "one"), ("c", "two"), ("a", None)]
    members = [
        m.LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
        for member_id, instance_id in identities
    ]
    pair.ask(m.LeaveGroupRequest(group_id="removed", members=members[:5]), 5)
    pair.describe("removed")
    pair.ask(m.LeaveGroupRequest(group_id="removed", members=members[5:]), 5)
    pair.describe("removed")


def test_subscriptions_by_regular_expression(pair: Pair) -> None:
    group = "regex"
    first = pair.ask(join(group, "a", regex="foo.*"))
    wait_until(lambda: regex_is_resolved(pair, group, first.member_epoch))
    pair.describe(group)
    got = pair.ask(beat(group, "a", first.member_epoch))
    assert len(assigned(got) or ()) == 2
    second = pair.ask(join(group, "b", "bar", regex="foo.*"))
    pair.describe(group)
    pair.ask(beat(group, "b", second.member_epoch, {}, subscribed_topic_regex=""))
    pair.describe(group)
    for bad in ("(", "a**", "[z-a]"):
        refused = pair.ask(join(group, "c", regex=bad))
        assert refused.error_code == Error.INVALID_REGULAR_EXPRESSION
    pair.ask(leave(group, "a"))
    pair.describe(group)
    pair.compare_logs(group)


def regex_is_resolved(pair: Pair, group_id: str, epoch: int) -> bool:
    """Kafka resolves on another thread."""
    described = pair.kafka.send(m.ConsumerGroupDescribeRequest(group_ids=[group_id]), 1).groups[0]
    return bool(described.group_epoch > epoch)


def test_offsets_of_members(pair: Pair) -> None:
    group = "offsets"
    first = pair.ask(join(group, "a", "foo"))
    epoch = first.member_epoch
    for version in (8, 9):
        pair.ask(requests.commit(group, {0: 5}, member_id="a", generation=epoch), version)
        pair.ask(requests.commit(group, {0: 5}, member_id="a", generation=epoch + 1), version)
        pair.ask(requests.commit(group, {0: 5}, member_id="a", generation=epoch - 1), version)
        pair.ask(requests.commit(group, {0: 5}, member_id="a"), version)
        pair.ask(requests.commit(group, {0: 5}, member_id="nobody", generation=epoch), version)
        pair.ask(requests.commit(group, {0: 5}), version)
    pair.ask(join(group, "b", "bar"))
    moved = pair.ask(beat(group, "a", epoch))
    assert moved.member_epoch == epoch + 1
    pair.ask(requests.commit(group, {1: 6}, member_id="a", generation=epoch), 9)
    pair.ask(requests.commit(group, {1: 6}, topic="bar", member_id="a", generation=epoch), 9)
    pair.ask(requests.commit(group, {1: 6}, member_id="a", generation=epoch - 1), 9)
    pair.ask(requests.commit(group, {2: 6}, metadata="x" * 5000, member_id="a", generation=epoch - 1), 9)
    for member_id, member_epoch in (("a", epoch + 1), ("a", epoch), ("a", -1), ("nobody", 5), (None, -1)):
        for request in (requests.fetch(group, 0, 1), requests.fetch_all(group)):
            request.member_id = member_id
            request.member_epoch = member_epoch
            pair.ask(m.OffsetFetchRequest(groups=[request]), 9)
    pair.ask(requests.delete_offsets(group, 0), 0)
    pair.ask(requests.delete_offsets(group, 0, topic="food"), 0)
    pair.ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
    pair.ask(leave(group, "a"))
    pair.ask(leave(group, "b"))
    pair.ask(requests.commit(group, {3: 6}), 9)
    pair.ask(requests.commit(group, {3: 6}, member_id="a", generation=epoch), 9)
    pair.ask(requests.delete_offsets(group, 0), 0)
    pair.ask(m.OffsetFetchRequest(groups=[requests.fetch_all(group)]), 9)
    pair.ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
    pair.describe(group)


def test_groups_of_both_types_are_listed_and_described(pair: Pair, kafka: Connection) -> None:
    for group in kafka.send(m.ListGroupsRequest(), 5).groups:
        for member in kafka.send(m.ConsumerGroupDescribeRequest(group_ids=[group.group_id])).groups[0].members:
            kafka.send(leave(group.group_id, member.member_id, instance_id=member.instance_id))
        kafka.send(m.DeleteGroupsRequest(groups_names=[group.group_id]), 2)
    pair.ask(requests.commit("list classic", {0: 1}), 9)
    pair.ask(join("list consumer", "a", "foo"))
    pair.ask(join("list left", "a", "foo"))
    pair.ask(leave("list left", "a"))
    pair.ask(join("list reconciling", "a", "foo"))
    pair.ask(join("list reconciling", "b", "foo"))
    for states in ([], ["stable"], ["Empty"], ["Reconciling"], ["assigning"], ["Dead"]):
        for types in ([], ["consumer"], ["Classic"], ["classic", "CONSUMER"]):
            pair.ask(m.ListGroupsRequest(states_filter=states, types_filter=types), 5)
    pair.ask(m.ListGroupsRequest(), 3)
    for version in (0, 5, 6):
        pair.ask(m.DescribeGroupsRequest(groups=["list consumer", "list left", "list none"]), version)
    pair.describe("list classic", "list consumer", "list none", "list left")


def test_a_group_that_nobody_is_in_takes_on_the_type_of_its_next_member(pair: Pair) -> None:
    group = "both types"
    pair.ask(requests.commit(group, {0: 1}), 9)
    pair.ask(join(group, "a", "foo", regex="("))
    pair.describe(group)
    joined = pair.ask(join(group, "a", "foo"))
    assert joined.error_code == Error.NONE
    pair.ask(requests.join(group), 9)
    pair.ask(requests.heartbeat(group, "a", joined.member_epoch), 4)
    pair.ask(requests.sync(group, "a", joined.member_epoch), 5)
    pair.ask(requests.leave(group, "a", "nobody"), 5)
    pair.ask(leave(group, "a"))
    pair.describe(group)
    offered = pair.ask(requests.join(group), 9)
    assert offered.error_code == Error.MEMBER_ID_REQUIRED
    # Only now: the offer of a member id does not wait until Kafka has written that the group is another one.
    pair.ask(requests.join(group, offered.member_id), 9)
    pair.describe(group)
    pair.ask(beat(group, "a", 2))
    pair.ask(leave(group, "a"))
    pair.ask(requests.leave(group, offered.member_id), 5)
    pair.ask(join(group, "a", "foo"))
    pair.ask(m.OffsetFetchRequest(groups=[requests.fetch_all(group)]), 9)
    pair.compare_logs(group)
