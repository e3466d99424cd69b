"""`barnabas consume TOPIC`: prints the records of a topic, all of them or those that are wanted.

Partitions are assigned manually, without a consumer group: looking at a topic leaves no trace in the cluster.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, cast

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from barnabas.cli.cluster_connection import partition_count, require_partitions
from barnabas.cli.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    CommandError,
    Parser,
    UsageError,
    add_bootstrap_server,
    non_negative_int,
    positive_int,
    seconds,
)
from barnabas.cli.data.filters import add_filters, filter_of
from barnabas.cli.data.positions import Position, parse_position, spans
from barnabas.cli.data.record_forms import OUTPUTS, TEXT, form_of, heading_of
from barnabas.cli.output import flush_to_reader
from barnabas.cli.progress_bar import search_bar
from barnabas.cli.rdkafka import base_settings, reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

    from barnabas.cli.data.positions import Span

OFFSETS_TIMEOUT_S = 10.0
POLL_S = 0.5
MESSAGES_AT_ONCE = 1_000
EPILOG = """examples:
  barnabas consume greetings --exit-at-end
  barnabas consume readings --from 2026-01-31T12:00:00Z --print-key --print-timestamp
  barnabas consume readings --partition 0 --from -10 --json
  barnabas consume readings --follow --output table
  barnabas consume orders --from -10m --search 'alice|bob'
  barnabas consume orders --where .customer.city=Prague --where 'total>=100' --exit-at-end

--from takes `beginning` (default), `end`, an offset, -N for the last N records of each partition, or a time: ISO 8601
(local time if there is no time zone), -10m for ten minutes ago (ms, s, m, h, d, w), or @ followed by milliseconds since
1970. --to takes the same. --after and --before take a time.

Reading goes on for ever, unless there is an end: --exit-at-end and --search stop where the topic ends now, --to at
another place. Then a bar shows how far it is. --follow starts at the end, and goes on.

--where takes a path into JSON, as .user.tags[0], items[*].name or ["odd name"], and what is to be there: nothing more,
=VALUE, !=VALUE, <, <=, >, >= or ~REGEX.
exit codes: 0 it was printed, 1 it failed or there were fewer than --max-messages, 2 the command line is wrong, 130 ^C
"""


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    start, end = limits_of(options)
    partitions = choose_partitions(options)
    parts = spans(options.bootstrap_server, options.topic, partitions, start, end)
    consumer = Consumer(consumer_settings(options.bootstrap_server))
    try:
        consumer.assign(
            [TopicPartition(options.topic, each, span.start) for each, span in parts.items() if not span.is_empty]
        )
        count = print_records(consumer, parts, options)
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
    parser.add_argument("--from", dest="start", type=parse_position, metavar="WHERE", help="where to begin; see below")
    parser.add_argument("--to", dest="end", type=parse_position, metavar="WHERE", help="where to stop; see below")
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
    parser.add_argument("--follow", "-f", action="store_true", help="start at the end, and go on")
    add_filters(parser)
    parser.add_argument("--output", choices=OUTPUTS, default=TEXT, help="(default text)")
    parser.add_argument("--json", action="store_true", help="one JSON object per record; the same as --output json")
    parser.add_argument("--print-key", action="store_true")
    parser.add_argument("--print-headers", action="store_true")
    parser.add_argument("--print-timestamp", action="store_true")
    parser.add_argument("--print-offset", action="store_true", help="also prints the partition")
    return parser


def limits_of(options: argparse.Namespace) -> tuple[Position, Position | None]:
    """Where to begin, and where to stop, if anywhere."""
    if options.follow and (options.exit_at_end or options.end is not None):
        raise UsageError("--follow goes on, and --exit-at-end and --to stop: use one of them")
    start = options.start or Position(OFFSET_END if options.follow else OFFSET_BEGINNING)
    if options.end is not None:
        return start, options.end
    is_bounded = options.exit_at_end or (options.search is not None and not options.follow)
    return start, Position(OFFSET_END) if is_bounded else None


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


def print_records(consumer: Consumer, parts: dict[int, Span], options: argparse.Namespace) -> int:
    """Prints records until one of the stop conditions is met; returns how many were printed."""
    form, is_wanted = form_of(options), filter_of(options)
    count = 0
    total = sum(max(0, span.end - span.first) for span in parts.values() if span.end is not None)
    is_bounded = any(span.end is not None for span in parts.values())
    with search_bar(options.topic, total if is_bounded else None) as bar:
        bar.write(heading_of(options))
        for batch in batches(Reading(consumer, parts), options):
            wanted = batch if is_wanted is None else [message for message in batch if is_wanted(message)]
            if options.max_messages is not None:
                wanted = wanted[: options.max_messages - count]
            if wanted:
                bar.write(b"".join([form(message) for message in wanted]))
            count += len(wanted)
            bar.advance(len(batch), len(wanted))
            if count == options.max_messages:
                break
    return count


class Reading:
    """The partitions that are being read, and which of them have not come to their end yet."""

    def __init__(self, consumer: Consumer, parts: dict[int, Span]) -> None:
        self.consumer = consumer
        self._ends = {each: span.end for each, span in parts.items()}
        self.unfinished = {each for each, span in parts.items() if not span.is_empty}

    @property
    def is_over(self) -> bool:
        return not self.unfinished

    def records_in(self, messages: Sequence[Message]) -> list[Message]:
        """Those messages that are records of what is to be read."""
        return [message for message in messages if not self._is_partition_end(message) and self._is_before_end(message)]

    def _is_before_end(self, message: Message) -> bool:
        """Whether a record is still part of what is read. The last one finishes its partition."""
        partition, offset = cast("int", message.partition()), cast("int", message.offset())
        end = self._ends[partition]
        if end is None:
            return True
        if offset + 1 >= end and partition in self.unfinished:
            self.unfinished.discard(partition)
            self.consumer.pause([TopicPartition(cast("str", message.topic()), partition)])
        return offset < end

    def _is_partition_end(self, message: Message) -> bool:
        """Whether a message only says that its partition has been read to the end: no more is to come of what was
        there when reading began."""
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            if self._ends[cast("int", message.partition())] is not None:
                self.unfinished.discard(cast("int", message.partition()))
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - the offset to start at does not exist
            raise CommandError(absent_offset_text(message, self.consumer))
        raise CommandError(f"topic {message.topic()!r}: {reason(error)}")


def batches(reading: Reading, options: argparse.Namespace) -> Iterator[list[Message]]:
    """Records as they arrive, until none arrives for the given time or all that was to be read has been."""
    last_seen = time.monotonic()
    while not reading.is_over:
        records = reading.records_in(next_messages(reading, options.timeout))
        if records:
            last_seen = time.monotonic()
            yield records
        elif options.timeout is not None and time.monotonic() - last_seen >= options.timeout:
            return


def absent_offset_text(message: Message, consumer: Consumer) -> str:
    topic, partition = cast("str", message.topic()), cast("int", message.partition())
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=OFFSETS_TIMEOUT_S)
    there = f"it has {start} … {end - 1}" if end > start else f"it is empty, and its next offset is {end}"
    return f"topic {topic!r}, partition {partition} has no offset {message.offset()}: {there}"


def next_messages(reading: Reading, timeout_s: float | None) -> list[Message]:
    """The messages that librdkafka has ready, else the next one after a wait, before which output is flushed."""
    messages = reading.consumer.consume(MESSAGES_AT_ONCE, 0)
    if messages:
        return messages
    flush_to_reader()
    message = reading.consumer.poll(POLL_S if timeout_s is None else min(POLL_S, timeout_s))
    return [] if message is None else [message]
