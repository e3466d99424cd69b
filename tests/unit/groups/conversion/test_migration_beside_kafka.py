"""Groups that change their protocol while they run: Apache Kafka and a shard give the same answers and records."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from tools import apache_kafka

from barnabas.client.broker_connection import Connection
from barnabas.groups.classic.classic_group import ClassicGroupSettings
from barnabas.groups.consumer.step_context import ConsumerGroupSettings
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.groups.consumer.test_consumer_beside_kafka import (
    TOPICS,
    Pair,
    group_of,
    in_order_of_partitions,
    wait_until,
    written_by,
)
from tests.unit.groups.consumer_requests import assigned, beat, join, leave
from tests.unit.groups.conversion.mixed_driver import assignment, subscription

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.coordination.effects import Record
    from barnabas.protocol.uuids import Uuid

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs")]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.max.size": "3",
    "group.consumer.max.size": "3",
}


class MigratingPair(Pair):
    def __init__(self, kafka: Connection, node: apache_kafka.KafkaNode, topic_ids: Mapping[str, Uuid]) -> None:
        super().__init__(kafka, node, topic_ids)
        settings = ShardSettings(
            group=ClassicGroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=3),
            consumer=ConsumerGroupSettings(assignment_interval_ms=0, max_size=3),
        )
        self.shard = GroupShard(settings, lambda: self.image)
        self.shard.loaded(self.now_ms)

    def classic_join(
        self,
        group_id: str,
        member_id: str,
        owned: Sequence[int] = (),
        *,
        instance_id: str | None = None,
        protocols: Sequence[str] = ("cooperative-sticky", "range"),
        metadata: bytes | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 45_000,
    ) -> Any:
        metadata = subscription(["bar"], {"bar": owned}) if metadata is None else metadata
        request = m.JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=60_000,
            protocol_type=protocol_type,
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
        )
        return self.ask(request, 9)

    def classic_sync(self, group_id: str, joined: Any, given: bytes | None = None, **fields: Any) -> Any:
        each = m.SyncGroupRequest.SyncGroupRequestAssignment
        request = m.SyncGroupRequest(
            group_id=group_id,
            generation_id=fields.pop("generation_id", joined.generation_id),
            member_id=joined.member_id,
            protocol_type=fields.pop("protocol_type", joined.protocol_type),
            protocol_name=fields.pop("protocol_name", joined.protocol_name),
            assignments=[] if given is None else [each(member_id=joined.member_id, assignment=given)],
            **fields,
        )
        return self.ask(request, 5)

    def classic_beat(self, group_id: str, joined: Any, **fields: Any) -> Error:
        generation = fields.pop("generation_id", joined.generation_id)
        member_id = fields.pop("member_id", joined.member_id)
        request = m.HeartbeatRequest(group_id=group_id, member_id=member_id, generation_id=generation, **fields)
        return Error(self.ask(request, 4).error_code)

    def classic_leave(self, group_id: str, *identities: tuple[str, str | None]) -> Any:
        members = [
            m.LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in identities
        ]
        return self.ask(m.LeaveGroupRequest(group_id=group_id, members=members), 5)

    def classic_group(self, group_id: str, *, instance_id: str | None = None, given: bytes | None = None) -> Any:
        """A classic group with one member, which has all of the topic."""
        member_id = ""
        if instance_id is None:
            member_id = self.classic_join(group_id, "").member_id
        joined = self.classic_join(group_id, member_id, instance_id=instance_id)
        given = assignment({"bar": [0, 1, 2]}) if given is None else given
        assert self.classic_sync(group_id, joined, given, group_instance_id=instance_id).error_code == Error.NONE
        return joined

    def compare_logs(self, group_id: str) -> None:
        ours = [each for each in self.log if group_of(each) == group_id]
        assert comparable(written_by(self.node, group_id)) == comparable(ours)


def comparable(log: Sequence[Record]) -> list[Record]:
    """Records without the times in them; those of several members in the order of the members. A group that has come
    down and has to rebalance has no leader here, so that a restart does not forget it; Kafka's has, and does."""
    for before, record in itertools.pairwise(log):
        if isinstance(before.key, m.ConsumerGroupMetadataKey) and isinstance(record.value, m.GroupMetadataValue):
            record.value.leader = None
    runs = itertools.groupby((without_times(in_order_of_partitions(each)) for each in log), lambda each: type(each.key))
    return [record for _, run in runs for record in sorted(run, key=lambda each: getattr(each.key, "member_id", ""))]


def without_times(record: Record) -> Record:
    value: Any = record.value
    if isinstance(value, m.ConsumerGroupTargetAssignmentMetadataValue):
        value.assignment_timestamp = min(value.assignment_timestamp, 1)
    elif isinstance(value, m.GroupMetadataValue):
        value.current_state_timestamp = 0
        value.members.sort(key=lambda each: each.member_id)
    return record


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
        alive = m.HeartbeatRequest(group_id="any", member_id="nobody")
        wait_until(lambda: bool(connection.send(alive, 4).error_code == Error.UNKNOWN_MEMBER_ID))
        yield connection


@pytest.fixture
def pair(kafka: Connection, node: apache_kafka.KafkaNode) -> MigratingPair:
    """Each test uses groups of its own names."""
    named = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in TOPICS]
    topic_ids = {str(each.name): each.topic_id for each in kafka.send(m.MetadataRequest(topics=named)).topics}
    return MigratingPair(kafka, node, topic_ids)


def test_a_group_goes_up_is_reconciled_and_comes_down_again(pair: MigratingPair) -> None:
    group = "up and down"
    first = pair.classic_group(group)
    new = pair.ask(join(group, "n", "bar"))
    assert (new.error_code, assigned(new)) == (Error.NONE, {})
    pair.describe(group)
    pair.ask(m.DescribeGroupsRequest(groups=[group]), 5)
    assert pair.classic_beat(group, first) is Error.REBALANCE_IN_PROGRESS
    assert pair.classic_sync(group, first).error_code == Error.REBALANCE_IN_PROGRESS
    held = pair.classic_join(group, first.member_id, [0, 1, 2])
    assert held.generation_id == first.generation_id
    assert pair.classic_beat(group, held) is Error.REBALANCE_IN_PROGRESS
    pair.classic_sync(group, held)
    pair.describe(group)
    moved = pair.classic_join(group, first.member_id, [0, 1])
    assert moved.generation_id > first.generation_id
    pair.classic_sync(group, moved)
    assert pair.classic_beat(group, moved) is Error.NONE
    got = pair.ask(beat(group, "n", new.member_epoch, {}))
    assert assigned(got)
    pair.describe(group)
    pair.ask(leave(group, "n"))
    pair.compare_logs(group)
    assert pair.classic_beat(group, moved) is not Error.NONE
    again = pair.classic_join(group, first.member_id, [0, 1])
    assert pair.classic_sync(group, again, assignment({"bar": [0, 1, 2]})).error_code == Error.NONE
    pair.ask(m.DescribeGroupsRequest(groups=[group]), 5)
    pair.compare_logs(group)


def test_a_classic_member_joins_a_consumer_group(pair: MigratingPair) -> None:
    group = "classic guest"
    host = pair.ask(join(group, "host", "bar"))
    guest_id = pair.classic_join(group, "").member_id
    guest = pair.classic_join(group, guest_id)
    assert pair.classic_sync(group, guest).error_code == Error.NONE
    assert pair.classic_beat(group, guest) is Error.NONE, "what it waits for is not free yet"
    told = pair.ask(beat(group, "host", host.member_epoch))
    pair.ask(beat(group, "host", host.member_epoch, assigned(told)))
    assert pair.classic_beat(group, guest) is Error.REBALANCE_IN_PROGRESS, "now it is"
    guest = pair.classic_join(group, guest_id)
    pair.classic_sync(group, guest)
    assert pair.classic_beat(group, guest) is Error.NONE
    pair.describe(group)
    pair.classic_leave(group, (guest_id, None), ("nobody", None))
    pair.describe(group)
    pair.classic_leave(group, ("host", None))
    pair.describe(group)
    pair.compare_logs(group)


def test_what_is_refused_to_members_of_either_protocol(pair: MigratingPair) -> None:
    group = "refused"
    host = pair.ask(join(group, "host", "bar"))
    guest_id = pair.classic_join(group, "").member_id
    guest = pair.classic_join(group, guest_id)
    pair.classic_join(group, "", protocol_type="connect")
    pair.classic_join(group, "", protocols=["other"])
    pair.classic_join(group, "", protocols=[])
    pair.classic_join(group, "", session_timeout_ms=1)
    pair.classic_join(group, guest_id, instance_id="unknown")
    pair.classic_sync(group, guest, generation_id=77)
    pair.classic_sync(group, guest, protocol_name="other")
    pair.classic_sync(group, guest, protocol_type="connect")
    pair.classic_sync(group, guest, group_instance_id="unknown")
    pair.classic_beat(group, guest, generation_id=77)
    pair.classic_beat(group, guest, member_id="nobody")
    pair.classic_beat(group, guest, member_id="host", generation_id=host.member_epoch)
    pair.classic_beat(group, guest, group_instance_id="unknown")
    pair.classic_leave(group, ("nobody", None), ("", "unknown"))
    pair.classic_join(group, "third")
    assert pair.classic_join(group, "fourth").error_code == Error.GROUP_MAX_SIZE_REACHED
    pair.describe(group)
    pair.compare_logs(group)


def test_classic_groups_that_cannot_go_up(pair: MigratingPair) -> None:
    pair.classic_group("own assignor", given=assignment({"bar": [0, 1, 2]}, user_data=b"mine"))
    assert pair.ask(join("own assignor", "n", "bar")).error_code == Error.GROUP_ID_NOT_FOUND
    pair.classic_group("malformed", given=b"\0")
    assert pair.ask(join("malformed", "n", "bar")).error_code == Error.GROUP_ID_NOT_FOUND
    connect_id = pair.classic_join("workers", "", protocol_type="connect").member_id
    pair.classic_join("workers", connect_id, protocol_type="connect")
    assert pair.ask(join("workers", "n", "bar")).error_code == Error.GROUP_ID_NOT_FOUND
    assert pair.ask(beat("workers", "n", 3)).error_code == Error.GROUP_ID_NOT_FOUND
    assert pair.ask(leave("workers", "n")).error_code == Error.GROUP_ID_NOT_FOUND


def test_static_members_change_their_protocol_one_after_the_other(pair: MigratingPair) -> None:
    group = "static"
    first = pair.classic_group(group, instance_id="i")
    up = pair.ask(join(group, "n", "bar", instance_id="i"))
    assert assigned(up), "it is the same member, and has what it had"
    pair.describe(group)
    assert pair.classic_beat(group, first, group_instance_id="i") is Error.FENCED_INSTANCE_ID
    owned = assigned(up)
    pair.ask(beat(group, "n", up.member_epoch, owned, instance_id="i"))
    down = pair.classic_join(group, "", instance_id="i")
    pair.compare_logs(group)
    pair.ask(m.DescribeGroupsRequest(groups=[group]), 5)
    pair.classic_beat(group, down, group_instance_id="i")
    pair.classic_sync(group, down, group_instance_id="i")
    pair.compare_logs(group)


def test_a_static_member_comes_back_with_other_topics(pair: MigratingPair) -> None:
    group = "static with other topics"
    pair.ask(join(group, "n", "foo", instance_id="i"))
    pair.classic_join(group, "", instance_id="i", metadata=subscription(["bar"]))
    pair.compare_logs(group)
    pair.ask(m.DescribeGroupsRequest(groups=[group]), 5)
