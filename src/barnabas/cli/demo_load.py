"""The load of the demo: records that are sent, read back and verified, and single records that are timed.

Each value contains its number, so that a reader can check the order within a partition. The sum of the checksums of all
values, in whatever order they arrive, tells whether what came out is what went in.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from barnabas.cli.command_line import CommandError
from barnabas.cli.rdkafka import base_settings, reason
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import KafkaError, Message

    from barnabas.cli.progress_bar import Advance
    from barnabas.client.broker_connection import Connection
    from barnabas.protocol.uuids import Uuid

VALUE_BYTES = 100
NUMBER_DIGITS = 12
FILLER = b"." * (VALUE_BYTES - NUMBER_DIGITS)
PROGRESS_STEP = 10_000
QUEUE_FULL_WAIT_S = 0.05
SILENCE_MAX_S = 20.0
FETCH_WAIT_MAX_MS = 10_000
FETCH_BYTES_MAX = 1024 * 1024
ACKS_ALL = -1


class Tally(NamedTuple):
    """What was sent or read: how many, their checksum, and how long it took."""

    records: int
    checksum: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        return self.records_per_second * VALUE_BYTES / 1e6


class Target(NamedTuple):
    """The topic under load."""

    bootstrap_server: str
    topic: str
    topic_id: Uuid
    partitions: int


def value_of(number: int) -> bytes:
    return b"%0*d" % (NUMBER_DIGITS, number) + FILLER


def send_records(target: Target, count: int, advance: Advance) -> Tally:
    """Produces `count` records with acks=all, and returns when every one is acknowledged."""
    failures: list[KafkaError] = []

    def on_failure(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    settings = base_settings(target.bootstrap_server) | {
        "acks": "all",
        "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000,
        "delivery.report.only.error": True,
    }
    producer = Producer(settings)
    produce, topic, checksum = producer.produce, target.topic, 0
    started = time.perf_counter()
    for number in range(count):
        value = value_of(number)
        checksum += crc32(value)
        while True:
            try:
                produce(topic, value, on_delivery=on_failure)
                break
            except BufferError:
                producer.poll(QUEUE_FULL_WAIT_S)
        if number % PROGRESS_STEP == PROGRESS_STEP - 1:
            producer.poll(0)
            advance(PROGRESS_STEP)
    unsent = producer.flush(SILENCE_MAX_S)
    seconds = time.perf_counter() - started
    advance(count % PROGRESS_STEP)
    if failures or unsent:
        why = f": {reason(failures[0])}" if failures else ""
        raise CommandError(f"{len(failures) + unsent} of {count} records were not acknowledged{why}")
    return Tally(count, checksum, seconds)


def read_records(target: Target, count: int, advance: Advance) -> Tally:
    """Reads `count` records from the beginning of all partitions, and checks the order in each of them."""
    last_numbers = [-1] * target.partitions
    checksum = seen = 0
    consumer = Consumer(consumer_settings(target.bootstrap_server))
    try:
        consumer.assign([TopicPartition(target.topic, p, OFFSET_BEGINNING) for p in range(target.partitions)])
        started = time.perf_counter()
        for messages in batches(consumer, target.topic):
            for message in messages:
                value, partition = message.value(), message.partition()
                assert isinstance(value, bytes)
                assert partition is not None
                checksum += crc32(value)
                number = int(value[:NUMBER_DIGITS])
                if number <= last_numbers[partition]:
                    raise CommandError(f"{target.topic}-{partition} is out of order at record {number}")
                last_numbers[partition] = number
            seen += len(messages)
            advance(len(messages))
            if seen >= count:
                break
        seconds = time.perf_counter() - started
    finally:
        consumer.close()
    return Tally(seen, checksum, seconds)


def consumer_settings(bootstrap_server: str) -> dict[str, object]:
    return base_settings(bootstrap_server) | {
        "group.id": "barnabas-demo",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "queued.min.messages": 1_000_000,
        "fetch.queue.backoff.ms": 10,  # the default is to pause for a second each time the queue is full
    }


def batches(consumer: Consumer, topic: str) -> Iterator[list[Message]]:
    """Batches of records, without end; CommandError if the cluster falls silent."""
    heard = time.monotonic()
    while True:
        messages = consumer.consume(PROGRESS_STEP, 0.1)
        for message in messages:
            if (error := message.error()) is not None:
                raise CommandError(f"reading {topic!r}: {reason(error)}")
        if messages:
            heard = time.monotonic()
            yield messages
        elif time.monotonic() - heard > SILENCE_MAX_S:
            raise CommandError(f"no record of topic {topic!r} arrived for {SILENCE_MAX_S:.0f} s")


def require_same(sent: Tally, read: Tally) -> None:
    if read.records != sent.records:
        raise CommandError(f"{sent.records} records went in, {read.records} came out")
    if read.checksum != sent.checksum:
        raise CommandError(
            f"what came out is not what went in: the checksum is {read.checksum:x} instead of {sent.checksum:x}"
        )


def produce_round_trips(connection: Connection, target: Target, count: int) -> list[float]:
    """Seconds from sending one record with acks=all to its acknowledgement, one record at a time."""
    request = one_record_request(target)
    times = []
    for _ in range(count):
        started = time.perf_counter()
        response: m.ProduceResponse = connection.send(request)
        times.append(time.perf_counter() - started)
        require_no_error("Produce", response.responses[0].partition_responses[0].error_code)
    return times


def end_to_end_times(producer: Connection, consumer: Connection, target: Target, count: int) -> list[float]:
    """Seconds from sending one record to its arrival at a consumer that waits for it in a Fetch request."""
    request = one_record_request(target)
    offset = end_offset(consumer, target)
    times = []
    for _ in range(count):
        consumer.send_nowait(fetch_request(target, offset))
        started = time.perf_counter()
        producer.send_nowait(request)
        fetched: m.FetchResponse = consumer.receive()
        times.append(time.perf_counter() - started)
        require_no_error("Fetch", fetched.error_code or fetched.responses[0].partitions[0].error_code)
        if not fetched.responses[0].partitions[0].records:
            raise CommandError(f"no record reached a waiting consumer in {FETCH_WAIT_MAX_MS} ms")
        produced: m.ProduceResponse = producer.receive()
        require_no_error("Produce", produced.responses[0].partition_responses[0].error_code)
        offset += 1
    return times


def one_record_request(target: Target) -> m.ProduceRequest:
    request = m.ProduceRequest
    now_ms = int(time.time() * 1000)
    batch = build_batch([Record(timestamp=now_ms, key=None, value=value_of(0))])
    partition = request.PartitionProduceData(index=0, records=batch)
    topic = request.TopicProduceData(name=target.topic, topic_id=target.topic_id, partition_data=[partition])
    return request(acks=ACKS_ALL, timeout_ms=FETCH_WAIT_MAX_MS, topic_data=[topic])


def fetch_request(target: Target, offset: int) -> m.FetchRequest:
    request = m.FetchRequest
    partition = request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)
    topic = request.FetchTopic(topic=target.topic, topic_id=target.topic_id, partitions=[partition])
    return request(max_wait_ms=FETCH_WAIT_MAX_MS, min_bytes=1, max_bytes=FETCH_BYTES_MAX, topics=[topic])


def end_offset(connection: Connection, target: Target) -> int:
    request = m.ListOffsetsRequest
    partition = request.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = request.ListOffsetsTopic(name=target.topic, partitions=[partition])
    response: m.ListOffsetsResponse = connection.send(request(topics=[topic]))
    found = response.topics[0].partitions[0]
    require_no_error("ListOffsets", found.error_code)
    return found.offset


def require_no_error(api: str, code: int) -> None:
    if code != Error.NONE:
        raise CommandError(f"{api} failed: {Error(code).name}")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of all values lies (nearest rank)."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]
