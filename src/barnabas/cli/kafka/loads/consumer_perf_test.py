"""kafka-consumer-perf-test: read records as a member of a group as fast as goes, and measure how fast that is."""

from __future__ import annotations

import json
import random
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.cluster_access import parse_pairs, read_properties_file
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, FlagError, Flags, Given, read_long
from barnabas.cli.kafka.loads.arguments import construction_failed
from barnabas.cli.kafka.loads.java_format import date_text, fixed
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Consumer, Message, TopicPartition

SUMMARY: Final = "This tool measures how fast records are read."
HEADER: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
DATE_FORMAT: Final = "yyyy-MM-dd HH:mm:ss:SSS"
RECORDS_MAX: Final = 10_000
"""At most so many are taken from librdkafka at a time."""
POLL_S: Final = 0.1
_MIB: Final = 1_048_576
_STATISTICS_MS: Final = 100

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "server to connect to"),
    Flag(("topic",), "The topic to read.", "topic"),
    Flag(("include",), "The topics to read, as a regular expression.", "regex"),
    Flag(("group",), "The group to join; one of its own by default.", "gid"),
    Flag(("num-records",), "How many records to read. Required.", "count"),
    Flag(("messages",), "The same under its older name.", "count"),
    Flag(("fetch-size",), "How many bytes to fetch of a partition at a time, 1048576 by default.", "size", "1048576"),
    Flag(("from-latest",), "Begin at the end where the group has not been before, instead of at the beginning."),
    Flag(("socket-buffer-size",), "The size of the socket's buffer, 2097152 by default.", "size", "2097152"),
    Flag(("command-config",), "A file with properties for the consumer.", "config file"),
    Flag(("consumer.config",), "The same under its older name.", "config file"),
    Flag(("command-property",), "A property, which wins over that of a file.", "prop1=val1"),
    Flag(
        ("timeout",), "For how many ms nothing may come, 10000 by default.", "milliseconds", "10000", is_optional=True
    ),
    Flag(("show-detailed-stats",), "Report at every interval instead of at the end."),
    Flag(("reporting-interval",), "How many ms an interval has, 5000 by default.", "interval_ms", "5000"),
    Flag(("date-format",), "How times are printed, as Java's SimpleDateFormat has it.", "date format", DATE_FORMAT),
    Flag(("hide-header",), "Leave out the line with the names of the columns."),
    Flag(("print-metrics",), "Print figures of the consumer at the end."),
    Flag(("threads",), "Without effect since Kafka 2.0.", "count", is_hidden=True),
    Flag(("num-fetch-threads",), "Without effect since Kafka 2.0.", "count", is_hidden=True),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words, BROKER_LIST))
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    check(given)
    shows_details = given.has("show-detailed-stats")
    if not given.has("hide-header"):
        print(f"{'time, threadId' if shows_details else 'start.time, end.time'}, {HEADER}", flush=True)
    _Load(given, _properties(given)).read_all()
    return EXIT_OK


def check(given: Given) -> None:
    """ToolUsageError for flags that do not go together."""
    FLAGS.check_required(given, "bootstrap-server")
    for one_of in (("topic", "include"), ("messages", "num-records")):
        if sum(map(given.has, one_of)) != 1:
            shown = ", ".join(f"[{name}]" for name in one_of)
            raise ToolUsageError(f"Exactly one of the following arguments is required: {shown}")
    FLAGS.check_invalid(given, "consumer.config", "command-config")
    for old, new in (("messages", "num-records"), ("consumer.config", "command-config")):
        if given.has(old):
            print(f"Warning: --{old} is deprecated. Use --{new} instead.")


def _properties(given: Given) -> dict[str, str]:
    path = given.text("consumer.config") or given.text("command-config")
    properties = {"client.id": "perf-consumer-client"}
    properties |= {} if path is None else read_properties_file(path)
    properties |= parse_pairs(given.texts("command-property"))
    return properties | {
        "bootstrap.servers": given.required("bootstrap-server"),
        "group.id": given.text("group") or f"perf-consumer-{random.randrange(100_000)}",
        "receive.buffer.bytes": str(given.integer("socket-buffer-size")),
        "max.partition.fetch.bytes": str(given.integer("fetch-size")),
        "auto.offset.reset": "latest" if given.has("from-latest") else "earliest",
        "check.crcs": "false",
    }


class _Load:
    """A consumer, and what it has read so far."""

    def __init__(self, given: Given, properties: Mapping[str, str]) -> None:
        self._given = given
        self._client_id = properties["client.id"]
        self._statistics = ""
        self._consumer = _consumer(properties, self._note_statistics if given.has("print-metrics") else None)
        self._records = self._bytes = 0
        self._assigned: set[tuple[str, int]] = set()
        self._join_started_ms = self._started_ms = _now_ms()
        self._join_ms = self._join_ms_in_interval = 0

    def read_all(self) -> None:
        try:
            wanted = _wanted(self._given)
            interval_ms = _interval_ms(self._given)
            timeout_ms = self._given.long("timeout")
            assert timeout_ms is not None, "it has a default"
            pattern = self._given.required("date-format")
            date_text(datetime.now(), pattern)  # noqa: DTZ005 - to find out whether it is one
            self._subscribe()
            self._read(wanted, timeout_ms, interval_ms, pattern)
            ended_ms = _now_ms()
            if not self._given.has("show-detailed-stats"):
                self._print_total(ended_ms, pattern)
            if self._given.has("print-metrics"):
                self._print_metrics()
        finally:
            self._consumer.close()

    def _subscribe(self) -> None:
        topic, pattern = self._given.text("topic"), self._given.text("include")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ToolError(str(error)) from None
        self._consumer.subscribe(
            [f"^{pattern}$" if topic is None else topic], on_assign=self._on_assign, on_revoke=self._on_revoke
        )

    def _read(self, wanted: int, timeout_ms: int, interval_ms: int, pattern: str) -> None:
        shows_details = self._given.has("show-detailed-stats")
        now = reported_ms = consumed_ms = _now_ms()
        reported_records = reported_bytes = 0
        while self._records < wanted and now - consumed_ms <= timeout_ms:
            messages = self._next()
            now = _now_ms()
            if not messages:
                continue
            consumed_ms = now
            self._count(messages)
            if now - reported_ms >= interval_ms:
                if shows_details:
                    records, size = self._records - reported_records, self._bytes - reported_bytes
                    self._print_interval(records, size, reported_ms, now, pattern)
                self._join_ms_in_interval = 0
                reported_ms, reported_records, reported_bytes = now, self._records, self._bytes
        if self._records < wanted:
            print(
                "WARNING: Exiting before consuming the expected number of records: timeout "
                f"({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
            )

    def _next(self) -> list[Message]:
        """What has come, as soon as something has."""
        first = self._consumer.poll(POLL_S)
        return [] if first is None else [first, *self._consumer.consume(RECORDS_MAX, timeout=0)]

    def _count(self, messages: list[Message]) -> None:
        for each in messages:
            if each.error() is None:
                self._records += 1
                key = each.key()
                self._bytes += len(each) + (0 if key is None else len(key))

    def _print_total(self, ended_ms: int, pattern: str) -> None:
        took_ms = ended_ms - self._started_ms
        fetch_ms = took_ms - self._join_ms
        size = self._bytes / _MIB
        figures = [
            _date(self._started_ms, pattern),
            _date(ended_ms, pattern),
            fixed(size, 4),
            fixed(_rate(size, took_ms), 4),
            str(self._records),
            fixed(_rate(self._records, took_ms), 4),
            str(self._join_ms),
            str(fetch_ms),
            fixed(_rate(size, fetch_ms), 4),
            fixed(_rate(self._records, fetch_ms), 4),
        ]
        print(", ".join(figures))

    def _print_interval(self, records: int, size_bytes: int, since_ms: int, until_ms: int, pattern: str) -> None:
        took_ms, size = until_ms - since_ms, size_bytes / _MIB
        fetch_ms = took_ms - self._join_ms_in_interval
        figures = [
            _date(until_ms, pattern),
            "0",
            fixed(self._bytes / _MIB, 4),
            fixed(_rate(size, took_ms), 4),
            str(self._records),
            fixed(_rate(records, took_ms), 4),
            str(self._join_ms_in_interval),
            str(fetch_ms),
            fixed(_rate(size, fetch_ms) if fetch_ms > 0 else 0.0, 4),
            fixed(_rate(records, fetch_ms) if fetch_ms > 0 else 0.0, 4),
        ]
        print(", ".join(figures), flush=True)

    def _print_metrics(self) -> None:
        from barnabas.cli.kafka.loads.metrics_table import of_traffic, print_metrics

        self._statistics = ""
        while not self._statistics:
            self._consumer.consume(RECORDS_MAX, timeout=POLL_S)
        figures = of_traffic(json.loads(self._statistics))
        figures["records-consumed-total"] = float(self._records)
        figures["bytes-consumed-total"] = float(self._bytes)
        print_metrics("consumer-fetch-manager-metrics", self._client_id, figures)

    def _note_statistics(self, text: str) -> None:
        self._statistics = text

    def _on_assign(self, _consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        if not self._assigned:
            took_ms = _now_ms() - self._join_started_ms
            self._join_ms += took_ms
            self._join_ms_in_interval += took_ms
        self._assigned.update((each.topic, each.partition) for each in partitions)

    def _on_revoke(self, _consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self._assigned.difference_update((each.topic, each.partition) for each in partitions)
        if not self._assigned:
            self._join_started_ms = _now_ms()


def _consumer(properties: Mapping[str, str], on_statistics: Any) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    from barnabas.cli.kafka.bootstrap_servers import check_names
    from barnabas.cli.kafka.rdkafka_events import reporter
    from barnabas.cli.kafka.rdkafka_properties import CONSUMER, rdkafka_settings

    settings = rdkafka_settings(properties, CONSUMER) | {
        "auto.offset.reset": properties["auto.offset.reset"],
        "error_cb": reporter(f"Consumer clientId={properties['client.id']}, groupId={properties['group.id']}"),
        # A full queue makes librdkafka wait for a second before it fetches again.
        "fetch.queue.backoff.ms": 1,
    }
    if on_statistics is not None:
        settings |= {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": on_statistics}
    try:
        check_names(properties["bootstrap.servers"], "kafka consumer")
    except ToolError as failure:
        raise ToolError("Failed to construct kafka consumer", hint=failure.hint) from None
    try:
        return Consumer(settings)
    except KafkaException as failure:
        raise construction_failed("consumer", failure.args[0].str()) from None


def _wanted(given: Given) -> int:
    count = given.long("messages") if given.has("messages") else given.long("num-records")
    assert count is not None, "one of them is required"
    return count


def _interval_ms(given: Given) -> int:
    text = given.required("reporting-interval")
    if not text.isdecimal():
        raise FlagError(f"Cannot parse argument '{text}' of option reporting-interval")
    interval_ms = read_long(text)
    if interval_ms <= 0:
        raise ToolError("Reporting interval must be greater than 0.")
    return interval_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _date(moment_ms: int, pattern: str) -> str:
    return date_text(datetime.fromtimestamp(moment_ms / 1000).astimezone(), pattern)


def _rate(amount: float, took_ms: int) -> float:
    """As Java divides: nothing by nothing is no number."""
    if took_ms:
        return amount * 1000 / took_ms
    return float("inf") if amount else float("nan")
