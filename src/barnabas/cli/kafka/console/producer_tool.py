"""kafka-console-producer: lines of text to a topic, typed or from a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.bootstrap_servers import check_form, check_names
from barnabas.cli.kafka.client_properties import merge_flag, merged_properties
from barnabas.cli.kafka.console.line_reader import CLASS_NAMES, INTERFACE, LineReader, ReaderError
from barnabas.cli.kafka.console.stop_signals import Stopped, raising_signals
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags, Given
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.rdkafka_properties import PRODUCER, value_of
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

SUMMARY: Final = "This tool helps to read data from standard input and publish it to Kafka."
PROMPT: Final = ">"
_READER_PROPERTIES: Final = (
    "A property of the reader, as key=value: parse.key, key.separator (a tab), parse.headers, headers.delimiter (a "
    "tab), headers.separator (a comma), headers.key.separator (a colon), ignore.error, null.marker."
)

FLAGS: Final = Flags(
    Flag(("topic",), "The topic to send to. Required.", "topic"),
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "server to connect to"),
    Flag(("sync",), "Wait for each record to arrive before the next one is sent."),
    Flag(
        ("compression-codec",),
        "none, gzip, snappy, lz4 or zstd; gzip if no name follows.",
        "compression-codec",
        is_optional=True,
    ),
    Flag(("batch-size",), "How many bytes make a batch full.", "size", default="16384"),
    Flag(("message-send-max-retries",), "How often a record is sent again that failed.", "Integer", default="3"),
    Flag(("retry-backoff-ms",), "How long to wait before that.", "Long", default="100"),
    Flag(("timeout",), "How long a record may wait for its batch to fill, in ms.", "timeout_ms", default="1000"),
    Flag(("request-required-acks",), "Who has to have a record: all, 0 or 1.", "request required acks", default="-1"),
    Flag(("request-timeout-ms",), "How long a request may take.", "request timeout ms", default="1500"),
    Flag(
        ("metadata-expiry-ms",),
        "After how long the cluster is asked again who leads.",
        "metadata expiration interval",
        default="300000",
    ),
    Flag(
        ("max-block-ms",), "How long a record may be held up before it is sent.", "max block on send", default="60000"
    ),
    Flag(
        ("max-memory-bytes",),
        "How many bytes of records may wait to be sent.",
        "total memory in bytes",
        default="33554432",
    ),
    Flag(
        ("max-partition-memory-bytes",),
        "(Deprecated) Use --batch-size instead.",
        "memory in bytes per partition",
        default="16384",
    ),
    Flag(
        ("line-reader",),
        "The class that makes records of lines.",
        "reader_class",
        default="org.apache.kafka.tools.LineMessageReader",
    ),
    Flag(("socket-buffer-size",), "How many bytes the socket's buffer has.", "size", default="102400"),
    Flag(("reader-property",), _READER_PROPERTIES, "prop"),
    Flag(("reader-config",), "A file with properties of the reader.", "config file"),
    Flag(("property",), "(Deprecated) Use --reader-property instead.", "prop"),
    Flag(("command-property",), "A property of the producer, as key=value.", "producer_prop"),
    Flag(("command-config",), "A file with properties of the producer.", "config file"),
    Flag(("producer-property",), "(Deprecated) Use --command-property instead.", "producer_prop"),
    Flag(("producer.config",), "(Deprecated) Use --command-config instead.", "config file"),
    HELP,
    VERSION,
)
_EXCLUSIVE: Final = (
    ("command-config", "producer.config"),
    ("command-property", "producer-property"),
    ("reader-property", "property"),
)
_DEPRECATED: Final = (
    ("producer-property", "a future version", "command-property"),
    ("producer.config", "a future version", "command-config"),
    ("property", "a future version", "reader-property"),
    ("max-partition-memory-bytes", "Apache Kafka 5.0", "batch-size"),
)
_WITHOUT_EFFECT: Final = frozenset({"new-producer"})
_BY_FLAG: Final = (
    ("linger.ms", "timeout"),
    ("acks", "request-required-acks"),
    ("request.timeout.ms", "request-timeout-ms"),
    ("retries", "message-send-max-retries"),
    ("retry.backoff.ms", "retry-backoff-ms"),
    ("send.buffer.bytes", "socket-buffer-size"),
    ("buffer.memory", "max-memory-bytes"),
    ("batch.size", "batch-size"),
    ("batch.size", "max-partition-memory-bytes"),
    ("metadata.max.age.ms", "metadata-expiry-ms"),
    ("max.block.ms", "max-block-ms"),
)
"""Properties with a flag of their own; of two, the later one counts."""
_IDEMPOTENCE: Final = "enable.idempotence"


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words, BROKER_LIST, _WITHOUT_EFFECT))
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    _check(given)
    reader = _reader(given)
    properties = producer_properties(given)
    check_names(properties["bootstrap.servers"], "kafka producer")
    topic = given.required("topic")
    try:
        with raising_signals():
            _produce(topic, reader, properties, is_sync=given.has("sync"))
    except Stopped as stopped:
        return stopped.exit_code
    return EXIT_OK


def _check(given: Given) -> None:
    FLAGS.check_required(given, "topic")
    for flag, other in _EXCLUSIVE:
        if given.has(flag) and given.has(other):
            raise ToolUsageError(f"Options --{flag} and --{other} cannot be specified together.")
    for flag, end, successor in _DEPRECATED:
        if given.has(flag):
            print(f"Warning: --{flag} is deprecated and will be removed in {end}. Use --{successor} instead.")
    check_form(given.text("bootstrap-server"))


def _reader(given: Given) -> LineReader:
    name = given.required("line-reader")
    if name.replace("\\$", "$") not in CLASS_NAMES:
        if name.startswith("java."):
            raise ToolError(f"java.lang.IllegalArgumentException: The reader must implement {INTERFACE} interface")
        raise ToolError(f"java.lang.ClassNotFoundException: {name}")
    properties = merged_properties(given, ("reader-config",), ("reader-property", "property"))
    try:
        return LineReader(properties)
    except ReaderError as error:
        raise ToolError(str(error)) from None


def producer_properties(given: Given) -> dict[str, str]:
    """The producer's properties, by all the ways in which they may be given."""
    properties = merged_properties(
        given, ("command-config", "producer.config"), ("command-property", "producer-property")
    )
    properties["bootstrap.servers"] = given.required("bootstrap-server")
    properties["compression.type"] = _codec(given)
    properties.setdefault("client.id", "console-producer")
    for name, flag in _BY_FLAG:
        _check_number(given, flag, name)
        merge_flag(properties, name, given, flag)
    for name, text in properties.items():
        if name in PRODUCER:
            value_of(name, text, PRODUCER[name])
    _check_combinations(properties)
    return properties


def _check_number(given: Given, flag: str, name: str) -> None:
    if name != "acks":
        given.long(flag) if PRODUCER[name].kind == "LONG" else given.integer(flag)


def _codec(given: Given) -> str:
    if not given.has("compression-codec"):
        return "none"
    return given.text("compression-codec") or "gzip"


def _check_combinations(properties: Mapping[str, str]) -> None:
    is_wanted = properties.get(_IDEMPOTENCE, "").strip().lower() == "true"
    if is_wanted and properties["acks"] not in ("all", "-1"):
        raise ToolError(
            "org.apache.kafka.common.config.ConfigException: Must set acks to all in order to use the idempotent "
            "producer. Otherwise we cannot guarantee idempotence."
        )
    if is_wanted and properties["retries"] == "0":
        raise ToolError(
            "org.apache.kafka.common.config.ConfigException: Must set retries to non-zero when using the idempotent "
            "producer."
        )
    if "transactional.id" in properties:
        raise ToolError(
            "java.lang.IllegalStateException: Cannot add partition to transaction before completing a call to "
            "initTransactions",
            hint="this tool writes no transactions: leave transactional.id out",
        )


def _produce(topic: str, reader: LineReader, properties: Mapping[str, str], *, is_sync: bool) -> None:
    from barnabas.cli.kafka.console.sending import Sender, SendError

    sender = Sender(topic, properties)
    try:
        for record in reader.records(lines(sys.stdin)):
            if is_sync:
                sender.send_and_wait(record)
            else:
                sender.send(record)
    except ReaderError as error:
        raise ToolError(str(error)) from None
    except SendError as error:
        raise ToolError(f"java.util.concurrent.ExecutionException: {error}") from None
    finally:
        sender.flush()


def lines(source: TextIO) -> Iterator[str]:
    """The lines of standard input, without their ends. Somebody who types them at a terminal is prompted for each."""
    # As Java reads them: in UTF-8, whatever the terminal speaks, and with any of the three ends of lines.
    with open(source.fileno(), encoding="utf-8", errors="replace", newline=None, closefd=False) as text:
        is_prompted = source.isatty() and sys.stdout.isatty()
        while True:
            if is_prompted:
                print(PROMPT, end="", flush=True)
            line = text.readline()
            if not line:
                return
            yield line.removesuffix("\n")
