"""kafka-e2e-latency: write a record, wait until it is read, and again: how long that takes from end to end."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.cluster_access import read_properties_file
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, FlagError, Flags, Given
from barnabas.cli.kafka.java.java_values import double_text
from barnabas.cli.kafka.loads.arguments import construction_failed
from barnabas.cli.kafka.loads.java_format import fixed
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import Consumer, Message, Producer

SUMMARY: Final = "This tool measures end-to-end latency in Kafka by sending messages and timing their reception."
NAMED: Final = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
POSITIONS_MAX: Final = 6
POSITIONAL: Final = (
    "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. Please use named "
    "arguments instead: --bootstrap-server, --topic, --num-records, --producer-acks, --record-size, --command-config"
)
POLL_S: Final = 60.0
_REPORT_EVERY: Final = 1_000
_NO_VALUE: Final = -1
_LETTERS: Final = 26
_WAIT_S: Final = 0.5

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "bootstrap-server"),
    Flag(("topic",), "The topic to use. Required.", "topic-name"),
    Flag(("num-records",), "How many records to write, one after the other. Required.", "count"),
    Flag(("producer-acks",), "1 or all. Required.", "producer-acks"),
    Flag(("record-size",), "How many bytes each value has. Required.", "bytes"),
    Flag(
        ("record-key-size",),
        "How many bytes each key has; no key for 0.",
        "bytes",
        "0",
        is_optional=True,
        is_number=True,
    ),
    Flag(("num-headers",), "How many headers each record has.", "count", "0", is_optional=True, is_number=True),
    Flag(
        ("record-header-key-size",),
        "How many bytes the name of a header has.",
        "bytes",
        "0",
        is_optional=True,
        is_number=True,
    ),
    Flag(
        ("record-header-size",),
        "How many bytes its value has; none for -1.",
        "bytes",
        "0",
        is_optional=True,
        is_number=True,
    ),
    Flag(("command-config",), "A file with properties for the clients.", "config-file", is_optional=True),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(_named(words))
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    check(given)
    path = given.text("command-config")
    properties = {} if path is None or not path.strip() else read_properties_file(path)
    properties["bootstrap.servers"] = given.required("bootstrap-server")
    _Trip(given, properties).measure()
    return EXIT_OK


def check(given: Given) -> None:
    """ToolUsageError for flags that are missing, or that have a value that makes no sense."""
    FLAGS.check_required(given, *NAMED)
    if given.text("producer-acks") not in ("1", "all"):
        raise ToolUsageError(
            "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. Please use '1' "
            "or 'all'."
        )
    try:
        numbers = {name: _number(given, name) for name in NAMED[2:] + _SIZES if name != "producer-acks"}
    except FlagError as failure:
        raise ToolError(failure.message) from None
    if numbers["num-records"] <= 0:
        raise ToolUsageError("Value for --num-records must be a positive integer.")
    if numbers["record-header-size"] < _NO_VALUE:
        raise ToolUsageError(
            "Value for --record-header-size must be a non-negative integer or -1 for null header value."
        )
    for name in ("record-size", "record-key-size", "record-header-key-size", "num-headers"):
        if numbers[name] < 0:
            raise ToolUsageError(f"Value for --{name} must be a non-negative integer.")


_SIZES: Final = ("record-key-size", "num-headers", "record-header-key-size", "record-header-size")


def _named(words: Sequence[str]) -> list[str]:
    """The words with the names of their flags, where they are in the order of older tools instead."""
    if not words or any(f"--{name}" in words for name in NAMED) or words[0] in ("--help", "--version"):
        return list(words)
    if len(words) not in (POSITIONS_MAX - 1, POSITIONS_MAX):
        raise ToolError(
            f"Invalid number of arguments. Expected 5 or 6 positional arguments, but got {len(words)}. Usage: "
            "bootstrap-server topic num-records producer-acks record-size [optional] command-config"
        )
    print(POSITIONAL)
    names = [*NAMED, "command-config"][: len(words)]
    return [each for name, word in zip(names, words, strict=True) for each in (f"--{name}", word)]


class _Trip:
    """A producer and a consumer of one topic, and records that go from one to the other."""

    def __init__(self, given: Given, properties: Mapping[str, str]) -> None:
        self._given = given
        self._topic = given.required("topic")
        self._count = _number(given, "num-records")
        self._source = random.Random(0)
        self._properties = dict(properties)

    def measure(self) -> None:
        consumer, producer = _clients(self._properties, self._given.required("producer-acks"))
        try:
            self._make_topic(producer)
            _read_from_end(consumer, self._topic)
            times_ns = []
            for number in range(self._count):
                times_ns.append(self._send_and_read(producer, consumer))
                if number % _REPORT_EVERY == 0:
                    print(f"{number}\t{double_text(times_ns[-1] / 1e6)}", flush=True)
            _print_results(times_ns)
        finally:
            consumer.close()

    def _make_topic(self, producer: Producer) -> None:
        from confluent_kafka import KafkaException

        if self._topic in _known_topics(producer):
            return
        print(f'Topic "{self._topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1')
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        from barnabas.cli.kafka.rdkafka_properties import COMMON, rdkafka_settings

        client = AdminClient(rdkafka_settings(self._properties, COMMON))
        try:
            client.create_topics([NewTopic(self._topic, 1, 1)])[self._topic].result()
        except KafkaException as failure:
            from barnabas.cli.rdkafka import kafkas_words

            print(f"Creation of topic {self._topic} failed")
            raise ToolError(kafkas_words(failure.args[0])) from None

    def _send_and_read(self, producer: Producer, consumer: Consumer) -> int:
        value = self._bytes(_number(self._given, "record-size"))
        key_size = _number(self._given, "record-key-size")
        key = self._bytes(key_size) if key_size else None
        headers: list[tuple[str, str | bytes | None]] = [
            (self._bytes(_number(self._given, "record-header-key-size")).decode(), self._header_value())
            for _ in range(_number(self._given, "num-headers"))
        ]
        failures: list[Any] = []
        started_ns = time.perf_counter_ns()
        producer.produce(
            self._topic, value, key, headers=headers or None, on_delivery=lambda error, _: failures.append(error)
        )
        while not failures:
            producer.poll(_WAIT_S)
        if failures[0] is not None:
            from barnabas.cli.rdkafka import kafkas_words

            raise ToolError(kafkas_words(failures[0]))
        message = consumer.poll(POLL_S)
        took_ns = time.perf_counter_ns() - started_ns
        _check_read(message, value, key)
        return took_ns

    def _header_value(self) -> bytes | None:
        size = _number(self._given, "record-header-size")
        return None if size == _NO_VALUE else self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        """So many times the same letter."""
        return bytes([65 + self._source.randrange(_LETTERS)]) * size


def _check_read(message: Message | None, value: bytes, key: bytes | None) -> None:
    """ToolError unless this is what was sent."""
    if message is None or message.error() is not None:
        raise ToolError(f"poll() timed out before finding a result (timeout:[{POLL_S * 1000:.0f}ms])")
    for what, sent, found in (("value", value, message.value()), ("key", key, message.key())):
        if sent != found:
            shown = ["null" if each is None else bytes(each).decode(errors="replace") for each in (found, sent)]
            raise ToolError(f"The message {what} read [{shown[0]}] did not match the message {what} sent [{shown[1]}]")


def _print_results(times_ns: Sequence[int]) -> None:
    print(f"Avg latency: {fixed(sum(times_ns) / len(times_ns) / 1e6, 4)} ms")
    ordered = sorted(each // 1_000_000 for each in times_ns)
    at = {
        name: ordered[int(share * len(ordered))] for name, share in (("50th", 0.5), ("99th", 0.99), ("99.9th", 0.999))
    }
    print(f"Percentiles: {', '.join(f'{name} = {latency_ms}' for name, latency_ms in at.items())}")


def _clients(properties: Mapping[str, str], acks: str) -> tuple[Consumer, Producer]:
    from confluent_kafka import Consumer, KafkaException, Producer

    from barnabas.cli.kafka.bootstrap_servers import check_names
    from barnabas.cli.kafka.rdkafka_events import reporter
    from barnabas.cli.kafka.rdkafka_properties import CONSUMER, PRODUCER, rdkafka_settings

    reading = rdkafka_settings(properties, CONSUMER) | {
        "group.id": f"test-group-{time.time_ns() // 1_000_000}",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 0,
        "error_cb": reporter("Consumer clientId=consumer-1"),
    }
    writing = rdkafka_settings(properties, PRODUCER) | {
        "acks": acks,
        "linger.ms": 0,
        "error_cb": reporter("Producer clientId=producer-1"),
    }
    try:
        check_names(properties["bootstrap.servers"], "kafka consumer")
    except ToolError as failure:
        raise ToolError("Failed to construct kafka consumer", hint=failure.hint) from None
    try:
        return Consumer(reading), Producer(writing)
    except KafkaException as failure:
        raise construction_failed("consumer", failure.args[0].str()) from None


def _known_topics(producer: Producer) -> Mapping[str, Any]:
    """All topics, once somebody answers."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + POLL_S
    while True:
        try:
            topics: Mapping[str, Any] = producer.list_topics(timeout=_WAIT_S).topics
        except KafkaException:
            producer.poll(0)  # `error_cb` says so
            if time.monotonic() > deadline:
                raise ToolError("Timeout expired while fetching topic metadata") from None
        else:
            return topics


def _read_from_end(consumer: Consumer, topic: str) -> None:
    """Assign all partitions, each from its end."""
    from confluent_kafka import TopicPartition

    found = consumer.list_topics(topic, timeout=POLL_S).topics[topic].partitions
    places = [TopicPartition(topic, partition) for partition in found]
    for each in places:
        each.offset = consumer.get_watermark_offsets(each, timeout=POLL_S)[1]
    consumer.assign(places)


def _number(given: Given, name: str) -> int:
    number = given.integer(name)
    assert number is not None, "it is required, or has a default"
    return number
