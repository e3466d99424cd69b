"""`barnabas produce TOPIC [FILE]`: sends each line as one record."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from confluent_kafka import KafkaException, Producer

from barnabas.cli.cluster_connection import UnknownTopicError, partition_count, require_partitions
from barnabas.cli.command_line import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CommandError,
    Parser,
    add_bootstrap_server,
    non_negative_int,
    parse_pair,
    seconds,
)
from barnabas.cli.progress_bar import byte_bar
from barnabas.cli.rdkafka import base_settings, reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from confluent_kafka import KafkaError, Message

    from barnabas.cli.progress_bar import Advance

    Headers = list[tuple[str, str | bytes | None]]

ANY_PARTITION = -1
LINE_BYTES_MAX = 100 * 1024 * 1024
ERRORS_SHOWN_MAX = 3
QUEUE_FULL_WAIT_S = 0.1
FLUSH_GRACE_S = 5.0  # beyond the delivery timeout, after which librdkafka itself gives up on a record
REPORT_INTERVAL_S = 0.1
TOPIC_CREATION_MAX_MS = 5_000  # how long the first record may take to create the topic
EPILOG = """examples:
  echo hello | barnabas produce greetings
  barnabas produce readings readings.csv --key-separator , --compression zstd
"""


class Line(NamedTuple):
    key: bytes | None
    value: bytes
    size_bytes: int
    """The size of the line as it was read, including separator and line end."""


class Outcome:
    """What became of the records passed to librdkafka, which reports only those that were not delivered."""

    __slots__ = ("errors", "failed", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.errors: list[str] = []

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        self.failed += 1
        if len(self.errors) < ERRORS_SHOWN_MAX:
            self.errors.append(f"topic {message.topic()!r}: {error.str()}")


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    outcome = Outcome()
    interrupted = False
    with open_source(options.file) as source, byte_bar("producing", size_of(source)) as advance:
        refuse_target(options)
        producer = Producer(producer_settings(options))
        try:
            send_lines(producer, source, options, outcome, advance)
        except KeyboardInterrupt:
            interrupted = True  # the usual end of a session at a terminal; what was typed is still sent
        except KafkaException as failure:
            require_target(options)
            raise CommandError(f"topic {options.topic!r}: {reason(failure)}") from None
        finally:
            unsent = producer.flush(options.timeout + FLUSH_GRACE_S)
    if outcome.failed or unsent:
        explain(outcome, options)
    code = report(outcome, unsent, options.topic)
    if interrupted and code == EXIT_OK and not sys.stderr.isatty():
        print(f"barnabas: interrupted; {outcome.sent} records delivered to {options.topic!r}", file=sys.stderr)
    return EXIT_INTERRUPTED if interrupted else code


def build_parser() -> Parser:
    parser = Parser("barnabas produce", "Send each line of standard input, or of a file, as one record.", EPILOG)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("file", metavar="FILE", nargs="?", help="read lines from here instead of standard input")
    add_bootstrap_server(parser)
    parser.add_argument(
        "--key-separator", type=separator, metavar="TEXT", help="what separates key and value in each line"
    )
    parser.add_argument(
        "--header",
        type=parse_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a header for every record; may be given several times",
    )
    parser.add_argument(
        "--partition", type=non_negative_int, default=ANY_PARTITION, metavar="N", help="send to this partition only"
    )
    parser.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", help="(default none)"
    )
    parser.add_argument(
        "--acks",
        choices=("0", "1", "all"),
        default="all",
        help="which replicas to wait for: none, the leader, or all in-sync replicas (default)",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help="give up on a record after this long (default 30)",
    )
    return parser


def separator(text: str) -> bytes:
    """A separator, in which `\\t` stands for a tab."""
    import argparse

    if not text:
        raise argparse.ArgumentTypeError("the separator is empty")
    return text.replace("\\t", "\t").encode()


def producer_settings(options: argparse.Namespace) -> dict[str, object]:
    return base_settings(options.bootstrap_server) | {
        "acks": options.acks,
        "enable.idempotence": options.acks == "all",
        "compression.type": options.compression,
        "partitioner": "murmur2_random",  # puts a key into the same partition as the Java client
        "message.timeout.ms": max(1, int(options.timeout * 1000)),
        "delivery.report.only.error": True,
        "topic.metadata.propagation.max.ms": TOPIC_CREATION_MAX_MS,
    }


def refuse_target(options: argparse.Namespace) -> None:
    """Checks the target before a line is read. A missing topic is accepted: the first record may create it."""
    with contextlib.suppress(UnknownTopicError):
        require_target(options)


def require_target(options: argparse.Namespace) -> None:
    """CommandError if the topic or the partition cannot be written to."""
    count = partition_count(options.bootstrap_server, options.topic)
    require_partitions(options.topic, count, [options.partition])


def explain(outcome: Outcome, options: argparse.Namespace) -> None:
    """Replaces librdkafka's errors, which often only mention a timeout, if topic or partition do not exist."""
    try:
        require_target(options)
    except CommandError as error:
        outcome.errors = [str(error)]


def open_source(path: str | None) -> BinaryIO:
    if path is None or path == "-":
        return sys.stdin.buffer
    try:
        return open(path, "rb")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None


def size_of(source: BinaryIO) -> int | None:
    status = os.fstat(source.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def send_lines(
    producer: Producer, source: BinaryIO, options: argparse.Namespace, outcome: Outcome, advance: Advance
) -> None:
    headers: Headers = [(key, value.encode()) for key, value in options.header]
    is_typed = source.isatty()
    unreported_bytes, reported_at = 0, time.monotonic()
    for line in read_lines(source, options.key_separator):
        send(producer, options.topic, line, headers, options.partition, outcome)
        outcome.sent += 1
        unreported_bytes += line.size_bytes
        if is_typed:
            producer.flush(options.timeout + FLUSH_GRACE_S)
        elif time.monotonic() - reported_at >= REPORT_INTERVAL_S:
            producer.poll(0)
            advance(unreported_bytes)
            unreported_bytes, reported_at = 0, time.monotonic()
    advance(unreported_bytes)


def read_lines(source: BinaryIO, key_separator: bytes | None) -> Iterator[Line]:
    for number, line in enumerate(iter(lambda: source.readline(LINE_BYTES_MAX), b""), start=1):
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            raise CommandError(f"line {number} is longer than {LINE_BYTES_MAX} bytes")
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if key_separator is None:
            yield Line(None, text, len(line))
            continue
        key, found, value = text.partition(key_separator)
        if not found:
            raise CommandError(f"line {number} has no key: {key_separator.decode()!r} does not occur in it")
        yield Line(key, value, len(line))


def send(
    producer: Producer,
    topic: str,
    line: Line,
    headers: Headers,
    partition: int,
    outcome: Outcome,
) -> None:
    """Passes one record to librdkafka; waits while its queue is full."""
    while True:
        try:
            producer.produce(topic, line.value, line.key, partition, outcome.on_delivery, headers=headers)
        except BufferError:
            producer.poll(QUEUE_FULL_WAIT_S)
            continue
        return


def report(outcome: Outcome, unsent: int, topic: str) -> int:
    for error in outcome.errors:
        print(f"barnabas: {error}", file=sys.stderr)
    undelivered = outcome.failed + unsent
    if undelivered:
        print(f"barnabas: {undelivered} of {outcome.sent} records were not delivered to {topic!r}", file=sys.stderr)
        return EXIT_FAILED
    if sys.stderr.isatty():
        print(f"{outcome.sent} records delivered to {topic!r}", file=sys.stderr)
    return EXIT_OK
