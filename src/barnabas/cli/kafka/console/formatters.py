"""What the console consumer prints of a record: Kafka's formatters under their names of today and of older versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.cli.kafka.console import coordinator_records
from barnabas.cli.kafka.console.deserializers import DeserializationError, NoDeserializerError, deserializer
from barnabas.cli.kafka.java.java_log import log_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Column = Callable[["Consumed", bytearray], None]
    Write = Callable[["Consumed", bytearray], None]

DEFAULT: Final = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_LOGGER: Final = DEFAULT
_TRUE: Final = "true"
_LOG_APPEND_TIME: Final = 2
_NO_TIMESTAMP: Final = 0
"""As librdkafka numbers the kinds of times."""

_COLUMNS: Final = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
"""In the order in which they are printed."""


class Consumed(Protocol):
    """What a formatter looks at: librdkafka's messages have it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Any: ...  # pairs of a name with bytes or None, where there are any


class FormatError(Exception):
    """A record that cannot be shown, as Java prints the exception. What was written before that stays."""


class UnknownFormatterError(Exception):
    """No such formatter; what is said of it is the name."""


def formatter(class_name: str, properties: Mapping[str, str]) -> Write:
    """What writes a record behind what is already to be printed."""
    name = class_name.replace("\\$", "$")  # as quotes of a shell leave it
    make = _BY_NAME.get(name)
    if make is None:
        raise UnknownFormatterError(class_name)
    return make(properties)


class DefaultFormatter:
    """The columns that are asked for, one behind the other."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._null = properties.get("null.literal", "null").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._read_header = self._deserializer(properties, "headers")
        self._read_key = self._deserializer(properties, "key")
        self._read_value = self._deserializer(properties, "value")
        between = properties.get("key.separator", "\t").encode()
        end = properties.get("line.separator", "\n").encode()
        shown = [name for name in _COLUMNS if _is_shown(properties, name)]
        columns: dict[str, Column] = {
            "timestamp": _timestamp,
            "partition": lambda record, out: out.extend(b"Partition:%d" % (record.partition() or 0)),
            "offset": lambda record, out: out.extend(b"Offset:%d" % (record.offset() or 0)),
            # Kafka's tool has neither at this place.
            "delivery": _always(b"Delivery:NOT_PRESENT"),
            "epoch": _always(b"Epoch:NOT_PRESENT"),
            "headers": self._headers,
            "key": lambda record, out: out.extend(self._read(self._read_key, record.key())),
            "value": lambda record, out: out.extend(self._read(self._read_value, record.value())),
        }
        self._columns = [(columns[name], end if name == shown[-1] else between) for name in shown]

    def __call__(self, record: Consumed, out: bytearray) -> None:
        try:
            for write, separator in self._columns:
                write(record, out)
                out += separator
        except DeserializationError as error:
            raise FormatError(str(error)) from None

    def _headers(self, record: Consumed, out: bytearray) -> None:
        headers = record.headers()
        if not headers:
            out += b"NO_HEADERS"
            return
        separator = b""
        for name, value in headers:
            out += separator + name.encode() + b":"
            out += self._read(self._read_header, value)
            separator = self._headers_separator

    def _read(self, read: Callable[[bytes], bytes] | None, data: bytes | None) -> bytes:
        shown = self._null if data is None else data
        return shown if read is None else read(shown)

    @staticmethod
    def _deserializer(properties: Mapping[str, str], kind: str) -> Callable[[bytes], bytes] | None:
        name = f"{kind}.deserializer"
        if name not in properties:
            return None
        own = {key.removeprefix(f"{name}."): value for key, value in properties.items() if key.startswith(f"{name}.")}
        try:
            return deserializer(properties[name], own, "key" if kind == "key" else "value")
        except NoDeserializerError as error:
            log_error(f"Unable to instantiate a deserializer from {properties[name]}", _LOGGER, str(error))
            return None


def _is_shown(properties: Mapping[str, str], name: str) -> bool:
    default = _TRUE if name == "value" else ""
    return properties.get(f"print.{name}", default).strip().lower() == _TRUE


def _timestamp(record: Consumed, out: bytearray) -> None:
    kind, timestamp_ms = record.timestamp()
    if kind == _NO_TIMESTAMP:
        out += b"NO_TIMESTAMP"
    else:
        out += b"%s:%d" % (b"LogAppendTime" if kind == _LOG_APPEND_TIME else b"CreateTime", timestamp_ms)


def _nothing(properties: Mapping[str, str]) -> Write:  # noqa: ARG001 - as all that make one
    return _always(b"")


def _always(text: bytes) -> Write:
    return lambda record, out: out.extend(text)  # noqa: ARG005 - whatever the record


def _of_coordinator(kinds: Callable[[], coordinator_records.Kinds]) -> Callable[[Mapping[str, str]], Write]:
    def write(record: Consumed, out: bytearray) -> None:
        key = record.key()
        if key is None:
            return
        try:
            out += coordinator_records.json_of(key, record.value(), kinds)
        except coordinator_records.UnreadableError as error:
            raise FormatError(
                f"java.lang.RuntimeException: Could not read record at offset {record.offset()} due to: {error}"
            ) from None

    return lambda properties: write  # noqa: ARG005 - as all that make one


_OFFSETS: Final = _of_coordinator(coordinator_records.offsets)
_GROUPS: Final = _of_coordinator(coordinator_records.classic_groups)
_SHARE_GROUPS: Final = _of_coordinator(coordinator_records.share_groups)
_TRANSACTIONS: Final = _of_coordinator(coordinator_records.transactions)

_BY_NAME: Final[dict[str, Callable[[Mapping[str, str]], Write]]] = {
    DEFAULT: DefaultFormatter,
    # What the second one logs besides is below the level at which Kafka's tools log.
    "org.apache.kafka.tools.consumer.LoggingMessageFormatter": DefaultFormatter,
    "org.apache.kafka.tools.consumer.NoOpMessageFormatter": _nothing,
    "org.apache.kafka.tools.consumer.OffsetsMessageFormatter": _OFFSETS,
    "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter": _GROUPS,
    "org.apache.kafka.tools.consumer.ShareGroupMessageFormatter": _SHARE_GROUPS,
    "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter": _TRANSACTIONS,
    # As they were called before Kafka 4.
    "kafka.tools.DefaultMessageFormatter": DefaultFormatter,
    "kafka.tools.LoggingMessageFormatter": DefaultFormatter,
    "kafka.tools.NoOpMessageFormatter": _nothing,
    "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter": _OFFSETS,
    "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter": _GROUPS,
    "kafka.coordinator.GroupMetadataManager$OffsetsMessageFormatter": _OFFSETS,
    "kafka.coordinator.GroupMetadataManager$GroupMetadataMessageFormatter": _GROUPS,
    "kafka.server.OffsetManager$OffsetsMessageFormatter": _OFFSETS,
    "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter": _TRANSACTIONS,
}
