"""`barnabas consume TOPIC`: prints the records of a topic, one per line.

Partitions are assigned manually, without a consumer group: looking at a topic leaves no trace in the cluster.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from barnabas.cli.cluster_connection import partition_count, require_partitions
from barnabas.cli.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    CommandError,
    Parser,
    add_bootstrap_server,
    non_negative_int,
    positive_int,
    seconds,
)
from barnabas.cli.rdkafka import base_settings, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confluent_kafka import Message

OFFSETS_TIMEOUT_S = 10.0
POLL_S = 0.5
MESSAGES_AT_ONCE = 1_000
OFFSET_TAIL_BASE = -2000  # this number minus N is librdkafka's offset for "N records before the end"
EPILOG = """examples:
  barnabas consume greetings --exit-at-end
  barnabas consume readings --from 2026-01-31T12:00:00Z --print-key --print-timestamp
  barnabas consume readings --partition 0 --from -10 --json

--from takes `beginning` (default), `end`, an offset, -N for the last N records of each partition, or a time:
ISO 8601 (local time if there is no time zone), or @ followed by milliseconds since 1970.
"""


class Start(NamedTuple):
    """Where to begin: an offset as librdkafka understands it, or a time."""

    offset: int = OFFSET_BEGINNING
    timestamp_ms: int | None = None


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    partitions = choose_partitions(options)
    consumer = Consumer(consumer_settings(options.bootstrap_server))
    try:
        consumer.assign(start_positions(consumer, partitions, options))
        count = print_records(consumer, partitions, options)
    except KafkaException as failure:
        raise CommandError(f"topic {options.topic!r}: {reason(failure)}") from None
    finally:
        consumer.close()
    if options.max_messages is not None and count < options.max_messages:
        print(f"barnabas: only {count} of {options.max_messages} records were received", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def build_parser() -> Parser:
    parser = Parser("barnabas consume", "Print the records of a topic, one per line.", EPILOG)
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_server(parser)
    parser.add_argument(
        "--from", dest="start", type=parse_start, default=Start(OFFSET_BEGINNING), metavar="WHERE", help="see below"
    )
    parser.add_argument(
        "--partition",
        type=non_negative_int,
        action="append",
        default=[],
        metavar="N",
        help="only this partition; may be given several times (default: all)",
    )
    parser.add_argument("--max-messages", type=positive_int, metavar="N", help="stop after this many records")
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS", help="stop if no record arrives for this long")
    parser.add_argument("--exit-at-end", action="store_true", help="stop at the end of all partitions")
    parser.add_argument("--print-key", action="store_true")
    parser.add_argument("--print-headers", action="store_true")
    parser.add_argument("--print-timestamp", action="store_true")
    parser.add_argument("--print-offset", action="store_true", help="also prints the partition")
    parser.add_argument("--json", action="store_true", help="one JSON object per record, with all of these")
    return parser


def parse_start(text: str) -> Start:
    if text == "beginning":
        return Start(OFFSET_BEGINNING)
    if text == "end":
        return Start(OFFSET_END)
    if text.startswith("@") and text[1:].isdecimal():
        return Start(timestamp_ms=int(text[1:]))
    try:
        offset = int(text)
    except ValueError:
        return Start(timestamp_ms=parse_time(text))
    return Start(offset if offset >= 0 else OFFSET_TAIL_BASE + offset)


def parse_time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not valid: expected beginning, end, an offset, -N, a time such as 2026-01-31T12:00:00Z, or "
            "@milliseconds"
        ) from None
    # No record is older than 1970, and in the protocol a negative timestamp has another meaning: -1 is the end, -2 the
    # beginning.
    return max(0, round(moment.astimezone(UTC).timestamp() * 1000))


def consumer_settings(bootstrap_server: str) -> dict[str, object]:
    return base_settings(bootstrap_server) | {
        "group.id": "barnabas-cli",  # librdkafka requires one; it is not joined, and nothing is committed for it
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.queue.backoff.ms": 10,  # the default is to pause for a second each time the queue is full
    }


def choose_partitions(options: argparse.Namespace) -> list[int]:
    count = partition_count(options.bootstrap_server, options.topic)
    require_partitions(options.topic, count, options.partition)
    return sorted(set(options.partition) or range(count))


def start_positions(consumer: Consumer, partitions: list[int], options: argparse.Namespace) -> list[TopicPartition]:
    start: Start = options.start
    if start.timestamp_ms is None:
        return [TopicPartition(options.topic, partition, start.offset) for partition in partitions]
    wanted = [TopicPartition(options.topic, partition, start.timestamp_ms) for partition in partitions]
    return consumer.offsets_for_times(wanted, timeout=OFFSETS_TIMEOUT_S)


def print_records(consumer: Consumer, partitions: list[int], options: argparse.Namespace) -> int:
    """Prints records until one of the stop conditions is met; returns how many were printed."""
    form = line_format(options)
    count = 0
    for batch in batches(consumer, set(partitions), options):
        wanted = batch if options.max_messages is None else batch[: options.max_messages - count]
        sys.stdout.buffer.write(b"".join([form(message) for message in wanted]))
        count += len(wanted)
        if count == options.max_messages:
            break
    return count


def batches(consumer: Consumer, unfinished: set[int], options: argparse.Namespace) -> Iterator[list[Message]]:
    """Records as they arrive, until none arrives for the given time or, with --exit-at-end, all have been read."""
    last_seen = time.monotonic()
    while True:
        messages = next_messages(consumer, options.timeout)
        records = [message for message in messages if not is_partition_end(message, unfinished, consumer)]
        if records:
            last_seen = time.monotonic()
            yield records
        elif options.timeout is not None and time.monotonic() - last_seen >= options.timeout:
            return
        if options.exit_at_end and not unfinished:
            return


def is_partition_end(message: Message, unfinished: set[int], consumer: Consumer) -> bool:
    """Whether a message only says that its partition has been read to the end, which removes it from `unfinished`."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        unfinished.discard(cast("int", message.partition()))
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - the offset to start at does not exist
        raise CommandError(absent_offset_text(message, consumer))
    raise CommandError(f"topic {message.topic()!r}: {reason(error)}")


def absent_offset_text(message: Message, consumer: Consumer) -> str:
    topic, partition = cast("str", message.topic()), cast("int", message.partition())
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=OFFSETS_TIMEOUT_S)
    there = f"it has {start} … {end - 1}" if end > start else f"it is empty, and its next offset is {end}"
    return f"topic {topic!r}, partition {partition} has no offset {message.offset()}: {there}"


def next_messages(consumer: Consumer, timeout_s: float | None) -> list[Message]:
    """The messages that librdkafka has ready, else the next one after a wait, before which output is flushed."""
    messages = consumer.consume(MESSAGES_AT_ONCE, 0)
    if messages:
        return messages
    sys.stdout.flush()
    message = consumer.poll(POLL_S if timeout_s is None else min(POLL_S, timeout_s))
    return [] if message is None else [message]


def line_format(options: argparse.Namespace) -> Callable[[Message], bytes]:
    if options.json:
        return json_line
    fields: list[Callable[[Message], bytes]] = []
    if options.print_timestamp:
        fields.append(timestamp_text)
    if options.print_offset:
        fields.append(lambda message: f"Partition:{message.partition()}\tOffset:{message.offset()}".encode())
    if options.print_headers:
        fields.append(headers_text)
    if options.print_key:
        fields.append(lambda message: bytes_or_null(message.key()))
    fields.append(lambda message: bytes_or_null(message.value()))
    return lambda message: b"\t".join([field(message) for field in fields]) + b"\n"


def timestamp_text(message: Message) -> bytes:
    name, timestamp_ms = timestamp_of(message)
    return f"{name}:{timestamp_ms}".encode()


def timestamp_of(message: Message) -> tuple[str, int]:
    kind, timestamp_ms = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return "NoTimestamp", -1
    return ("LogAppendTime" if kind == TIMESTAMP_LOG_APPEND_TIME else "CreateTime"), timestamp_ms


def headers_text(message: Message) -> bytes:
    return b",".join(key.encode() + b":" + bytes_or_null(value) for key, value in headers_of(message)) or b"NO_HEADERS"


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def bytes_or_null(value: bytes | None) -> bytes:
    return b"null" if value is None else value


def json_line(message: Message) -> bytes:
    name, timestamp_ms = timestamp_of(message)
    fields = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms,
        "timestamp_type": name,
        "headers": [{"key": key, "value": json_bytes(value)} for key, value in headers_of(message)],
        "key": json_bytes(message.key()),
        "value": json_bytes(message.value()),
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Text if the bytes are UTF-8; other bytes cannot be a JSON string and are encoded as base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
