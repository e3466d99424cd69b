"""Groups seen and changed from outside, and the ways in which applications keep their place."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from tests.clients.adapter import Client, ClientError, GroupAdmin, MemberOptions, consume, values
from tests.clients.members import Members, owned, receive, settle
from tests.clients.with_confluent import ConfluentClient, member_config
from tests.clients.with_kafka_python import KafkaPythonClient
from tests.peers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers import Peer

PARTITIONS = 2
UNKNOWN_MEMBER_ID, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC = 25, 68, 69, 86


@pytest.fixture
def filled_topic(group_confluent: ConfluentClient, topic: str) -> str:
    """A topic of two partitions with ten records in each."""
    group_confluent.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        group_confluent.produce(topic, values(10), partition=partition)
    return topic


def test_a_group_is_listed_and_described(group_client: Client, members: Members, filled_topic: str, group: str) -> None:
    member = members.join(group_client, group, [filled_topic], MemberOptions(client_id="someone"))
    receive([member], 20)
    assert group in group_client.group_names()
    described = group_client.describe_group(group)
    assert (described.state, described.assignor) == ("Stable", "range")
    ((member_id, details),) = described.members.items()
    assert member_id.startswith("someone-")
    assert (details.client_id, details.instance_id) == ("someone", None)
    assert details.host.removeprefix("/") == "127.0.0.1"
    assert details.assigned == {(filled_topic, 0), (filled_topic, 1)}
    member.close()
    assert group_client.describe_group(group).members == {}


def test_a_group_is_deleted_when_it_is_empty(
    group_admin: GroupAdmin, members: Members, filled_topic: str, group: str
) -> None:
    member = members.join(group_admin, group, [filled_topic])
    receive([member], 20)
    member.commit()
    with pytest.raises(ClientError) as refused:
        group_admin.delete_group(group)
    assert refused.value.code == NON_EMPTY_GROUP
    member.close()
    assert len(group_admin.committed_offsets(group)) == PARTITIONS
    group_admin.delete_group(group)
    assert group not in group_admin.group_names()
    assert group_admin.committed_offsets(group) == {}
    with pytest.raises(ClientError) as refused:
        group_admin.delete_group(group)
    assert refused.value.code == GROUP_ID_NOT_FOUND


def test_a_stopped_group_is_set_back_and_reads_again(
    group_admin: GroupAdmin, members: Members, filled_topic: str, group: str
) -> None:
    """While it has members, only they may move its offsets."""
    member = members.join(group_admin, group, [filled_topic])
    receive([member], 20)
    member.commit()
    with pytest.raises(ClientError) as refused:
        group_admin.alter_offsets(group, {(filled_topic, 0): 0})
    assert refused.value.code == UNKNOWN_MEMBER_ID
    member.close()
    group_admin.alter_offsets(group, {(filled_topic, 0): 4, (filled_topic, 1): 9})
    again = receive([members.join(group_admin, group, [filled_topic])], 7)
    assert {(record.partition, record.offset) for record in again} == {
        *((0, offset) for offset in range(4, 10)),
        (1, 9),
    }


def test_offsets_of_a_topic_are_forgotten_when_nobody_is_subscribed_to_it(
    group_node: Peer, members: Members, filled_topic: str, group: str
) -> None:
    client = KafkaPythonClient(group_node.bootstrap)
    member = members.join(client, group, [filled_topic])
    receive([member], 20)
    member.commit()
    with pytest.raises(ClientError) as refused:
        client.delete_offsets(group, [(filled_topic, 0)])
    assert refused.value.code == GROUP_SUBSCRIBED_TO_TOPIC
    member.close()
    client.delete_offsets(group, [(filled_topic, 0)])
    assert client.committed_offsets(group) == {(filled_topic, 1): 10}


def test_a_consumer_that_assigns_itself_is_in_no_group_and_hears_of_no_new_partition(
    group_client: Client, topic: str
) -> None:
    group_client.create_topic(topic)
    before = group_client.group_names()
    group_client.produce(topic, values(5))
    with group_client.consumer(topic, "beginning") as consumer:
        assert len(consumer.receive(5)) == 5
        group_client.add_partitions(topic, 2)
        wait_until(lambda: group_client.partition_count(topic) == 2, "the partition is there")
        group_client.produce(topic, values(5), partition=1)
        group_client.produce(topic, values(5), partition=0)
        assert {record.partition for record in consumer.receive(6, deadline_s=1)} == {0}
    assert group_client.group_names() == before


def test_the_internal_topic_has_fifty_compacted_partitions(
    group_confluent: ConfluentClient, members: Members, filled_topic: str, group: str
) -> None:
    receive([members.join(group_confluent, group, [filled_topic])], 20)
    assert group_confluent.partition_count("__consumer_offsets") == 50
    config = group_confluent.topic_config("__consumer_offsets")
    assert {name: config[name] for name in ("compression.type", "cleanup.policy", "segment.bytes")} == {
        "compression.type": "producer",
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
    }


def bare_member(node: Peer, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(member_config(node.bootstrap, group, MemberOptions()))


def test_commits_in_the_background_report_to_their_callback(
    group_confluent: ConfluentClient, group_node: Peer, filled_topic: str, group: str
) -> None:
    """Asynchronous in the loop, with a callback, and one that is waited for at the end."""
    reported: list[tuple[Any, list[int]]] = []
    config = member_config(group_node.bootstrap, group, MemberOptions())
    config["on_commit"] = lambda error, partitions: reported.append((error, [each.offset for each in partitions]))
    consumer = confluent_kafka.Consumer(config)
    with contextlib.closing(consumer):
        consumer.subscribe([filled_topic])
        count = 0
        while count < 20:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            count += 1
            if message.partition() == 0:
                consumer.commit(message=message)
        wait_until(lambda: consumer.poll(0) is None and len(reported) == 10, "all commits are reported")
        assert [error for error, _ in reported] == [None] * 10
        assert sorted(offsets for _, offsets in reported) == [[offset] for offset in range(1, 11)]
        (at_last,) = consumer.commit(offsets=[confluent_kafka.TopicPartition(filled_topic, 0, 10)], asynchronous=False)
        assert at_last.error is None
    assert group_confluent.committed_offsets(group)[filled_topic, 0] == 10


def test_a_commit_on_revocation_is_the_place_from_which_the_next_owner_goes_on(
    group_confluent: ConfluentClient, group_node: Peer, members: Members, filled_topic: str, group: str
) -> None:
    consumer = bare_member(group_node, group)

    def keep_place(_: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        read = [each for each in consumer.position(partitions) if each.offset >= 0]
        if read:
            consumer.commit(offsets=read, asynchronous=False)

    consumer.subscribe([filled_topic], on_revoke=keep_place)
    received = 0
    while received < 20:
        received += len(consumer.consume(20 - received, 1))
    heir = members.join(group_confluent, group, [filled_topic])
    while owned([heir]) != [1]:
        assert heir.failure is None
        assert consumer.consume(10, 0.02) == []
    consumer.close()
    settle([heir], lambda: owned([heir]) == [2], "the heir has both")
    group_confluent.produce(filled_topic, values(1), partition=0)
    assert [(record.partition, record.offset) for record in receive([heir], 1)] == [(0, 10)]


def test_offsets_kept_with_the_results_give_exactly_once(
    group_node: Peer, filled_topic: str, group: str, tmp_path: Path
) -> None:
    """Each record is stored with its offset in one transaction of a database, and a consumer seeks to what is there."""

    def run(database: sqlite3.Connection, count: int) -> None:
        consumer = bare_member(group_node, group)

        def seek(_: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
            for each in partitions:
                row = database.execute("select max(at) from seen where partition = ?", (each.partition,)).fetchone()
                each.offset = confluent_kafka.OFFSET_BEGINNING if row[0] is None else row[0] + 1
            consumer.assign(partitions)

        consumer.subscribe([filled_topic], on_assign=seek)
        with contextlib.closing(consumer):
            for _ in range(count):
                message = consumer.poll(10)
                assert message is not None
                assert message.error() is None
                with database:
                    database.execute("insert into seen values (?, ?)", (message.partition(), message.offset()))

    with contextlib.closing(sqlite3.connect(tmp_path / "results")) as database:
        database.execute("create table seen (partition int, at int)")
        run(database, 7)
        run(database, 13)
        seen = database.execute("select partition, at from seen order by partition, at").fetchall()
    assert seen == [(partition, offset) for partition in range(PARTITIONS) for offset in range(10)]


def test_a_paused_partition_waits_for_its_retry_while_the_others_go_on(
    group_confluent: ConfluentClient, members: Members, filled_topic: str, group: str
) -> None:
    """Record 3 cannot be handled yet; what cannot be handled at all goes to a topic of its own."""
    dead_letters = f"{filled_topic}-dead"
    group_confluent.create_topic(dead_letters)
    member = members.join(group_confluent, group, [filled_topic])
    receive([member], 20)

    def retry(consumer: Any) -> None:
        consumer.seek(filled_topic, 0, 3)
        consumer.pause(filled_topic, 0)

    member.do(retry)
    group_confluent.produce(filled_topic, values(5), partition=1)
    assert {record.partition for record in receive([member], 5)} == {1}
    member.do(lambda consumer: consumer.resume(filled_topic, 0))
    again = receive([member], 7)
    assert [(record.partition, record.offset) for record in again] == [(0, offset) for offset in range(3, 10)]
    group_confluent.produce(dead_letters, values(1, prefix="failed"))
    member.commit({(filled_topic, 0): 10})
    assert len(consume(group_confluent, dead_letters, 1)) == 1
    assert group_confluent.committed_offsets(group)[filled_topic, 0] == 10
