"""kafka-console-consumer: the records of topics on standard output."""

from __future__ import annotations

import random
import sys
import time
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK, drop_output
from barnabas.cli.kafka.bootstrap_servers import check_names
from barnabas.cli.kafka.client_properties import merge_flag, merged_properties
from barnabas.cli.kafka.console.formatters import DEFAULT, FormatError, UnknownFormatterError, formatter
from barnabas.cli.kafka.console.stop_signals import noticing_signals
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags, Given, read_long
from barnabas.cli.kafka.java.java_log import log_error
from barnabas.cli.kafka.java.java_regex import RegexError, compile_regex
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import EXIT_FAILED, ToolError, ToolUsageError, print_help, print_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.kafka.console.formatters import Consumed
    from barnabas.cli.kafka.console.reading import Reader
    from barnabas.cli.kafka.console.stop_signals import StopRequest

    Write = Callable[[Consumed, bytearray], None]

SUMMARY: Final = "This tool helps to read data from Kafka topics and outputs it to standard output."
LOGGER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
KIP_848: Final = (
    "The consumer rebalance protocol (KIP-848) is production-ready! Set group.protocol=consumer to try it out. See "
    "https://kafka.apache.org/documentation/#consumer_rebalance_protocol"
)
UNLIMITED: Final = -1
_POLL_S: Final = 0.1
"""How long somebody's ^C may have to wait."""
_RANDOM_GROUPS: Final = 100_000
_BOOLEAN_NO: Final = "false"
_FORMATTER_PROPERTIES: Final = (
    "A property of the formatter, as key=value: print.timestamp, print.key, print.offset, print.epoch, "
    "print.partition, print.headers, print.value (true or false), key.separator, line.separator, headers.separator, "
    "null.literal, key.deserializer, value.deserializer, headers.deserializer, and what the deserializers take, with "
    "these names in front."
)

FLAGS: Final = Flags(
    Flag(("topic",), "The topic to read.", "topic"),
    Flag(("include",), "A regular expression for the topics to read.", "Java regex (String)"),
    Flag(("partition",), "The partition to read: from its end, if --offset says nothing else.", "partition"),
    Flag(
        ("offset",),
        "Where to begin in the partition: a number, 'earliest' or 'latest'.",
        "consume offset",
        default="latest",
    ),
    Flag(("consumer-property",), "(Deprecated) Use --command-property instead.", "consumer_prop"),
    Flag(("command-property",), "A property of the consumer, as key=value.", "consumer_prop"),
    Flag(("consumer.config",), "(Deprecated) Use --command-config instead.", "config file"),
    Flag(("command-config",), "A file with properties of the consumer.", "config file"),
    Flag(("formatter",), "The class that prints records.", "class", default=DEFAULT),
    Flag(("property",), "(Deprecated) Use --formatter-property instead.", "prop"),
    Flag(("formatter-property",), _FORMATTER_PROPERTIES, "prop"),
    Flag(("formatter-config",), "A file with properties of the formatter.", "config file"),
    Flag(("from-beginning",), "Begin with the first record, where the group has not come further yet."),
    Flag(("max-messages",), "Stop after so many records.", "num_messages"),
    Flag(("timeout-ms",), "Stop when no record has come for so long.", "timeout_ms"),
    Flag(("skip-message-on-error",), "Go on after a record that cannot be shown."),
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "server to connect to"),
    Flag(("key-deserializer",), "The class that reads keys.", "deserializer for keys"),
    Flag(("value-deserializer",), "The class that reads values.", "deserializer for values"),
    Flag(("enable-systest-events",), "Print when the tool ends (for tests of the system)."),
    Flag(
        ("isolation-level",),
        "read_committed leaves out what belongs to transactions that are open or aborted.",
        "String",
        default="read_uncommitted",
    ),
    Flag(("group",), "The group to read as a member of.", "consumer group id"),
    HELP,
    VERSION,
)
_EXCLUSIVE: Final = (("consumer-property", "command-property"), ("consumer.config", "command-config"))
_OLDER: Final = {**BROKER_LIST, "whitelist": "include"}
_WITHOUT_EFFECT: Final = frozenset({"new-consumer"})


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words, _OLDER, _WITHOUT_EFFECT))
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    _check(given)
    properties, has_group = consumer_properties(given)
    offset = _offset(given)
    timeout_ms = given.long("timeout-ms")
    write = _formatter(given)
    with noticing_signals() as stop:
        consuming = _Consuming(write, given.integer("max-messages"), timeout_ms, given.has("skip-message-on-error"))
        reader = _reader(given, properties, offset, has_group)
        return consuming.run(reader, stop, says_when_done=given.has("enable-systest-events"))


def _check(given: Given) -> None:
    if given.has("topic") == given.has("include"):
        raise ToolUsageError("Exactly one of the following arguments is required: [topic], [include]")
    if given.integer("partition") is not None:
        if not given.has("topic"):
            raise ToolUsageError("The topic is required when partition is specified.")
        if given.has("from-beginning") and given.has("offset"):
            raise ToolUsageError("Options from-beginning and offset cannot be specified together.")
    elif given.has("offset"):
        raise ToolUsageError("The partition is required when offset is specified.")
    FLAGS.check_required(given, "bootstrap-server")
    for flag, successor in _EXCLUSIVE:
        if given.has(flag) and given.has(successor):
            raise ToolUsageError(f"Options --{flag} and --{successor} cannot be specified together.")
    for flag, successor in _EXCLUSIVE:
        if given.has(flag):
            _print_deprecated(flag, successor)


def _print_deprecated(flag: str, successor: str) -> None:
    print(f"Option --{flag} is deprecated and will be removed in a future version. Use --{successor} instead.")


def consumer_properties(given: Given) -> tuple[dict[str, str], bool]:
    """The consumer's properties, by all the ways in which they may be given, and whether it is to join a group."""
    properties = merged_properties(given, ("consumer.config", "command-config"), ())
    in_file = properties.get("group.id")
    words = merged_properties(given, (), ("consumer-property", "command-property"))
    properties |= words
    groups = {each for each in (given.text("group"), in_file, words.get("group.id")) if each is not None}
    if len(groups) > 1:
        from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash

        named = ", ".join(f"'{group}'" for group in in_hash_order(sorted(groups), string_hash))
        raise ToolUsageError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer.config') do not match. Detected group ids: {named}"
        )
    if groups and given.has("partition"):
        raise ToolUsageError("Options group and partition cannot be specified together.")
    _set_reset(properties, given)
    properties["bootstrap.servers"] = given.required("bootstrap-server")
    properties.setdefault("client.id", "console-consumer")
    merge_flag(properties, "isolation.level", given, "isolation-level")
    if groups:
        properties["group.id"] = groups.pop()
        return properties, True
    properties["group.id"] = f"console-consumer-{random.randrange(_RANDOM_GROUPS)}"
    properties.setdefault("enable.auto.commit", _BOOLEAN_NO)
    # Whoever asks for commits asks for a group, even one without a name of its own.
    return properties, properties["enable.auto.commit"].strip().lower() != _BOOLEAN_NO


def _set_reset(properties: dict[str, str], given: Given) -> None:
    name = "auto.offset.reset"
    wanted = "earliest" if given.has("from-beginning") else "latest"
    if properties.setdefault(name, wanted) != wanted and given.has("from-beginning"):
        raise ToolError(
            f"Can't simultaneously specify --from-beginning and '{name}={properties[name]}', please remove one option"
        )


def _offset(given: Given) -> int | str:
    """Where a partition is begun: an offset, or `earliest` or `latest`."""
    text = given.required("offset")
    if not given.has("offset") and given.has("from-beginning"):
        return "earliest"
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    try:
        offset = read_long(text)
    except ValueError:
        offset = -1
    if offset < 0:
        raise ToolUsageError(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return offset


def _formatter(given: Given) -> Write:
    name = given.required("formatter")
    if given.has("property") and given.has("formatter-property"):
        raise ToolUsageError("Options --property and --formatter-property cannot be specified together.")
    if given.has("property"):
        _print_deprecated("property", "formatter-property")
    properties = merged_properties(given, ("formatter-config",), ())
    for flag in ("key-deserializer", "value-deserializer"):
        if class_name := given.text(flag):
            properties[flag.replace("-", ".")] = class_name
    properties |= merged_properties(given, (), ("formatter-property", "property"))
    try:
        return formatter(name, properties)
    except UnknownFormatterError as error:
        raise ToolUsageError(str(error)) from None


def _reader(given: Given, properties: dict[str, str], offset: int | str, has_group: bool) -> Reader:
    from barnabas.cli.kafka.console import reading

    check_names(properties["bootstrap.servers"], "kafka consumer")
    partition = given.integer("partition")
    client = reading.Client(properties)
    if partition is None and properties.get("group.protocol", "classic").lower() == "classic":
        print(KIP_848, file=sys.stderr)
    name, include = given.text("topic"), given.text("include")
    if partition is not None:
        assert name is not None
        return reading.PartitionReader(client, name, partition, reading.logical_offset(offset))
    if name is not None and not name.strip():
        raise ToolError(
            "java.lang.IllegalArgumentException: Topic collection to subscribe to cannot contain null or empty topic"
        )
    try:
        pattern = None if include is None else compile_regex(include)
    except RegexError as error:
        raise ToolError(f"java.util.regex.PatternSyntaxException: {error}") from None
    has_internal = properties.get("exclude.internal.topics", "").strip().lower() == _BOOLEAN_NO
    topics = reading.Topics(name, pattern, has_internal)
    return reading.GroupReader(client, topics) if has_group else reading.TopicReader(client, topics)


class _Consuming:
    """The loop of the tool: records as they come, until enough of them, nothing for too long, or somebody's ^C."""

    def __init__(
        self,
        write: Write,
        messages_max: int | None,
        timeout_ms: int | None,
        skips_errors: bool,
    ) -> None:
        self._write = write
        self._messages_max = UNLIMITED if messages_max is None else messages_max
        self._timeout_s = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
        self._skips_errors = skips_errors
        self._count = 0

    def run(self, reader: Reader, stop: StopRequest, *, says_when_done: bool) -> int:
        failure = None
        try:
            self._print_all(reader, stop)
        except FormatError as error:
            failure = str(error)
        finally:
            reader.close()
            print(f"Processed a total of {self._count} messages", file=sys.stderr)
        if failure is not None:
            log_error("Unknown error when running consumer: ", LOGGER, failure)
        if says_when_done:
            print("shutdown_complete")
        if failure is not None:
            return EXIT_FAILED
        return EXIT_OK if stop.exit_code is None else stop.exit_code

    def _print_all(self, reader: Reader, stop: StopRequest) -> None:
        from barnabas.cli.kafka.console.reading import ReadError

        last_s = time.monotonic()
        while self._wants_more() and stop.signal is None:
            try:
                messages = reader.records(self._wait_s(last_s))
                if not messages and self._timeout_s is not None and time.monotonic() - last_s > self._timeout_s:
                    raise ReadError("org.apache.kafka.common.errors.TimeoutException")
            except ReadError as error:
                log_error("Error processing message, terminating consumer process: ", LOGGER, str(error))
                return
            if not messages:
                continue
            wanted = messages if self._messages_max == UNLIMITED else messages[: self._messages_max - self._count]
            if not self._print(wanted):
                return
            reader.printed(wanted)
            last_s = time.monotonic()

    def _wants_more(self) -> bool:
        return self._messages_max == UNLIMITED or self._count < self._messages_max

    def _wait_s(self, last_s: float) -> float:
        if self._timeout_s is None:
            return _POLL_S
        return max(min(_POLL_S, last_s + self._timeout_s - time.monotonic()), 0)

    def _print(self, messages: Sequence[Consumed]) -> bool:
        """Whether somebody still reads what is printed."""
        out = bytearray()
        try:
            for message in messages:
                self._count += 1
                try:
                    self._write(message, out)
                except FormatError as error:
                    if not self._skips_errors:
                        raise
                    log_error("Error processing message, skipping this message: ", LOGGER, str(error))
        finally:
            is_read = self._put(out)
        return is_read

    def _put(self, out: bytearray) -> bool:
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(out)
            sys.stdout.buffer.flush()
        except OSError:
            drop_output()
            print("Unable to write to standard out, closing consumer.", file=sys.stderr)
            return False
        return True
