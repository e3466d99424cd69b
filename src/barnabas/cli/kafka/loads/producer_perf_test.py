"""kafka-producer-perf-test: write records as fast as goes, or as is asked for, and measure how long each takes.

Records are handed to librdkafka in chunks through its C interface. A record's time begins when its chunk is handed over
and ends when the event with its delivery is taken, which happens between any two chunks.
"""

from __future__ import annotations

import json
import random
import uuid
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.cluster_access import read_properties_file
from barnabas.cli.kafka.loads.arguments import (
    a_double,
    a_long,
    an_integer,
    construction_failed,
    help_asked_for,
    parser_for,
    refuse,
    warn_of_older_name,
)
from barnabas.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from barnabas.cli.kafka.loads.librdkafka import Delivered, Producer
    from barnabas.cli.kafka.loads.payloads import MakeChunk
    from barnabas.cli.kafka.loads.send_figures import SendFigures
    from barnabas.cli.kafka.subcommands import ToolParser

NAME: Final = "kafka-producer-perf-test"
SUMMARY: Final = "Measure how fast records are written, and how long each takes until it is acknowledged."
TRANSACTIONAL_ID: Final = "transactional.id"
TRANSACTION_MS: Final = 3_000
BUFFER_BYTES: Final = 32 * 1024 * 1024
REQUEST_BYTES: Final = 1024 * 1024
TOO_MUCH_WARMUP: Final = (
    "The value for --warmup-records must be strictly fewer than the number of records in the test, --num-records."
)
SOURCES: Final = ("--bootstrap-server", "--command-property", "--producer-props", "--producer.config")

_SLACK_BYTES: Final = 1024 * 1024
_BATCH_BYTES: Final = 61
_RECORD_BYTES_MAX: Final = 21
_POSITION_BITS: Final = 16
"""A record's number is that of its chunk, and where in the chunk it is."""
_WAIT_S: Final = 1.0
_STATISTICS_MS: Final = "100"


def parser() -> ToolParser:
    made = parser_for(NAME, SUMMARY)
    made.add_argument("--bootstrap-server", metavar="HOST:PORT,…", help="the brokers to connect to")
    made.add_argument("--topic", required=True, metavar="TOPIC", help="the topic to write to")
    made.add_argument("--num-records", type=a_long, required=True, metavar="N", help="how many records")
    payload = made.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=an_integer, metavar="BYTES", help="values of so many random letters")
    payload.add_argument("--payload-file", metavar="FILE", help="values from a file, any of them at a time")
    payload.add_argument("--payload-monotonic", action="store_true", help="values are numbers that grow")
    made.add_argument("--payload-delimiter", default="\\n", metavar="TEXT", help="what parts the values in the file")
    made.add_argument("--throughput", type=a_double, required=True, metavar="N", help="at most so many a second; or -1")
    for name, dest, text in (
        ("--command-property", "command_properties", "properties for the producer, which win over those of a file"),
        ("--producer-props", "producer_props", "the same, by its older name"),
    ):
        made.add_argument(name, dest=dest, nargs="+", metavar="NAME=VALUE", help=text)
    made.add_argument("--command-config", metavar="FILE", help="a file with properties for the producer")
    made.add_argument("--producer.config", dest="producer_config", metavar="FILE", help="the same, by its older name")
    made.add_argument("--print-metrics", action="store_true", help="print figures of the producer at the end")
    made.add_argument("--transactional-id", metavar="ID", help="write in transactions of this producer")
    made.add_argument(
        "--transaction-duration-ms", type=a_long, metavar="MS", help=f"commit so often; {TRANSACTION_MS} by default"
    )
    made.add_argument(
        "--warmup-records", type=a_long, default=0, metavar="N", help="leave out the first N in a line of its own"
    )
    made.add_argument("--reporting-interval", type=a_long, default=5_000, metavar="MS", help="how often to report")
    return made


def run(words: list[str]) -> int:
    made = parser()
    code = help_asked_for(made, words)
    if code is not None:
        return code
    options = made.parse(words)
    check(made, options)
    values = _values(options)
    properties = _properties(options)
    load = _Load(options, properties, values)
    load.send_all()
    load.print_figures()
    return EXIT_OK


def check(made: ToolParser, options: Namespace) -> None:
    """ToolUsageError for arguments that make no sense, or not together."""
    options.warmup_records = max(options.warmup_records, 0)
    for is_wrong, complaint in (
        (options.num_records <= 0, "--num-records should be greater than zero."),
        (
            options.warmup_records >= options.num_records,
            TOO_MUCH_WARMUP,
        ),
        (
            options.record_size is not None and options.record_size <= 0,
            "--record-size should be greater than zero.",
        ),
        (
            not any(
                (
                    options.bootstrap_server,
                    options.command_properties,
                    options.producer_props,
                    options.producer_config,
                    options.command_config,
                )
            ),
            f"At least one of {', '.join(SOURCES)} or --command-config must be specified.",
        ),
        (
            options.command_properties is not None and options.producer_props is not None,
            "--command-property and --producer-props cannot be specified together.",
        ),
        (
            options.command_config is not None and options.producer_config is not None,
            "--command-config and --producer.config cannot be specified together.",
        ),
        (
            options.transaction_duration_ms is not None and options.transaction_duration_ms <= 0,
            "--transaction-duration-ms should be greater than zero.",
        ),
        (options.reporting_interval <= 0, "--reporting-interval should be greater than zero."),
    ):
        if is_wrong:
            raise refuse(made, complaint)


def _values(options: Namespace) -> list[bytes]:
    if options.payload_file is None:
        return []
    from barnabas.cli.kafka.loads.payloads import read_values

    return read_values(options.payload_file, "\n" if options.payload_delimiter == "\\n" else options.payload_delimiter)


def _properties(options: Namespace) -> dict[str, str]:
    if options.producer_props is not None:
        warn_of_older_name("--producer-props", "--command-property")
    if options.producer_config is not None:
        warn_of_older_name("--producer.config", "--command-config")
    path = options.producer_config or options.command_config
    try:
        properties = {} if path is None else read_properties_file(path)
    except ToolError as failure:
        raise ToolError(f"java.nio.file.NoSuchFileException: {failure.message}", hint=failure.hint) from None
    for text in options.producer_props or options.command_properties or ():
        pieces = text.rstrip("=").split("=")
        if len(pieces) != 2:
            raise ToolError(f"java.lang.IllegalArgumentException: Invalid property: {text}")
        properties[pieces[0]] = pieces[1]
    properties.setdefault("client.id", "perf-producer-client")
    if options.bootstrap_server is not None:
        properties["bootstrap.servers"] = options.bootstrap_server
    if options.transactional_id is not None:
        properties[TRANSACTIONAL_ID] = options.transactional_id
    elif options.transaction_duration_ms is not None and TRANSACTIONAL_ID not in properties:
        properties[TRANSACTIONAL_ID] = f"performance-producer-{uuid.uuid4()}"
    return properties


class _Sent:
    """A chunk that was handed over."""

    __slots__ = ("at_ms", "is_steady", "left", "sizes")

    def __init__(self, at_ms: int, count: int, sizes: list[int] | int, *, is_steady: bool) -> None:
        self.at_ms = at_ms
        self.left = count
        self.sizes = sizes
        self.is_steady = is_steady

    def size_of(self, position: int, count: int) -> int:
        if isinstance(self.sizes, int):
            return self.sizes * count
        return sum(self.sizes[position : position + count])


class _Load:
    """Everything that is to be sent, and the figures of it."""

    def __init__(self, options: Namespace, properties: Mapping[str, str], values: list[bytes]) -> None:
        from barnabas.cli.kafka.loads.payloads import chosen_values, chunk_records, growing_numbers, random_values
        from barnabas.cli.kafka.loads.send_figures import SendFigures

        self._options = options
        self._client_id = properties["client.id"]
        self._delivery_timeout_ms = properties.get("delivery.timeout.ms", "120000")
        self._buffer_bytes = _number(properties, "buffer.memory", BUFFER_BYTES)
        self._request_bytes = _number(properties, "max.request.size", REQUEST_BYTES)
        self._max_block_ms = _number(properties, "max.block.ms", 60_000)
        largest = options.record_size or max(map(len, values), default=len(str(options.num_records)))
        self._chunk_records = chunk_records(largest, options.throughput)
        self._is_too_large = _record_bytes(largest) > self._request_bytes
        self._largest = largest
        self._make: MakeChunk = growing_numbers
        if options.record_size is not None and not self._is_too_large:
            self._make = random_values(options.record_size, self._chunk_records)
        elif values:
            self._make = chosen_values(values)
        self._transaction_ms: int | None = None
        if TRANSACTIONAL_ID in properties:
            self._transaction_ms = options.transaction_duration_ms or TRANSACTION_MS
        settings = _settings(properties, self._request_bytes)
        self._producer, self._probe = _clients(
            settings, properties, options.topic, tells_statistics=options.print_metrics
        )
        if self._transaction_ms is not None:
            self._in_words(lambda: self._producer.init_transactions(self._max_block_ms / 1000))
        if options.warmup_records:
            print(
                f"Warmup first {options.warmup_records} records. Steady state results will print after the complete "
                "test summary."
            )
        self._figures = SendFigures(options.reporting_interval)
        self._steady: SendFigures | None = None
        self._sent: dict[int, _Sent] = {}
        self._waiting_bytes = 0

    def send_all(self) -> None:
        """Return when everything is acknowledged or given up."""
        from barnabas.cli.kafka.loads.delivery import Failure, await_topic

        if self._is_too_large:
            self._refuse_all(
                "org.apache.kafka.common.errors.RecordTooLargeException: The message is "
                f"{_record_bytes(self._largest)} bytes when serialized which is larger than {self._request_bytes}, "
                "which is the value of the max.request.size configuration."
            )
            return
        client = f"Producer clientId={self._client_id}"
        partitions = await_topic(self._probe, self._options.topic, client, self._max_block_ms)
        if isinstance(partitions, Failure):
            self._refuse_all(str(partitions))
            return
        self._send_chunks(partitions)
        self._drain()

    def print_figures(self) -> None:
        self._figures.print_total()
        if self._steady is not None:
            self._steady.print_total()
        if self._options.print_metrics:
            self._print_metrics()
        self._producer.close()

    def _send_chunks(self, partitions: int) -> None:
        from barnabas.cli.kafka.loads.pace import Pace
        from barnabas.cli.kafka.loads.send_figures import SendFigures, now_ms

        options, producer = self._options, self._producer
        pace = Pace(options.throughput)
        copies = options.record_size is None
        partition = random.randrange(partitions)
        number = chunk_id = 0
        transaction_began_ms: int | None = None
        while number < options.num_records:
            if 0 < options.warmup_records <= number and self._steady is None:
                self._steady = SendFigures(options.reporting_interval, is_steady=True)
                self._figures.is_silent = True
            if self._transaction_ms is not None and transaction_began_ms is None:
                self._in_words(producer.begin_transaction)
                transaction_began_ms = now_ms()
            chunk = self._make(number, self._next_count(number))
            while self._sent and self._waiting_bytes + chunk.size_bytes > self._buffer_bytes:
                self._take(_WAIT_S)
            chunk.number(chunk_id << _POSITION_BITS)
            sizes = options.record_size or [chunk.messages[at].length for at in range(chunk.count)]
            is_steady = self._steady is not None
            self._sent[chunk_id] = _Sent(now_ms(), chunk.count, sizes, is_steady=is_steady)
            self._waiting_bytes += chunk.size_bytes
            producer.produce_now(chunk, partition, copies=copies)
            number += chunk.count
            chunk_id += 1
            partition = (partition + 1) % partitions
            self._take(0)
            if transaction_began_ms is not None and now_ms() - transaction_began_ms >= self._transaction_ms:  # type: ignore[operator]
                self._commit()
                transaction_began_ms = None
            while (pause_s := pace.pause_s(number)) > 0:
                self._take(pause_s)
        if transaction_began_ms is not None:
            self._commit()

    def _next_count(self, number: int) -> int:
        """As many as fill a chunk; what is warm-up, and what comes after it, is not in one chunk."""
        end = self._options.num_records
        if number < self._options.warmup_records:
            end = self._options.warmup_records
        return int(min(self._chunk_records, end - number))

    def _take(self, wait_s: float) -> None:
        """Count what has become of records."""
        from barnabas.cli.kafka.loads.send_figures import now_ms

        for row in self._producer.deliveries(wait_s):
            chunk_id, position = row.first >> _POSITION_BITS, row.first & (1 << _POSITION_BITS) - 1
            sent = self._sent[chunk_id]
            size = sent.size_of(position, row.length)
            self._waiting_bytes -= size
            sent.left -= row.length
            if not sent.left:
                del self._sent[chunk_id]
            if row.error_code:
                self._tell_failure(row)
                continue
            latency_ms = now_ms() - sent.at_ms
            self._figures.record(latency_ms, row.length, size)
            if sent.is_steady and self._steady is not None:
                self._steady.record(latency_ms, row.length, size)

    def _drain(self) -> None:
        while self._sent:
            self._take(_WAIT_S)

    def _commit(self) -> None:
        self._drain()
        self._in_words(lambda: self._producer.commit_transaction(self._max_block_ms / 1000))

    def _tell_failure(self, row: Delivered) -> None:
        from confluent_kafka import KafkaError

        from barnabas.cli.kafka.loads.delivery import failure_of
        from barnabas.cli.kafka.tool import warn

        place = f"{self._options.topic}-{row.partition}"
        failure = failure_of(row.error_code, KafkaError(row.error_code).str(), place, self._delivery_timeout_ms)
        for _ in range(row.length):
            warn(str(failure))

    def _refuse_all(self, reason: str) -> None:
        from barnabas.cli.kafka.tool import warn

        for _ in range(self._options.num_records):
            warn(reason)

    def _in_words(self, call: Any) -> None:
        """What goes wrong with a transaction ends the tool."""
        from barnabas.cli.kafka.loads.librdkafka import LibrdkafkaError

        try:
            call()
        except LibrdkafkaError as failure:
            raise ToolError(f"org.apache.kafka.common.KafkaException: {failure}") from None

    def _print_metrics(self) -> None:
        from barnabas.cli.kafka.loads.metrics_table import of_batches, of_traffic, print_metrics

        self._producer.statistics = ""
        while not self._producer.statistics:
            self._take(_WAIT_S)
        statistics = json.loads(self._producer.statistics)
        figures = of_traffic(statistics) | of_batches(statistics)
        figures["record-send-total"] = float(statistics.get("txmsgs", 0))
        print_metrics("producer-metrics", self._client_id, figures)


def _clients(
    settings: Mapping[str, Any], properties: Mapping[str, str], topic: str, *, tells_statistics: bool
) -> tuple[Producer, Any]:
    """The producer, and another to ask about the topic with."""
    import confluent_kafka

    from barnabas.cli.kafka.loads.librdkafka import LibrdkafkaError, Producer
    from barnabas.cli.kafka.rdkafka_events import reporter

    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    if tells_statistics:
        texts["statistics.interval.ms"] = _STATISTICS_MS
    asking = {name: value for name, value in settings.items() if name != TRANSACTIONAL_ID}
    try:
        producer = Producer(texts, topic, tells_deliveries=True, tells_statistics=tells_statistics)
        report = reporter(f"Producer clientId={properties['client.id']}")
        return producer, confluent_kafka.Producer(asking | {"error_cb": report})
    except LibrdkafkaError as failure:
        raise construction_failed("producer", str(failure)) from None
    except confluent_kafka.KafkaException as failure:
        raise construction_failed("producer", failure.args[0].str()) from None


def _settings(properties: Mapping[str, str], request_bytes: int) -> dict[str, Any]:
    from barnabas.cli.kafka.bootstrap_servers import check_names
    from barnabas.cli.kafka.rdkafka_properties import PRODUCER, rdkafka_settings

    if not properties.get("bootstrap.servers"):
        raise construction_failed("producer", "No resolvable bootstrap urls given in bootstrap.servers")
    settings = rdkafka_settings(properties, PRODUCER) | {
        "message.max.bytes": max(request_bytes, _SLACK_BYTES) + _SLACK_BYTES,
        # What waits is counted here, as Java's producer does, by bytes.
        "queue.buffering.max.kbytes": (1 << 31) - 1,
        "queue.buffering.max.messages": 0,
    }
    check_names(properties["bootstrap.servers"], "kafka producer")
    timeout_ms = 120_000
    if TRANSACTIONAL_ID in properties:
        # Of librdkafka's producers none may wait for longer than a transaction may last.
        timeout_ms = min(timeout_ms, _number(properties, "transaction.timeout.ms", 60_000))
    settings.setdefault("delivery.timeout.ms", timeout_ms)
    settings.setdefault("enable.idempotence", _is_idempotent(properties))
    return settings


def _is_idempotent(properties: Mapping[str, str]) -> bool:
    """Whether Java's producer would be, without having been told."""
    return (
        properties.get("acks", "all") in ("all", "-1")
        and properties.get("retries") != "0"
        and _number(properties, "max.in.flight.requests.per.connection", 5) <= 5
    )


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    from barnabas.cli.kafka.rdkafka_properties import PRODUCER, value_of

    return int(value_of(name, properties[name], PRODUCER[name])) if name in properties else default


def _record_bytes(value_bytes: int) -> int:
    """At most how many bytes a batch of one record has, as Java's producer reckons."""
    from barnabas.protocol.varint import varint

    return _BATCH_BYTES + _RECORD_BYTES_MAX + len(varint(-1)) + len(varint(value_bytes)) + value_bytes + 1
