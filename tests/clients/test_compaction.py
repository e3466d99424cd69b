"""Compacted topics as clients see them: the last value of each key, in its old place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import Error
from tests.clients.adapter import Client, ClientError, ConsumerOptions, Message, ProducerOptions, consume
from tests.clients.with_confluent import ConfluentClient
from tests.peers import closed_segment_sizes, wait_until

if TYPE_CHECKING:
    from tests.clients.adapter import Received
    from tests.clients.conftest import Begin
    from tests.clients.members import Members
    from tests.conftest import MakeNode
    from tests.peers import Peer

SEGMENT_MS = 5_000
SEGMENT_BYTES_MIN = 1 << 20
PARTITIONS = 100
COMMITS = 250
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": str(SEGMENT_MS),
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
}


class Later:
    """Makes segments roll: each message is this much younger than the one before."""

    def __init__(self) -> None:
        self._timestamp_ms = int(time.time() * 1000)

    def roll(self, client: Client, topic: str, key: bytes) -> None:
        """Writes a message that is too young for the active segment, so that it begins the next."""
        self._timestamp_ms += 2 * SEGMENT_MS
        client.produce(topic, [self.message(b"rolls", key)])

    def message(self, value: bytes | None, key: bytes) -> Message:
        return Message(value, key, timestamp_ms=self._timestamp_ms)


def pairs(received: list[Received]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in received]


def read_all(client: Client, topic: str, options: ConsumerOptions | None = None) -> list[Received]:
    """Everything up to the last record, which `roll` has written."""
    read: list[Received] = []
    _, end = client.offset_range(topic)
    with client.consumer(topic, "beginning", options=options or ConsumerOptions()) as consumer:
        while not read or read[-1].offset < end - 1:
            received = consumer.receive(1)
            assert received, f"nothing came after {read[-1:]}"
            read += received
    return read


def test_a_late_reader_sees_the_last_value_of_each_key_at_its_old_offset(client: Client, topic: str) -> None:
    """One that stayed has seen them all."""
    client.create_topic(topic, config=COMPACTED)
    later = Later()
    with client.consumer(topic, "beginning") as stayed:
        client.produce(topic, [later.message(b"1000", key) for key in (b"A", b"B", b"C")])
        client.produce(
            topic, [later.message(b"2000", b"A"), later.message(b"2000", b"B"), later.message(b"3000", b"b")]
        )
        seen = stayed.receive(6)
    assert [(each.key, each.value) for each in seen] == [
        (b"A", b"1000"),
        (b"B", b"1000"),
        (b"C", b"1000"),
        (b"A", b"2000"),
        (b"B", b"2000"),
        (b"b", b"3000"),
    ]
    later.roll(client, topic, b"D")
    wait_until(lambda: len(read_all(client, topic)) < 7, "the log is compacted")
    assert pairs(read_all(client, topic)) == [
        (2, b"C", b"1000"),
        (3, b"A", b"2000"),
        (4, b"B", b"2000"),
        (5, b"b", b"3000"),
        (6, b"D", b"rolls"),
    ]
    assert client.offset_range(topic) == (0, 7)


def test_a_reader_may_ask_for_an_offset_that_is_gone(client: Client, topic: str) -> None:
    client.create_topic(topic, config=COMPACTED)
    later = Later()
    client.produce(topic, [later.message(b"%d" % number, b"key") for number in range(10)])
    client.produce(topic, [later.message(b"%d" % number, b"key") for number in range(10)])
    later.roll(client, topic, b"end")
    wait_until(lambda: len(read_all(client, topic)) == 2, "the log is compacted")
    for offset in (0, 5, 12, 19):
        assert consume(client, topic, 1, start=offset)[0].offset == 19
    assert consume(client, topic, 1, start=20)[0].offset == 20


def test_a_record_without_a_key_is_refused_and_those_with_one_are_taken(client: Client, topic: str) -> None:
    client.create_topic(topic, config=COMPACTED)
    with pytest.raises(ClientError) as refused:
        client.produce(topic, [Message(b"value")])
    # aiokafka has no name for that, and tells of an unknown error.
    assert refused.value.code in (Error.INVALID_RECORD, Error.UNKNOWN_SERVER_ERROR)
    assert client.offset_range(topic) == (0, 0)
    client.produce(topic, [Message(b"value", b"key")])
    assert [(each.offset, each.key) for each in consume(client, topic, 1)] == [(0, b"key")]


def test_a_key_without_a_value_is_gone_in_the_end(client: Client, topic: str) -> None:
    client.create_topic(topic, config=COMPACTED)
    later = Later()
    client.produce(topic, [later.message(b"1", b"gone"), later.message(b"1", b"kept")])
    client.produce(topic, [later.message(None, b"gone")])
    later.roll(client, topic, b"first")
    wait_until(
        lambda: all(each.value is not None or each.offset == 2 for each in read_all(client, topic)), "it is read"
    )
    wait_until(lambda: (0, b"gone", b"1") not in pairs(read_all(client, topic)), "the old value is gone")
    rolls = iter(range(1_000))

    def is_gone() -> bool:
        later.roll(client, topic, b"roll-%d" % next(rolls))
        return b"gone" not in {each.key for each in read_all(client, topic)}

    wait_until(is_gone, "the mark of the deletion is gone too", poll_s=0.3)
    assert (1, b"kept", b"1") in pairs(read_all(client, topic))


def test_a_reader_of_committed_data_sees_the_last_committed_value(
    client: Client, topic: str, transactional_id: str, begin: Begin
) -> None:
    client.create_topic(topic, config=COMPACTED)
    later = Later()
    client.produce(topic, [later.message(b"0", b"a"), later.message(b"0", b"b"), later.message(b"0", b"c")])
    producer = begin(client, transactional_id)
    producer.send(topic, [later.message(b"committed", b"a")])
    producer.commit()
    producer.begin()
    producer.send(topic, [later.message(b"aborted", b"a"), later.message(b"aborted", b"b")])
    producer.abort()
    producer.begin()
    producer.send(topic, [later.message(b"committed", b"c")])
    producer.commit()
    later.roll(client, topic, b"end")
    expected = {b"a": b"committed", b"b": b"0", b"c": b"committed", b"end": b"rolls"}
    committed = ConsumerOptions(isolation="read_committed")
    wait_until(lambda: len(read_all(client, topic)) == len(expected), "the log is compacted")
    for options in (committed, ConsumerOptions()):
        assert {each.key: each.value for each in read_all(client, topic, options)} == expected


def test_both_policies_together_remove_old_segments_too(client: Client, topic: str) -> None:
    client.create_topic(
        topic,
        config=COMPACTED | {"cleanup.policy": "compact,delete", "retention.ms": "1800000", "file.delete.delay.ms": "0"},
    )
    now_ms = int(time.time() * 1000)

    def write(*ages_ms: int) -> None:
        for age_ms in ages_ms:
            client.produce(topic, [Message(b"%d ms old" % age_ms, b"key", timestamp_ms=now_ms - age_ms)])

    write(3_600_000, 3_500_000)
    wait_until(lambda: client.offset_range(topic) == (2, 2), "what is too old is gone")
    write(60_000, 50_000, 0)
    wait_until(lambda: [each.offset for each in read_all(client, topic)] == [3, 4], "the rest is compacted")
    assert client.offset_range(topic) == (2, 5)


def test_what_is_compacted_outlives_a_restart_and_producers_go_on(
    library: type[Client], make_node: MakeNode, topic: str
) -> None:
    node = make_node({})
    client = library(node.bootstrap)
    client.create_topic(topic, config=COMPACTED)
    later = Later()
    options = ProducerOptions(idempotent=True)
    for number in range(3):
        client.produce(topic, [later.message(b"%d" % number, b"k%d" % n) for n in range(20)], options=options)
    later.roll(client, topic, b"end")
    expected = [(40 + n, b"k%d" % n, b"2") for n in range(20)]
    wait_until(lambda: pairs(read_all(client, topic))[:-1] == expected, "the log is compacted")
    node.stop()
    node.start()
    client = library(node.bootstrap)
    wait_until(lambda: topic in client.topic_names(), "the topic is there")
    assert pairs(read_all(client, topic))[:-1] == expected
    client.produce(topic, [later.message(b"new", b"k0")], options=options)
    later.roll(client, topic, b"end")
    wait_until(lambda: len(read_all(client, topic)) == 22, "the log is compacted again")
    node.kill()
    node.start()
    client = library(node.bootstrap)
    wait_until(lambda: topic in client.topic_names(), "the topic is there")
    assert {each.key: each.value for each in read_all(client, topic)} == {
        **{b"k%d" % n: b"2" for n in range(1, 20)},
        b"k0": b"new",
        b"end": b"rolls",
    }


def all_bytes(node: Peer, folder: str) -> int:
    return sum(file.stat().st_size for file in (node.data_dir / folder).glob("*.log*"))


def test_the_offsets_of_groups_are_compacted(make_node: MakeNode, topic: str, group: str, members: Members) -> None:
    """With one library: what the broker writes does not depend on it, and others take a minute to commit so much."""
    node = make_node(
        {
            "offsets.topic.num.partitions": "1",
            "offsets.topic.segment.bytes": str(SEGMENT_BYTES_MIN),
            "offsets.topic.replication.factor": "1",
            "log.segment.delete.delay.ms": "60000",
            "group.initial.rebalance.delay.ms": "0",
        }
    )
    client = ConfluentClient(node.bootstrap)
    client.create_topic(topic, partitions=PARTITIONS)
    member = members.join(client, group, [topic])
    wait_until(lambda: len(member.assigned()) == PARTITIONS, "the member has its partitions")
    for offset in range(COMMITS):
        member.commit({(topic, partition): offset for partition in range(PARTITIONS)})
    assert all_bytes(node, "__consumer_offsets-0") > SEGMENT_BYTES_MIN
    wait_until(
        lambda: sum(closed_segment_sizes(node.data_dir / "__consumer_offsets-0")) < PARTITIONS * 500,
        "closed segments hold next to nothing",
    )
    member.close()
    node.kill()
    node.start()
    again = members.join(ConfluentClient(node.bootstrap), group, [topic])
    wait_until(lambda: again.committed(topic, PARTITIONS - 1) == COMMITS - 1, "the last offset is there")
