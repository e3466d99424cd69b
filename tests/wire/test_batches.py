"""What a broker refuses to append, and with which code. Nothing of what it refuses reaches the log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import crc32c
import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire import batches
from tests.wire.batches import batch
from tests.wire.connection import ClosedError, Connection
from tests.wire.requests import (
    EARLIEST,
    LATEST,
    Topic,
    create_topic,
    fetch,
    list_offsets,
    produce,
    produce_request,
    unknown_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers import Peer, PeerKind

DAY_MS = 86_400_000
NOW_MS = int(time.time() * 1000)


def corrupted(data: bytes) -> bytes:
    """A batch with one bit of its last byte turned."""
    return data[:-1] + bytes([data[-1] ^ 1])


REFUSED: dict[str, tuple[Callable[[], bytes | None], Error]] = {
    "a wrong checksum": (lambda: batch(crc=1), Error.CORRUPT_MESSAGE),
    "a flipped bit": (lambda: corrupted(batch()), Error.CORRUPT_MESSAGE),
    "a length beyond the records": (lambda: batch(length=1_000), Error.INVALID_RECORD),
    "a length short of the header": (lambda: batch(length=10), Error.CORRUPT_MESSAGE),
    "a negative length": (lambda: batch(length=-1), Error.CORRUPT_MESSAGE),
    "a truncated batch": (lambda: batch()[:-3], Error.INVALID_RECORD),
    "a truncated header": (lambda: batch()[:40], Error.INVALID_RECORD),
    "magic 3": (lambda: batch(magic=3), Error.CORRUPT_MESSAGE),
    "magic 0": (lambda: batches.legacy_message(0), Error.INVALID_RECORD),
    "magic 1": (lambda: batches.legacy_message(1), Error.INVALID_RECORD),
    "a count above the offsets": (lambda: batch([b"a", b"b"], count=3), Error.INVALID_RECORD),
    "a count below the offsets": (lambda: batch([b"a", b"b"], count=1), Error.INVALID_RECORD),
    "a last offset delta above the count": (lambda: batch([b"a", b"b"], last_offset_delta=5), Error.INVALID_RECORD),
    "no records": (lambda: batch([]), Error.INVALID_RECORD),
    "two batches": (lambda: batch() + batch(), Error.INVALID_RECORD),
    "a control batch": (lambda: batch(attributes=batches.CONTROL), Error.INVALID_RECORD),
    "an offset of its own": (lambda: batch(base_offset=77), Error.INVALID_RECORD),
    "nothing": (lambda: b"", Error.INVALID_RECORD),
    "a timestamp of the day after tomorrow": (
        lambda: batch(timestamp_ms=NOW_MS + 2 * DAY_MS),
        Error.INVALID_TIMESTAMP,
    ),
    "more than max.message.bytes": (lambda: batch([b"x" * 2_000_000]), Error.MESSAGE_TOO_LARGE),
    "a transactional batch outside a transaction": (
        lambda: batch(attributes=batches.TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0),
        Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_batch_is_refused_with_kafkas_code_and_nothing_is_appended(
    connection: Connection, wire_topic: Topic, case: str
) -> None:
    make, expected = REFUSED[case]
    assert produce(connection, wire_topic, batch([b"before"])).base_offset == 0
    refused = produce(connection, wire_topic, make())
    assert Error(refused.error_code) == expected
    assert refused.base_offset == -1
    assert list_offsets(connection, wire_topic, LATEST).offset == 1
    assert produce(connection, wire_topic, batch([b"after"])).base_offset == 1
    assert list_offsets(connection, wire_topic, EARLIEST).offset == 0


@pytest.mark.parametrize(
    ("case", "log_start"),
    [("nothing", -1), ("two batches", -1), ("magic 1", -1), ("a wrong checksum", -1), ("a control batch", 0)],
)
def test_where_the_log_starts_is_told_of_what_the_log_itself_refuses(
    connection: Connection, wire_topic: Topic, case: str, log_start: int
) -> None:
    make, _ = REFUSED[case]
    assert produce(connection, wire_topic, make()).log_start_offset == log_start


@pytest.mark.parametrize("case", ["a control batch", "an offset of its own", "two batches", "a wrong checksum"])
def test_a_batch_that_is_refused_as_a_whole_is_told_by_the_code_alone(
    connection: Connection, wire_topic: Topic, case: str
) -> None:
    make, _ = REFUSED[case]
    answer = produce(connection, wire_topic, make())
    assert (answer.error_message, answer.record_errors) == (None, [])


@pytest.mark.parametrize(
    "case", ["a wrong checksum", "two batches", "a control batch", "more than max.message.bytes", "magic 1"]
)
def test_without_acknowledgement_a_refused_batch_closes_the_connection(
    connect: Callable[[], Connection], connection: Connection, wire_topic: Topic, case: str
) -> None:
    make, _ = REFUSED[case]
    silent = connect()
    silent.send(produce_request(wire_topic, make(), 9, acks=0), 9)
    with pytest.raises(ClosedError):
        silent.receive_frame()
    assert list_offsets(connection, wire_topic, LATEST).offset == 0


def test_without_acknowledgement_nothing_is_answered(connection: Connection, wire_topic: Topic) -> None:
    for _ in range(3):
        connection.send(produce_request(wire_topic, batch(), 9, acks=0), 9)
    assert list_offsets(connection, wire_topic, LATEST).offset == 3, "the next answer is that of the next request"


def test_what_follows_the_batch_and_is_no_batch_is_left_out(connection: Connection, wire_topic: Topic) -> None:
    sent = batch()
    assert produce(connection, wire_topic, sent + b"\x00\x01").error_code == Error.NONE
    assert len(fetch(connection, wire_topic).records or b"") == len(sent)


@pytest.mark.parametrize("version", [3, 6])
def test_zstd_before_version_7_is_refused(connection: Connection, wire_topic: Topic, version: int) -> None:
    data = batch(attributes=batches.ZSTD, records=b"\x28\xb5\x2f\xfd\x04\x00\x01\x00\x00\x99\xe9\xd8\x51")
    assert Error(produce(connection, wire_topic, data, version).error_code) == Error.UNSUPPORTED_COMPRESSION_TYPE
    assert list_offsets(connection, wire_topic, LATEST).offset == 0


def test_offsets_inside_an_uncompressed_batch_need_not_be_monotonic(connection: Connection, wire_topic: Topic) -> None:
    data = batch([b"a", b"b", b"c"], offset_deltas=[0, 2, 2])
    assert produce(connection, wire_topic, data).error_code == Error.NONE


@pytest.mark.parametrize("acks", [2, -2, 17])
def test_acks_are_none_one_or_all(connection: Connection, wire_topic: Topic, acks: int) -> None:
    assert Error(produce(connection, wire_topic, batch(), acks=acks).error_code) == Error.INVALID_REQUIRED_ACKS
    assert list_offsets(connection, wire_topic, LATEST).offset == 0


def test_a_topic_that_is_not_there_is_named_in_the_answer(connection: Connection) -> None:
    answer = connection.call(produce_request(unknown_topic(), batch(), 12), 12, m.ProduceResponse)
    (refused,) = answer.responses
    assert refused.name == unknown_topic().name
    assert Error(refused.partition_responses[0].error_code) == Error.UNKNOWN_TOPIC_OR_PARTITION
    answer = connection.call(produce_request(unknown_topic(), batch(), 13), 13, m.ProduceResponse)
    (refused,) = answer.responses
    assert refused.topic_id == unknown_topic().id
    assert Error(refused.partition_responses[0].error_code) == Error.UNKNOWN_TOPIC_ID


def test_a_partition_that_is_not_there_is_refused_and_the_others_are_served(
    connection: Connection, wire_topic: Topic
) -> None:
    request = produce_request(wire_topic, batch(), 12)
    absent = m.ProduceRequest.PartitionProduceData(index=9, records=batch())
    request.topic_data[0].partition_data.append(absent)
    (answered,) = connection.call(request, 12, m.ProduceResponse).responses
    codes = {each.index: Error(each.error_code) for each in answered.partition_responses}
    assert codes == {0: Error.NONE, 9: Error.UNKNOWN_TOPIC_OR_PARTITION}


def test_the_stored_batch_is_the_one_that_was_sent_but_for_offset_and_epoch(
    connection: Connection, wire_topic: Topic
) -> None:
    produce(connection, wire_topic, batch([b"first", b"second"]))
    sent = batch([b"third"], leader_epoch=33, key=b"key")
    assert produce(connection, wire_topic, sent).base_offset == 2
    stored = bytes(fetch(connection, wire_topic, offset=2).records or b"")
    assert int.from_bytes(stored[:8]) == 2
    assert stored[8:12] == sent[8:12]
    assert int.from_bytes(stored[12:16], signed=True) >= 0
    assert stored[16:] == sent[16:]


def test_log_append_time_is_answered_and_stored_under_a_true_checksum(connection: Connection, topic: str) -> None:
    stamped = create_topic(connection, topic, config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    answer = produce(connection, stamped, batch(timestamp_ms=1_000))
    assert before_ms <= answer.log_append_time_ms <= int(time.time() * 1000)
    stored = bytes(fetch(connection, stamped).records or b"")
    *_, attributes, _, _, max_timestamp = batches.HEADER.unpack_from(stored)[:9]
    assert attributes & batches.LOG_APPEND_TIME
    assert max_timestamp == answer.log_append_time_ms
    assert crc32c.crc32c(stored[batches.CRC_START :]) == int.from_bytes(stored[17:21])


def new_producer(connection: Connection) -> tuple[int, int]:
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    while True:
        answer = connection.call(request, 4, m.InitProducerIdResponse)
        if answer.error_code != Error.COORDINATOR_LOAD_IN_PROGRESS:
            assert answer.error_code == Error.NONE
            return answer.producer_id, answer.producer_epoch


def test_every_producer_gets_an_id_of_its_own(connection: Connection) -> None:
    given = [new_producer(connection) for _ in range(20)]
    assert len({producer_id for producer_id, _ in given}) == 20
    assert {epoch for _, epoch in given} == {0}


def test_a_batch_sent_again_is_acknowledged_with_its_first_offset(connection: Connection, wire_topic: Topic) -> None:
    producer_id, epoch = new_producer(connection)

    def send(sequence: int) -> tuple[Error, int]:
        data = batch([b"a", b"b"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(connection, wire_topic, data)
        return Error(answer.error_code), answer.base_offset

    assert [send(sequence) for sequence in (0, 2, 4, 6, 8)] == [(Error.NONE, n) for n in (0, 2, 4, 6, 8)]
    assert [send(sequence) for sequence in (0, 8, 4)] == [(Error.NONE, n) for n in (0, 8, 4)]
    assert send(10) == (Error.NONE, 10)
    assert list_offsets(connection, wire_topic, LATEST).offset == 12


def test_batches_sent_again_are_recognised_after_a_clean_restart(
    fresh_node: Peer, topic: str, peer_kind: PeerKind
) -> None:
    """Kafka's snapshots of producers have room for the last batch only."""
    with Connection(fresh_node.port) as connection:
        made = create_topic(connection, topic)
        producer_id, epoch = new_producer(connection)
        sent = [
            batch([b"a", b"b"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            for sequence in (0, 2, 4)
        ]
        assert [produce(connection, made, each).base_offset for each in sent] == [0, 2, 4]
    fresh_node.stop()
    fresh_node.start()
    with Connection(fresh_node.port) as connection:
        wait_until(lambda: fetch(connection, made).error_code == Error.NONE, "the partition has a leader")
        answers = [produce(connection, made, each) for each in sent]
        if peer_kind == "kafka":
            gap = Error.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert [Error(each.error_code) for each in answers] == [gap, gap, Error.NONE]
        else:
            assert [each.base_offset for each in answers] == [0, 2, 4]
        assert list_offsets(connection, made, LATEST).offset == 6


def test_sequences_follow_one_another(connection: Connection, wire_topic: Topic) -> None:
    producer_id, epoch = new_producer(connection)

    def send(sequence: int, of_epoch: int = epoch) -> Error:
        data = batch([b"a"], producer_id=producer_id, producer_epoch=of_epoch, base_sequence=sequence)
        return Error(produce(connection, wire_topic, data).error_code)

    assert send(0) == Error.NONE
    assert send(2) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(1) == Error.NONE
    assert [send(sequence) for sequence in range(2, 8)] == [Error.NONE] * 6
    assert send(0) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER, "it is older than the five that are remembered"
    assert send(5, epoch + 1) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch starts at 0"
    assert send(0, epoch + 1) == Error.NONE
    assert send(8) == Error.INVALID_PRODUCER_EPOCH
    assert list_offsets(connection, wire_topic, LATEST).offset == 9


def test_an_unknown_producer_starts_at_any_sequence(connection: Connection, wire_topic: Topic) -> None:
    producer_id, epoch = new_producer(connection)
    data = batch([b"a"], producer_id=producer_id, producer_epoch=epoch, base_sequence=41)
    assert produce(connection, wire_topic, data).error_code == Error.NONE


def test_sequences_wrap_to_zero(connection: Connection, wire_topic: Topic) -> None:
    producer_id, epoch = new_producer(connection)
    last = 2**31 - 1
    for sequence in (last, 0):
        data = batch([b"a"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        assert produce(connection, wire_topic, data).error_code == Error.NONE


def test_what_only_opening_the_records_would_show_is_refused_by_kafka_alone(
    connection: Connection, wire_topic: Topic, peer_kind: PeerKind
) -> None:
    """Barnabas judges a batch for an ordinary topic by its header: docs/compatibility.md lists what that means."""
    answer = Error(produce(connection, wire_topic, batch(records=b"\xff garbage")).error_code)
    assert answer == (Error.INVALID_RECORD if peer_kind == "kafka" else Error.NONE)


@pytest.mark.parametrize("version", [8, 9, 12, 13])
@pytest.mark.parametrize("acks", [1, -1])
def test_a_request_of_many_partitions_answers_each_for_itself(
    connection: Connection, topic: str, version: int, acks: int
) -> None:
    topics = [create_topic(connection, f"{topic}-{version}-{acks + 1}-{name}", partitions=10) for name in "ab"]
    good, bad = batch([b"good"]), batch([b"bad"], crc=1)

    def records_of(number: int, partition: int) -> bytes:
        return bad if (number, partition) == (1, 3) else good

    data = m.ProduceRequest.TopicProduceData
    by_id = version >= 13
    request = m.ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            data(
                **({"topic_id": each.id} if by_id else {"name": each.name}),
                partition_data=[
                    m.ProduceRequest.PartitionProduceData(index=index, records=records_of(number, index))
                    for index in range(10)
                ],
            )
            for number, each in enumerate(topics)
        ],
    )
    for round_number in range(2):
        response = connection.call(request, version, m.ProduceResponse)
        for answered in response.responses:  # in any order: Kafka's is that of a hash table
            number = [each.id if by_id else each.name for each in topics].index(
                answered.topic_id if by_id else answered.name
            )
            for partition in answered.partition_responses:
                is_bad = (number, partition.index) == (1, 3)
                assert Error(partition.error_code) == (Error.CORRUPT_MESSAGE if is_bad else Error.NONE)
                assert partition.base_offset == (-1 if is_bad else round_number)
