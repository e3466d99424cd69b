"""`barnabas produce TOPIC [FILE…]`: sends lines, JSON documents, rows of CSV, or whole records."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
import time
from typing import TYPE_CHECKING, BinaryIO

from confluent_kafka import KafkaException, Producer

from barnabas.cli.cluster_connection import UnknownTopicError, partition_count, require_partitions
from barnabas.cli.command_line import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CommandError,
    Parser,
    UsageError,
    add_bootstrap_server,
    non_negative_int,
    parse_pair,
    seconds,
)
from barnabas.cli.data.json_paths import PathError, parse_path
from barnabas.cli.data.sources import (
    ANY_PARTITION,
    CsvRecords,
    Lines,
    MalformedError,
    Record,
    as_typed,
    json_records,
    text_records,
    whole_records,
)
from barnabas.cli.output import counted, print_json_line
from barnabas.cli.progress_bar import byte_bar
from barnabas.cli.rdkafka import base_settings, reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confluent_kafka import KafkaError, Message

    from barnabas.cli.data.sources import Headers
    from barnabas.cli.progress_bar import Advance

STDIN = "-"
ERRORS_SHOWN_MAX = 3
MALFORMED_SHOWN_MAX = 10
QUEUE_FULL_WAIT_S = 0.1
FLUSH_GRACE_S = 5.0  # beyond the delivery timeout, after which librdkafka itself gives up on a record
REPORT_INTERVAL_S = 0.1
TOPIC_CREATION_MAX_MS = 5_000  # how long the first record may take to create the topic
LINES, JSON, CSV, RECORDS = "lines", "json", "csv", "records"
EPILOG = """examples:
  echo hello | barnabas produce greetings
  barnabas produce readings readings.csv --key-separator , --compression zstd
  barnabas produce readings readings.csv --format csv --key-field sensor --types
  barnabas produce orders monday.json tuesday.json --format json --key-field .customer.id
  barnabas consume orders --exit-at-end --json | barnabas produce copy --format records

--format says what is in a file: `lines`, each of which is a value; `json`, where each line is a JSON document; `csv`,
where each row becomes a JSON object by the names in the first one; or `records`, as `barnabas consume --json` writes
them, with keys, headers, partitions and times. The first line that is malformed ends it, after those before it have
been sent; with --skip-malformed it is named, and left out.
exit codes: 0 all was delivered, 1 it was not, or a line was malformed, 2 the command line is wrong, 130 ^C
"""


class Outcome:
    """What became of the records passed to librdkafka, which reports only those that were not delivered."""

    __slots__ = ("errors", "failed", "malformed", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.malformed = 0
        """Lines that were left out."""
        self.errors: list[str] = []

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        self.failed += 1
        if len(self.errors) < ERRORS_SHOWN_MAX:
            self.errors.append(f"topic {message.topic()!r}: {error.str()}")


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    check_format(options)
    outcome = Outcome()
    interrupted = False
    malformed: MalformedError | None = None
    with (
        contextlib.ExitStack() as opened,
        byte_bar("producing", sum_of_sizes(sources := open_sources(options.files, opened))) as advance,
    ):
        refuse_target(options)
        producer = Producer(producer_settings(options))
        try:
            send_all(producer, sources, options, outcome, advance)
        except KeyboardInterrupt:
            interrupted = True  # the usual end of a session at a terminal; what was typed is still sent
        except MalformedError as error:
            malformed = error
        except KafkaException as failure:
            require_target(options)
            raise CommandError(f"topic {options.topic!r}: {reason(failure)}") from None
        finally:
            unsent = producer.flush(options.timeout + FLUSH_GRACE_S)
    if outcome.failed or unsent:
        explain(outcome, options)
    code = report(outcome, unsent, options.topic)
    if malformed is not None:
        delivered = outcome.sent - outcome.failed - unsent
        print(f"barnabas: {malformed} ({delivered} before it delivered)", file=sys.stderr)
        outcome.malformed += 1
        code = EXIT_FAILED
    if options.json:
        print_json_line(facts(outcome, unsent, options.topic))
    if interrupted and code == EXIT_OK and not sys.stderr.isatty():
        print(f"barnabas: interrupted; {outcome.sent} records delivered to {options.topic!r}", file=sys.stderr)
    return EXIT_INTERRUPTED if interrupted else code


def build_parser() -> Parser:
    parser = Parser("barnabas produce", "Send lines of standard input or of files as records.", EPILOG)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("files", metavar="FILE", nargs="*", help="read this instead of standard input, which is -")
    add_bootstrap_server(parser)
    parser.add_argument("--format", choices=(LINES, JSON, CSV, RECORDS), default=LINES, help="(default lines)")
    parser.add_argument(
        "--key-field", metavar="NAME", help="what is the key: a column of CSV, or a path into JSON such as .user.id"
    )
    parser.add_argument("--columns", metavar="NAME,…", help="the columns of CSV without a heading")
    parser.add_argument("--delimiter", type=delimiter, default=",", metavar="C", help="between columns (default ,)")
    parser.add_argument(
        "--types", action="store_true", help="numbers, true, false and empty cells of CSV are such in JSON too"
    )
    parser.add_argument("--skip-malformed", action="store_true", help="go on behind malformed lines")
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
    parser.add_argument("--json", action="store_true", help="print how it went as JSON, in one line")
    return parser


def separator(text: str) -> bytes:
    """A separator, in which `\\t` stands for a tab."""
    if not text:
        raise argparse.ArgumentTypeError("the separator is empty")
    return text.replace("\\t", "\t").encode()


def delimiter(text: str) -> str:
    text = text.replace("\\t", "\t")
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(f"{text!r} is no single character")
    return text


def check_format(options: argparse.Namespace) -> None:
    """UsageError for options that mean nothing for this format."""
    belongs = {
        "--key-separator": (options.key_separator is not None, (LINES,)),
        "--key-field": (options.key_field is not None, (JSON, CSV)),
        "--columns": (options.columns is not None, (CSV,)),
        "--types": (options.types, (CSV,)),
    }
    for name, (is_given, formats) in belongs.items():
        if is_given and options.format not in formats:
            raise UsageError(f"{name} belongs to --format {' or '.join(formats)}, and not to {options.format}")
    if options.format == JSON and options.key_field is not None:
        try:
            parse_path(options.key_field)
        except PathError as error:
            raise UsageError(f"--key-field {error}") from None


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


def open_sources(paths: Sequence[str], opened: contextlib.ExitStack) -> list[tuple[str | None, BinaryIO]]:
    """All files, before anything of the first is sent; a name is what a person is told, None for standard input."""
    sources: list[tuple[str | None, BinaryIO]] = []
    for path in paths or [STDIN]:
        if path == STDIN:
            sources.append((None, sys.stdin.buffer))
        else:
            sources.append((path, opened.enter_context(open_source(path))))
    return sources


def open_source(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None


def sum_of_sizes(sources: Iterable[tuple[str | None, BinaryIO]]) -> int | None:
    """None where one of them is no file with an end."""
    sizes = [size_of(source) for _, source in sources]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def size_of(source: BinaryIO) -> int | None:
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def send_all(
    producer: Producer,
    sources: Iterable[tuple[str | None, BinaryIO]],
    options: argparse.Namespace,
    outcome: Outcome,
    advance: Advance,
) -> None:
    for name, source in sources:
        records = records_of(Lines(source, name), options, outcome)
        send_records(producer, records, options, outcome, advance, is_typed=source.isatty())


def records_of(lines: Lines, options: argparse.Namespace, outcome: Outcome) -> Iterable[Record]:
    def on_malformed(error: MalformedError) -> None:
        if not options.skip_malformed:
            raise error
        outcome.malformed += 1
        if outcome.malformed <= MALFORMED_SHOWN_MAX:
            print(f"barnabas: {error}; left out", file=sys.stderr)

    if options.format == JSON:
        return json_records(lines, on_malformed, None if options.key_field is None else parse_path(options.key_field))
    if options.format == RECORDS:
        return whole_records(lines, on_malformed)
    if options.format == CSV:
        return CsvRecords(
            lines,
            on_malformed,
            delimiter=options.delimiter,
            columns=None if options.columns is None else options.columns.split(","),
            key_column=options.key_field,
            convert=as_typed if options.types else str,
        )
    return text_records(lines, on_malformed, options.key_separator)


def send_records(
    producer: Producer,
    records: Iterable[Record],
    options: argparse.Namespace,
    outcome: Outcome,
    advance: Advance,
    *,
    is_typed: bool,
) -> None:
    headers: Headers = [(key, value.encode()) for key, value in options.header]
    unreported_bytes, reported_at = 0, time.monotonic()
    for record in records:
        send(producer, options, record, headers, outcome)
        outcome.sent += 1
        unreported_bytes += record.size_bytes
        if is_typed:
            producer.flush(options.timeout + FLUSH_GRACE_S)
        elif time.monotonic() - reported_at >= REPORT_INTERVAL_S:
            producer.poll(0)
            advance(unreported_bytes)
            unreported_bytes, reported_at = 0, time.monotonic()
    advance(unreported_bytes)


def send(producer: Producer, options: argparse.Namespace, record: Record, headers: Headers, outcome: Outcome) -> None:
    """Passes one record to librdkafka; waits while its queue is full."""
    partition = record.partition if options.partition == ANY_PARTITION else options.partition
    all_headers = headers if record.headers is None else [*record.headers, *headers]
    while True:
        try:
            producer.produce(
                options.topic,
                record.value,
                record.key,
                partition,
                outcome.on_delivery,
                timestamp=record.timestamp_ms,
                headers=all_headers,
            )
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
    if outcome.malformed:
        lines = counted(outcome.malformed, "malformed line")
        print(f"barnabas: {lines} left out; {outcome.sent} records delivered to {topic!r}", file=sys.stderr)
        return EXIT_FAILED
    if sys.stderr.isatty():
        print(f"{outcome.sent} records delivered to {topic!r}", file=sys.stderr)
    return EXIT_OK


def facts(outcome: Outcome, unsent: int, topic: str) -> dict[str, object]:
    failed = outcome.failed + unsent
    return {"topic": topic, "delivered": outcome.sent - failed, "failed": failed, "malformed": outcome.malformed}
