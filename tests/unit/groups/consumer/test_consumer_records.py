"""Consumer groups as records: what older versions of Kafka left out or wrote otherwise."""

from __future__ import annotations

from barnabas.coordination.effects import Effects, Record
from barnabas.groups import group_records
from barnabas.groups.consumer import consumer_records
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.groups.consumer.consumer_member import ConsumerMember, MemberState
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.groups.consumer.consumer_driver import GROUP, Driver, Member
from tests.unit.groups.consumer_requests import beat, topic, topic_id

FOO = topic_id("foo")
CURRENT_KEY = m.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")


def test_a_member_that_speaks_the_classic_protocol_is_read_as_it_was_written() -> None:
    classic = m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=10_000,
        supported_protocols=[m.ConsumerGroupMemberMetadataValue.ClassicProtocol(name="range", metadata=b"\0\1")],
    )
    member = ConsumerMember(
        "a", instance_id="i", rack_id="r", subscribed_topics=frozenset({"foo", "bar"}), classic=classic
    )
    decoded = group_records.decode(*group_records.encode(consumer_records.member_metadata(GROUP, member)))
    assert decoded is not None
    group = ConsumerGroup(GROUP)
    group.replay(decoded)
    assert group.members == {"a": member}
    assert group.members["a"].uses_classic_protocol


def test_partitions_without_an_epoch_are_owned_since_the_members() -> None:
    owned = m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=FOO, partitions=[0, 3])
    value = m.ConsumerGroupCurrentMemberAssignmentValue(member_epoch=5, assigned_partitions=[owned])
    group = ConsumerGroup(GROUP)
    group.replay(Record(CURRENT_KEY, value))
    assert group.members["a"].assigned == {FOO: {0: 5, 3: 5}}


def test_a_member_in_a_state_of_a_later_version_has_to_give_up_everything_and_rejoin() -> None:
    driver = Driver(topic("foo", 2))
    member = Member("a")
    driver.join(member, "foo")
    value = consumer_records.current_assignment(GROUP, driver.member(member)).value
    assert isinstance(value, m.ConsumerGroupCurrentMemberAssignmentValue)
    value.state = 9
    driver.log.append(Record(CURRENT_KEY, value))
    driver.restart()
    assert driver.member(member).state is MemberState.UNKNOWN
    assert driver.ask(beat(GROUP, "a", member.epoch, member.owned)).error_code == Error.FENCED_MEMBER_EPOCH
    driver.join(member, "foo")
    assert member.owned == {FOO: [0, 1]}
    assert driver.state == "Stable"


def test_topics_that_kafka_before_4_1_wrote_out_are_taken_back_with_the_first_heartbeat() -> None:
    driver = Driver(topic("foo", 2))
    member = Member("a")
    driver.join(member, "foo")
    key = m.ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    driver.log.append(Record(key, m.ConsumerGroupPartitionMetadataValue()))
    driver.restart()
    written = len(driver.log)
    driver.beat(member)
    assert driver.log[written:] == [Record(key, None)]


def test_tombstones_of_a_group_that_is_gone_are_passed_over() -> None:
    shard = GroupShard(ShardSettings())
    for record in consumer_records.group_tombstones(GROUP, ["a"], ["foo.*"]):
        shard.replay(record)
    shard.loaded(now_ms=0)
    assert shard.list_groups([], []) == []


def test_the_tombstones_of_a_group_take_back_all_of_it() -> None:
    driver = Driver(topic("foo", 2))
    first, second = Member("a"), Member("b")
    driver.join(first, "foo", regex="f.*")
    driver.join(second, "foo")
    driver.settle(first, second)
    effects = Effects()
    for record in consumer_records.group_tombstones(GROUP, driver.group.members, driver.group.resolved_regexes):
        effects.write(record)
    driver.log += effects.records
    driver.restart()
    assert driver.shard.list_groups([], []) == []
    assert {type(record.key) for record in effects.records} == {type(record.key) for record in driver.log} | {
        m.ConsumerGroupPartitionMetadataKey
    }
