"""Batches that a broker opens: what it refuses in them, in which words, and what it stores instead of what was sent.

Kafka opens all of them. Barnabas opens those for topics that are compacted or have a codec of their own, and with
`barnabas.validate.records` all.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire import batches
from tests.wire.batches import GZIP, LOG_APPEND_TIME, batch, record
from tests.wire.connection import ClosedError, Connection
from tests.wire.requests import (
    BROKER_RESOURCE,
    LATEST,
    TOPIC_RESOURCE,
    Topic,
    create_topic,
    fetch,
    list_offsets,
    produce,
    produce_request,
)
from tests.wire.test_batches import new_producer
from tests.wire.transactions import (
    PRODUCE_V1,
    PRODUCE_V2,
    READ_COMMITTED,
    Producer,
    add_partitions,
    await_end,
    commit,
    commit_for_next,
    read,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers import PeerKind

DAY_MS = 86_400_000
NOW_MS = int(time.time() * 1000)
SET, DELETE = 0, 1
NONE, ZSTD = 0, 4
COMPACTED = {"cleanup.policy": "compact"}
TO_ZSTD = {"compression.type": "zstd"}
OPENING = {
    "compacted": COMPACTED,
    "to zstd": TO_ZSTD,
    "compacted and uncompressed": {"cleanup.policy": "compact,delete", "compression.type": "uncompressed"},
}


class Case(NamedTuple):
    error: Error
    records: bytes
    announced: int = 1


INVALID, UNKNOWN, WRONG_TIME = Error.INVALID_RECORD, Error.UNKNOWN_SERVER_ERROR, Error.INVALID_TIMESTAMP
NO_RECORDS: dict[str, Case] = {
    "garbage": Case(INVALID, b"\xff garbage"),
    "nothing": Case(INVALID, b""),
    "fewer records than announced": Case(INVALID, record(), 2),
    "more records than announced": Case(INVALID, record() + record(1) + record(2), 2),
    "a byte behind the last": Case(INVALID, record() + b"\0"),
    "a header without a key": Case(INVALID, record(headers=[(None, b"x")])),
    "half a record": Case(INVALID, record()[:-4]),
}


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("topics", OPENING)
def test_what_are_no_records_is_refused_and_nothing_is_appended(
    connection: Connection, topic: str, topics: str, codec: int
) -> None:
    made = create_topic(connection, topic, config=OPENING[topics])
    for name, case in NO_RECORDS.items():
        sent = batch(records=case.records, attributes=codec, count=case.announced, last_offset_delta=case.announced - 1)
        answer = produce(connection, made, sent)
        assert (Error(answer.error_code), answer.base_offset) == (case.error, -1), name
        assert (answer.log_start_offset, answer.record_errors, answer.error_message) == (0, [], None), name
    assert list_offsets(connection, made, LATEST).offset == 0
    assert produce(connection, made, batch(key=b"k")).base_offset == 0


@pytest.mark.parametrize("topics", OPENING)
def test_what_no_codec_can_read_is_refused(connection: Connection, topic: str, topics: str) -> None:
    made = create_topic(connection, topic, config=OPENING[topics])
    whole = batch(key=b"k", attributes=GZIP)
    for damaged in (b"garbage bytes here", whole[batches.HEADER.size : -6]):
        sent = batches.with_body(whole, damaged)
        assert Error(produce(connection, made, sent).error_code) == Error.UNKNOWN_SERVER_ERROR
    assert list_offsets(connection, made, LATEST).offset == 0


def record_errors(answer: m.ProduceResponse.PartitionProduceResponse) -> dict[int, str | None]:
    return {each.batch_index: each.batch_index_error_message for each in answer.record_errors}


@pytest.mark.parametrize("version", [8, 9, 12])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_records_without_keys_are_named_where_a_topic_is_compacted(
    connection: Connection, topic: str, version: int, codec: int
) -> None:
    made = create_topic(connection, topic, config=COMPACTED)
    records = record() + b"".join(record(n, None) for n in range(1, 5)) + record(5, b"")
    answer = produce(connection, made, batch([b""] * 6, records=records, attributes=codec), version)
    reason = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    assert Error(answer.error_code) == Error.INVALID_RECORD
    assert record_errors(answer) == dict.fromkeys((1, 2, 3, 4), reason)
    named = ", ".join(f"RecordError(batchIndex={n}, message='{reason}')" for n in (1, 2, 3))
    assert answer.error_message == (
        "One or more records have been rejected due to 4 record errors in total, and only showing the first three"
        f" errors at most: [{named}]"
    )
    assert produce(connection, made, batch(key=b"k")).base_offset == 0


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("topics", OPENING)
def test_records_with_timestamps_out_of_range_are_named(
    connection: Connection, topic: str, topics: str, codec: int
) -> None:
    made = create_topic(connection, topic, config=OPENING[topics])
    records = record() + record(1, timestamp_delta=2 * DAY_MS) + record(2)
    answer = produce(connection, made, batch([b""] * 3, records=records, attributes=codec, timestamp_ms=NOW_MS))
    assert Error(answer.error_code) == Error.INVALID_TIMESTAMP
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    ((number, reason),) = record_errors(answer).items()
    assert number == 1
    assert str(reason).startswith(
        f"Timestamp {NOW_MS + 2 * DAY_MS} of message with offset 1 is out of range. The timestamp should be within ["
    )


@pytest.mark.parametrize(
    ("topics", "kind"), [(COMPACTED, "PartialDefaultRecord"), ({"compression.type": "lz4"}, "DefaultRecord")]
)
def test_a_producer_cannot_say_that_the_log_has_stamped_its_batch(
    connection: Connection, topic: str, topics: dict[str, str], kind: str
) -> None:
    made = create_topic(connection, topic, config={**topics, "message.timestamp.type": "LogAppendTime"})
    sent = batch(key=b"k", attributes=GZIP | LOG_APPEND_TIME, timestamp_ms=NOW_MS)
    answer = produce(connection, made, sent)
    assert Error(answer.error_code) == Error.INVALID_TIMESTAMP
    assert record_errors(answer) == {
        0: f"Invalid timestamp type in message {kind}(offset=0, timestamp={NOW_MS}, key=1 bytes, value=5 bytes)."
        " Producer should not set timestamp type to LogAppendTime."
    }


def stored(connection: Connection, topic: Topic, offset: int = 0) -> tuple[tuple[int, ...], bytes]:
    """Attributes, last offset delta, base and largest timestamp of the batch, and its records, decompressed unless by
    zstd."""
    data = batches.split(fetch(connection, topic, offset=offset).records)[0].data
    *_, attributes, last_delta, base_ms, max_ms, _, _, _, _ = batches.HEADER.unpack_from(data)
    body = data[batches.HEADER.size :]
    return (attributes, last_delta, base_ms, max_ms), zlib.decompress(body, 31) if attributes & 7 == GZIP else body


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("claimed_ms", [5, -1, NOW_MS + 3, NOW_MS + 30 * DAY_MS], ids=["early", "none", "now", "late"])
def test_the_largest_timestamp_is_that_of_the_records(
    connection: Connection, topic: str, codec: int, claimed_ms: int
) -> None:
    made = create_topic(connection, topic, config=COMPACTED)
    records = record(timestamp_delta=7) + record(1, timestamp_delta=5)
    sent = batch([b""] * 2, records=records, attributes=codec, timestamp_ms=NOW_MS, max_timestamp_ms=claimed_ms)
    assert produce(connection, made, sent).error_code == Error.NONE
    assert stored(connection, made) == ((codec, 1, NOW_MS, NOW_MS + 7), records)


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("target", ["uncompressed", "gzip"])
def test_a_batch_of_another_codec_is_made_anew(connection: Connection, topic: str, codec: int, target: str) -> None:
    made = create_topic(connection, topic, config={"compression.type": target})
    records = record(timestamp_delta=7, headers=[(b"h", None)]) + record(1, None, None, timestamp_delta=5)
    horizon = 0x40
    sent = batch([b""] * 2, records=records, attributes=codec | horizon, timestamp_ms=NOW_MS)
    assert produce(connection, made, sent).error_code == Error.NONE
    target_codec = {"uncompressed": NONE, "gzip": GZIP}[target]
    if codec == target_codec:
        assert stored(connection, made) == ((codec | horizon, 1, NOW_MS, NOW_MS + 7), records)
    else:
        anew = record(headers=[(b"h", None)]) + record(1, None, None, timestamp_delta=-2)
        assert stored(connection, made) == ((target_codec, 1, NOW_MS + 7, NOW_MS + 7), anew)


def test_a_batch_that_is_made_anew_gets_offsets_in_order(connection: Connection, topic: str) -> None:
    made = create_topic(connection, topic, config={"compression.type": "uncompressed"})
    wrong = record(1) + record(7) + record(7)
    assert produce(connection, made, batch([b""] * 3, records=wrong, attributes=GZIP)).error_code == Error.NONE
    assert stored(connection, made)[1] == record() + record(1) + record(2)
    kept = create_topic(connection, f"{topic}-kept", config={"compression.type": "gzip"})
    answer = produce(connection, kept, batch([b""] * 3, records=wrong, attributes=GZIP))
    assert Error(answer.error_code) == Error.UNKNOWN_SERVER_ERROR


def test_the_log_stamps_a_batch_that_it_has_made_anew(connection: Connection, topic: str) -> None:
    made = create_topic(connection, topic, config={**TO_ZSTD, "message.timestamp.type": "LogAppendTime"})
    records = record(timestamp_delta=9) + record(1, timestamp_delta=100 * DAY_MS)
    answer = produce(connection, made, batch([b""] * 2, records=records, timestamp_ms=NOW_MS))
    assert answer.log_append_time_ms >= NOW_MS
    (attributes, _, base_ms, max_ms), _ = stored(connection, made)
    assert (attributes, base_ms, max_ms) == (ZSTD | LOG_APPEND_TIME, NOW_MS + 9, answer.log_append_time_ms)


def test_a_batch_that_becomes_too_large_is_refused(connection: Connection, topic: str) -> None:
    made = create_topic(connection, topic, config={"compression.type": "uncompressed", "max.message.bytes": "2000"})
    answer = produce(connection, made, batch([b"x" * 5_000], attributes=GZIP))
    assert Error(answer.error_code) == Error.MESSAGE_TOO_LARGE
    assert produce(connection, made, batch([b"x" * 1_000], attributes=GZIP)).base_offset == 0


def alter(connection: Connection, kind: int, name: str, setting: str, value: str | None) -> None:
    request = m.IncrementalAlterConfigsRequest
    change = request.AlterableConfig(name=setting, config_operation=DELETE if value is None else SET, value=value)
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    (answer,) = connection.call(request(resources=[resource]), 1, m.IncrementalAlterConfigsResponse).responses
    assert answer.error_code == Error.NONE, answer.error_message


def test_codec_and_level_change_while_a_topic_is_written_to(connection: Connection, topic: str) -> None:
    made = create_topic(connection, topic)
    text = b"".join(b"%d," % (n * n % 9973) for n in range(20_000))

    def stored_after(**settings: str | None) -> tuple[int, int]:
        """Codec and size of a batch that is written with these settings."""
        for setting, value in settings.items():
            alter(connection, TOPIC_RESOURCE, topic, setting.replace("_", "."), value)
        found = {}

        def is_in_effect() -> bool:
            offset = produce(connection, made, batch([text])).base_offset
            data = batches.split(fetch(connection, made, offset=offset).records)[0].data
            found["last"] = (data[22] & 7, len(data))
            return found["last"][0] == {"gzip": GZIP, "zstd": ZSTD}.get(str(settings.get("compression_type")), NONE)

        wait_until(is_in_effect, f"{settings} has come into effect")
        return found["last"]

    sizes = {"sent": stored_after()[1]}
    sizes["quick"] = stored_after(compression_zstd_level="-50", compression_type="zstd")[1]
    assert stored_after(compression_type=None)[0] == NONE
    sizes["thorough"] = stored_after(compression_zstd_level="19", compression_type="zstd")[1]
    assert sizes["sent"] > sizes["quick"] > sizes["thorough"]
    assert stored_after(compression_gzip_level="1", compression_type="gzip")[0] == GZIP


# ── order and acknowledgements ───────────────────────────────────────────────────────────────────────────────


def test_requests_that_are_on_their_way_together_are_appended_in_their_order(
    connect: Callable[[], Connection], connection: Connection, topic: str
) -> None:
    """Large batches and small ones, those that are made anew and those that are not, by two idempotent producers."""
    made = create_topic(connection, topic, config=TO_ZSTD)
    writers = [(connect(), *new_producer(connection)) for _ in range(2)]
    count = 30
    for sequence in range(count):
        for socket, producer_id, epoch in writers:
            value = b"%d " % sequence * (30_000 if sequence % 3 == 0 else 1)
            sent = batch([value], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            socket.send(produce_request(made, sent, 12, acks=-1 if sequence % 2 else 1), 12)
    offsets: list[list[int]] = []
    for socket, _, _ in writers:
        answers = [socket.receive(m.ProduceResponse, 12)[1] for _ in range(count)]
        partitions = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [Error(each.error_code) for each in partitions] == [Error.NONE] * count
        offsets.append([each.base_offset for each in partitions])
    assert offsets == [sorted(each) for each in offsets]
    assert sorted(offset for each in offsets for offset in each) == list(range(2 * count))


def test_without_acknowledgement_batches_are_opened_too(
    connect: Callable[[], Connection], connection: Connection, topic: str
) -> None:
    made = create_topic(connection, topic, config=COMPACTED)
    silent = connect()
    for number in range(5):
        silent.send(produce_request(made, batch([b"%d" % number], key=b"k"), 9, acks=0), 9)
    silent.close()
    wait_until(lambda: list_offsets(connection, made, LATEST).offset == 5, "all that was sent is there")
    refused = connect()
    refused.send(produce_request(made, batch(), 9, acks=0), 9)
    with pytest.raises(ClosedError):
        refused.receive_frame()


def test_a_batch_sent_again_is_known_though_it_was_made_anew(connection: Connection, topic: str) -> None:
    made = create_topic(connection, topic, config=TO_ZSTD)
    producer_id, epoch = new_producer(connection)

    def send(sequence: int, key: bytes | None = b"k") -> tuple[Error, int]:
        data = batch([b"a", b"b"], key=key, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(connection, made, data)
        return Error(answer.error_code), answer.base_offset

    assert [send(0), send(2), send(0), send(4)] == [(Error.NONE, n) for n in (0, 2, 0, 4)]
    assert send(8) == (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


@pytest.mark.parametrize("version", [PRODUCE_V1, PRODUCE_V2])
def test_transactions_are_written_and_ended_as_in_any_topic(
    group_connection: Connection, producer: Producer, topic: str, version: int
) -> None:
    made = create_topic(group_connection, topic, config=TO_ZSTD)
    if version == PRODUCE_V1:
        assert add_partitions(group_connection, producer, {topic: [0]}) == {(topic, 0): Error.NONE}
    for sequence in range(3):
        answer = write(group_connection, producer, made, [b"%d" % sequence], sequence=sequence, version=version)
        assert (Error(answer.error_code), answer.base_offset) == (Error.NONE, sequence)
    assert read(group_connection, made, READ_COMMITTED).values == []
    if version == PRODUCE_V1:
        assert commit(group_connection, producer) == Error.NONE
    else:
        commit_for_next(group_connection, producer)
    await_end(group_connection, producer.transactional_id)
    assert read(group_connection, made, READ_COMMITTED).values == [b"0", b"1", b"2"]
    assert {each.attributes & 7 for each in batches.split(fetch(group_connection, made).records)} == {ZSTD, NONE}


@pytest.mark.parametrize("version", [8, 9, 12, 13])
def test_a_request_for_topics_of_all_kinds_answers_each_for_itself(
    connection: Connection, topic: str, version: int
) -> None:
    kinds = {"plain": {}, "compacted": COMPACTED, "zstd": TO_ZSTD}
    topics = {name: create_topic(connection, f"{topic}-{name}", 2, config) for name, config in kinds.items()}
    request = produce_request(topics["plain"], None, version)
    request.topic_data = [
        m.ProduceRequest.TopicProduceData(
            **({"topic_id": each.id} if version >= 13 else {"name": each.name}),
            partition_data=[
                m.ProduceRequest.PartitionProduceData(index=0, records=batch(key=b"k")),
                m.ProduceRequest.PartitionProduceData(index=1, records=batch([b"a", b"b"])),
            ],
        )
        for each in topics.values()
    ]
    for attempt in range(2):
        response = connection.call(request, version, m.ProduceResponse)
        found = {}
        for answered in response.responses:
            name = next(n for n, each in topics.items() if answered.topic_id == each.id or answered.name == each.name)
            found[name] = {
                each.index: (Error(each.error_code), each.base_offset) for each in answered.partition_responses
            }
        good = {0: (Error.NONE, attempt), 1: (Error.NONE, 2 * attempt)}
        assert found == {"plain": good, "zstd": good, "compacted": {**good, 1: (Error.INVALID_RECORD, -1)}}


def test_with_the_setting_every_batch_is_opened(connection: Connection, wire_topic: Topic, peer_kind: PeerKind) -> None:
    if peer_kind == "kafka":
        pytest.skip("the setting is Barnabas's own: Kafka opens all batches anyway")
    garbage = batch(records=b"\xff garbage")
    alter(connection, BROKER_RESOURCE, "", "barnabas.validate.records", "true")
    try:
        wait_until(
            lambda: produce(connection, wire_topic, garbage).error_code == Error.INVALID_RECORD, "batches are opened"
        )
        assert produce(connection, wire_topic, batch()).error_code == Error.NONE
    finally:
        alter(connection, BROKER_RESOURCE, "", "barnabas.validate.records", None)
    wait_until(lambda: produce(connection, wire_topic, garbage).error_code == Error.NONE, "batches are not opened")


def test_a_request_of_very_many_partitions_is_opened_piece_by_piece(connection: Connection, topic: str) -> None:
    version, count, keyless = 12, 260, 255
    made = create_topic(connection, topic, count, COMPACTED)
    request = produce_request(made, None, version)
    request.topic_data[0].partition_data = [
        m.ProduceRequest.PartitionProduceData(index=index, records=batch(key=None if index == keyless else b"k"))
        for index in range(count)
    ]
    (answered,) = connection.call(request, version, m.ProduceResponse).responses
    answers = {each.index: each for each in answered.partition_responses}
    assert {index for index, each in answers.items() if each.error_code} == {keyless}
    reason = f"Compacted topic cannot accept message without key in topic partition {topic}-{keyless}"
    assert record_errors(answers[keyless]) == {0: reason}
