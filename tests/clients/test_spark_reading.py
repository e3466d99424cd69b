"""A range of a partition, read as a task of Spark does: what a client wrote comes out as rows, whatever happens."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.client.client_settings import ClientSettings
from barnabas.client.offset_queries import READ_COMMITTED
from barnabas.protocol.errors import Error, KafkaError
from barnabas.spark.columnar.record_decoding import COLUMNS_WITH_HEADERS, schema_of
from barnabas.spark.read.data_loss import DataLossError
from barnabas.spark.read.fetch_settings import FetchSettings
from barnabas.spark.read.offset_ranges import OffsetRange
from barnabas.spark.read.range_reader import read_range
from tests.clients.adapter import CODECS, Codec, Message, ProducerOptions
from tests.clients.with_confluent import ConfluentClient
from tests.peers import open_files, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.conftest import Begin
    from tests.peers import Peer

NOW_MS = 1_700_000_000_000
MIB = 1 << 20
SMALL_FETCHES = FetchSettings(max_bytes=64 * 1024)


def settings_of(node: Peer) -> ClientSettings:
    return ClientSettings.from_options({"bootstrap.servers": node.bootstrap})


def read(node: Peer, topic: str, start: int, end: int, **how: Any) -> pa.Table:
    batches = list(read_range(settings_of(node), OffsetRange(topic, 0, start, end), include_headers=True, **how))
    return pa.Table.from_batches(batches, schema_of(COLUMNS_WITH_HEADERS))


def values(table: pa.Table) -> list[bytes]:
    listed: list[bytes] = table["value"].to_pylist()
    return listed


def numbered(count: int, size_bytes: int = 10) -> list[Message]:
    return [Message(b"%010d" % number + bytes(size_bytes - 10)) for number in range(count)]


def texts(messages: list[Message]) -> list[bytes]:
    return [message.value or b"" for message in messages]


@pytest.mark.parametrize("codec", CODECS)
def test_all_that_a_record_has_comes_out_as_columns(
    confluent: ConfluentClient, node: Peer, topic: str, codec: Codec
) -> None:
    confluent.create_topic(topic, config={"retention.ms": "-1"})
    messages = [
        Message(b"value", b"key", (("name", b"1"), ("name", None)), NOW_MS),
        Message(None, b"", (), NOW_MS + 1),
        Message(b"", None, (), NOW_MS + 2),
    ] * 100
    confluent.produce(topic, messages, options=ProducerOptions(codec=codec, linger_ms=50))
    table = read(node, topic, 0, 300)
    assert table["key"].to_pylist() == [message.key for message in messages]
    assert table["value"].to_pylist() == [message.value for message in messages]
    assert table["offset"].to_pylist() == list(range(300))
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [(m.timestamp_ms or 0) * 1_000 for m in messages]
    assert table["headers"].to_pylist() == [
        [{"key": key, "value": value} for key, value in message.headers] or None for message in messages
    ]
    assert set(table["topic"].to_pylist()) == {topic}
    assert set(table["partition"].to_pylist()) == {0}
    assert set(table["timestampType"].to_pylist()) == {0}


def test_the_time_of_appending_is_told_from_that_of_creation(
    confluent: ConfluentClient, node: Peer, topic: str
) -> None:
    confluent.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    confluent.produce(topic, [Message(b"", timestamp_ms=NOW_MS)])
    table = read(node, topic, 0, 1)
    assert table["timestampType"].to_pylist() == [1]
    assert table["timestamp"].cast(pa.int64()).to_pylist()[0] > NOW_MS * 1_000


def test_ranges_that_meet_give_everything_once_across_segments(
    confluent: ConfluentClient, node: Peer, topic: str
) -> None:
    """Wherever they are cut: batches that reach over a cut are fetched for both ranges."""
    confluent.create_topic(topic, config={"segment.bytes": str(MIB)})
    messages = numbered(3_000, 1_000)
    for first in range(0, 3_000, 500):
        confluent.produce(topic, messages[first : first + 500])
    assert len(list((node.data_dir / f"{topic}-0").glob("*.log"))) >= 3
    cuts = [0, 1, 499, 500, 777, 2_998, 3_000]
    pieces = [read(node, topic, start, end, fetch_settings=SMALL_FETCHES) for start, end in itertools.pairwise(cuts)]
    assert [piece.num_rows for piece in pieces] == [end - start for start, end in itertools.pairwise(cuts)]
    assert [value for piece in pieces for value in values(piece)] == texts(messages)


def test_a_record_larger_than_an_answer_may_be_comes_all_the_same(
    confluent: ConfluentClient, node: Peer, topic: str
) -> None:
    confluent.create_topic(topic)
    messages = [Message(b"small"), Message(bytes(900_000)), Message(b"small, too")]
    for message in messages:
        confluent.produce(topic, [message])
    assert values(read(node, topic, 0, 3, fetch_settings=FetchSettings(max_bytes=1_000))) == texts(messages)


def test_readers_of_committed_records_get_neither_aborted_ones_nor_markers(
    group_confluent: ConfluentClient, group_node: Peer, topic: str, transactional_id: str, begin: Begin
) -> None:
    group_confluent.create_topic(topic)
    producer = begin(group_confluent, transactional_id)
    for number in range(6):
        if number:
            producer.begin()
        producer.send(topic, [Message(b"%d" % number)] * 3)
        group_confluent.produce(topic, [Message(b"plain")])
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    _, end = group_confluent.offset_range(topic)
    assert end == 6 * (3 + 1 + 1)
    committed = values(read(group_node, topic, 0, end, isolation_level=READ_COMMITTED))
    assert sorted(committed) == [b"0"] * 3 + [b"2"] * 3 + [b"4"] * 3 + [b"plain"] * 6
    everything = values(read(group_node, topic, 0, end))
    assert sorted(everything) == [b"%d" % number for number in range(6) for _ in range(3)] + [b"plain"] * 6
    assert values(read(group_node, topic, end - 1, end, isolation_level=READ_COMMITTED)) == [], "only a marker is there"
    for cut in range(end):
        ranges = ((0, cut), (cut, end))
        pieces = [read(group_node, topic, *each, isolation_level=READ_COMMITTED) for each in ranges]
        assert [value for piece in pieces for value in values(piece)] == committed


def test_a_range_that_reaches_into_an_open_transaction_is_waited_for(
    group_confluent: ConfluentClient, group_node: Peer, topic: str, transactional_id: str, begin: Begin
) -> None:
    group_confluent.create_topic(topic)
    group_confluent.produce(topic, [Message(b"before")])
    begin(group_confluent, transactional_id).send(topic, [Message(b"within")])
    impatient = FetchSettings(max_wait_ms=50, timeout_ms=1_000)
    with pytest.raises(KafkaError, match=f"{topic}-0 was to be read up to offset 2, but a transaction is open from 1"):
        read(group_node, topic, 0, 2, isolation_level=READ_COMMITTED, fetch_settings=impatient)


@pytest.mark.parametrize("ending", [lambda node: node.stop(), lambda node: node.kill()], ids=["stopped", "killed"])
def test_a_broker_that_restarts_in_the_middle_is_only_a_delay(
    fresh_node: Peer, topic: str, ending: Callable[[Peer], None]
) -> None:
    client = ConfluentClient(fresh_node.bootstrap)
    client.create_topic(topic)
    messages = numbered(5_000, 1_000)
    client.produce(topic, messages)
    reading = read_range(settings_of(fresh_node), OffsetRange(topic, 0, 0, 5_000), fetch_settings=SMALL_FETCHES)
    received = values(pa.Table.from_batches([next(reading)]))
    assert len(received) < 5_000
    ending(fresh_node)
    fresh_node.start()
    received += values(pa.Table.from_batches(reading))
    assert received == texts(messages)


def test_a_reader_that_stops_early_leaves_connections_that_the_next_one_can_use(
    confluent: ConfluentClient, node: Peer, topic: str
) -> None:
    """As many tasks of one worker do, one after the other, and two at a time."""
    confluent.create_topic(topic)
    messages = numbered(2_000, 1_000)
    confluent.produce(topic, messages)
    one, other = (
        read_range(settings_of(node), OffsetRange(topic, 0, 0, 2_000), fetch_settings=SMALL_FETCHES) for _ in range(2)
    )
    next(one)
    next(other)
    one.close()  # type: ignore[attr-defined] # it is a generator
    rest = pa.Table.from_batches(other)
    assert values(rest) == texts(messages)[-rest.num_rows :]
    before = open_files(node.pid)
    for _ in range(20):
        assert values(read(node, topic, 0, 2_000)) == texts(messages)
    assert open_files(node.pid) <= before + 2


def aged_out(client: ConfluentClient, topic: str) -> tuple[int, int]:
    """A topic that has lost its first records to retention: where it starts and ends."""
    config = {"segment.bytes": str(MIB), "retention.bytes": str(MIB), "file.delete.delay.ms": "0"}
    client.create_topic(topic, config=config)
    for first in range(0, 4_000, 200):
        client.produce(topic, numbered(4_000, 1_000)[first : first + 200])
    # Each segment holds a thousand records, and retention may come while they are written.
    wait_until(lambda: client.offset_range(topic)[0] == 2_000, "retention has removed two of four segments")
    return client.offset_range(topic)


def test_records_that_retention_removed_fail_the_task_with_partition_and_offsets(
    confluent: ConfluentClient, node: Peer, topic: str
) -> None:
    aged_out(confluent, topic)
    with pytest.raises(DataLossError) as failure:
        read(node, topic, 0, 4_000)
    beginning, _ = confluent.offset_range(topic)
    assert f"{topic}-0: offsets 0 to {beginning - 1} were to be read" in str(failure.value)
    assert f"the log now starts at offset {beginning}" in str(failure.value)
    assert "failOnDataLoss" in str(failure.value)


def test_records_that_retention_removed_are_skipped_with_a_warning_if_the_user_says_so(
    confluent: ConfluentClient, node: Peer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    aged_out(confluent, topic)
    with caplog.at_level(logging.WARNING):
        found = values(read(node, topic, 0, 4_000, fail_on_data_loss=False))
    assert found == texts(numbered(4_000, 1_000))[-len(found) :]
    assert f"{topic}-0: offsets 0 to {3_999 - len(found)} were to be read" in caplog.text
    beginning, _ = confluent.offset_range(topic)
    assert values(read(node, topic, 0, beginning, fail_on_data_loss=False)) == []


def deleted(client: ConfluentClient, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, numbered(10))
    client.delete_topic(topic)
    wait_until(lambda: topic not in client.topic_names(), "the topic is gone")


def recreated(client: ConfluentClient, topic: str) -> None:
    deleted(client, topic)
    client.create_topic(topic)
    client.produce(topic, numbered(2))


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (deleted, "offsets 5 to 9 were to be read, but it no longer exists"),
        (recreated, "offsets 5 to 9 were to be read, but the log now ends at offset 2"),
    ],
    ids=["deleted", "recreated"],
)
def test_a_topic_that_is_gone_or_begins_anew_is_data_loss(
    confluent: ConfluentClient,
    node: Peer,
    topic: str,
    happens: Callable[[ConfluentClient, str], None],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    happens(confluent, topic)
    with pytest.raises(DataLossError, match=f"{topic}-0: {reason}"):
        read(node, topic, 5, 10)
    with caplog.at_level(logging.WARNING):
        assert values(read(node, topic, 5, 10, fail_on_data_loss=False)) == []
    assert f"{topic}-0: {reason}" in caplog.text


def test_an_end_that_is_not_there_is_data_loss_once_it_has_been_waited_for(
    confluent: ConfluentClient, node: Peer, topic: str
) -> None:
    confluent.create_topic(topic)
    confluent.produce(topic, numbered(5))
    impatient = FetchSettings(max_wait_ms=50, timeout_ms=1_000)
    with pytest.raises(DataLossError, match="offsets 5 to 9 were to be read, but the log now ends at offset 5"):
        read(node, topic, 0, 10, fetch_settings=impatient)
    assert len(values(read(node, topic, 0, 10, fetch_settings=impatient, fail_on_data_loss=False))) == 5


def test_a_cluster_that_nobody_finds_is_an_error_in_time(topic: str) -> None:
    nowhere = ClientSettings.from_options({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "500"})
    reading = read_range(nowhere, OffsetRange(topic, 0, 0, 1), fetch_settings=FetchSettings(timeout_ms=500))
    with pytest.raises(KafkaError) as failure:
        next(reading)
    assert failure.value.error is Error.NETWORK_EXCEPTION
    assert "127.0.0.1:1" in str(failure.value)
