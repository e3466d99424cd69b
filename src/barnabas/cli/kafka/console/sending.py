"""Records to one topic by librdkafka, with what Java's producer says about those that do not arrive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.cli.kafka.java.java_log import METADATA, NETWORK_CLIENT, log_error, log_warning
from barnabas.cli.kafka.rdkafka_events import reporter
from barnabas.cli.kafka.rdkafka_properties import PRODUCER, rdkafka_settings
from barnabas.cli.kafka.tool import ToolError
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error
from barnabas.protocol.varint import varint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Message

    from barnabas.cli.kafka.console.line_reader import NewRecord

_LOGGER: Final = "org.apache.kafka.clients.producer.internals.ErrorLoggingCallback"
_ERRORS: Final = "org.apache.kafka.common.errors"
_NODE_WAIT_S: Final = 0.5
"""How long a question for metadata may take before somebody's ^C is looked at."""
_METADATA_PAUSE_S: Final = 0.1
_QUEUE_PAUSE_S: Final = 0.1
_FLUSH_PAUSE_S: Final = 0.5
_POLL_EVERY: Final = 1_000
_BATCH_HEADER_BYTES: Final = 61
_RECORD_HEADER_BYTES_MAX: Final = 21
_RECORD_BYTES_SLACK: Final = 1 << 20
_RECORD_BYTES_END: Final = 1_000_000_000
_KIB: Final = 1_024
_QUEUE_KIB_MAX: Final = 2_147_483_647
_QUEUE_RECORDS_MAX: Final = 0
"""Bytes are limited, and not their number, as in Java's client."""


class SendError(Exception):
    """A record that was not accepted, as Java prints the exception."""


class Sender:
    """A producer for one topic."""

    def __init__(self, topic: str, properties: Mapping[str, str]) -> None:
        self._topic = topic
        self._client = f"Producer clientId={properties['client.id']}"
        self._max_block_ms = int(properties["max.block.ms"])
        self._max_request_bytes = int(properties.get("max.request.size", 1 << 20))
        self._delivery_timeout_ms = properties.get("delivery.timeout.ms", "120000")
        settings = rdkafka_settings(properties, PRODUCER) | {
            "error_cb": reporter(self._client),
            "message.max.bytes": min(max(self._max_request_bytes, _KIB) + _RECORD_BYTES_SLACK, _RECORD_BYTES_END),
            "partitioner": "murmur2_random",  # as Java's: a key goes where its producer sends it
            "queue.buffering.max.kbytes": min(max(int(properties["buffer.memory"]) // _KIB, 1), _QUEUE_KIB_MAX),
            "queue.buffering.max.messages": _QUEUE_RECORDS_MAX,
        }
        settings.setdefault("enable.idempotence", _is_idempotent(properties))
        self._producer = _producer(settings)
        self._is_known = False
        self._has_warned = False
        self._sent = 0

    def send(self, record: NewRecord) -> None:
        """Hand a record over. What becomes of it is logged where that is a failure."""
        try:
            self._enqueue(record, self._log_failure)
        except SendError as error:
            self._log(record.key, record.value, str(error))
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)

    def send_and_wait(self, record: NewRecord) -> None:
        """The same, done when the cluster has it; SendError if it has not."""
        outcomes: list[KafkaError | None] = []
        where: list[Message] = []

        def note(error: KafkaError | None, message: Message) -> None:
            outcomes.append(error)
            where.append(message)

        self._enqueue(record, note)
        self.flush()
        if outcomes and outcomes[0] is not None:
            raise SendError(self._exception(outcomes[0], where[0]))

    def flush(self) -> None:
        """Wait until everything has arrived or failed."""
        while self._producer.flush(_FLUSH_PAUSE_S):
            pass

    def _enqueue(self, record: NewRecord, on_delivery: Any) -> None:
        self._await_topic()
        size = _size_of(record)
        if size > self._max_request_bytes:
            raise SendError(
                f"{_ERRORS}.RecordTooLargeException: The message is {size} bytes when serialized which is larger than "
                f"{self._max_request_bytes}, which is the value of the max.request.size configuration."
            )
        deadline = time.monotonic() + self._max_block_ms / 1000
        while True:
            try:
                self._producer.produce(
                    self._topic, record.value, record.key, on_delivery=on_delivery, headers=[*record.headers] or None
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise SendError(
                        f"{_ERRORS}.TimeoutException: Failed to allocate {size} bytes within the configured max "
                        f"blocking time {self._max_block_ms} ms."
                    ) from None
                self._producer.poll(_QUEUE_PAUSE_S)
            except KafkaException as failure:
                raise SendError(f"org.apache.kafka.common.KafkaException: {failure.args[0].str()}") from None
            else:
                return

    def _await_topic(self) -> None:
        """Wait for the topic to be known, as long as a record may be held up; the first one may create it."""
        deadline = time.monotonic() + self._max_block_ms / 1000
        while not self._is_known:
            remaining_s = deadline - time.monotonic()
            if remaining_s > 0:
                self._ask_for_topic(min(remaining_s, _NODE_WAIT_S))
            if not self._is_known and time.monotonic() >= deadline:
                raise SendError(
                    f"{_ERRORS}.TimeoutException: Topic {self._topic} not present in metadata after "
                    f"{self._max_block_ms} ms."
                )

    def _ask_for_topic(self, timeout_s: float) -> None:
        try:
            found = self._producer.list_topics(self._topic, timeout=timeout_s).topics[self._topic]
        except KafkaException:
            self._producer.poll(0)  # nobody answers: `error_cb` says so
            return
        if found.error is None:
            self._is_known = True
            return
        error = Error(found.error.code()) if found.error.code() >= 0 else Error.UNKNOWN_SERVER_ERROR
        is_news = not self._has_warned
        if is_news:
            self._has_warned = True
            log_warning(
                f"[{self._client}] The metadata response from the cluster reported a recoverable issue with "
                f"correlation id 1 : {{{self._topic}={error.name}}}",
                NETWORK_CLIENT,
            )
            if error is Error.INVALID_TOPIC_EXCEPTION:
                log_error(f"[{self._client}] Metadata response reported invalid topics [{self._topic}]", METADATA)
        if error is Error.INVALID_TOPIC_EXCEPTION:
            which = f"Invalid topics: [{self._topic}]" if is_news else self._topic
            raise SendError(f"{exception_name(error)}: {which}")
        if error is Error.TOPIC_AUTHORIZATION_FAILED:
            raise SendError(f"{exception_name(error)}: Not authorized to access topics: [{self._topic}]")
        time.sleep(min(timeout_s, _METADATA_PAUSE_S))

    def _log_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._log(message.key(), message.value(), self._exception(error, message))

    def _log(self, key: bytes | None, value: bytes | None, exception: str) -> None:
        key_text, value_text = ("null" if each is None else f"{len(each)} bytes" for each in (key, value))
        log_error(
            f"Error when sending message to topic {self._topic} with key: {key_text}, value: {value_text} with error:",
            _LOGGER,
            exception,
        )

    def _exception(self, error: KafkaError, message: Message) -> str:
        if error.code() == KafkaError._MSG_TIMED_OUT:  # noqa: SLF001 - its public name
            return (
                f"{_ERRORS}.TimeoutException: Expiring 1 record(s) for {self._topic}-{message.partition()}:"
                f"{self._delivery_timeout_ms} ms has passed since batch creation"
            )
        if error.code() < 0:
            return f"org.apache.kafka.common.KafkaException: {error.str()}"
        return f"{exception_name(Error(error.code()))}: {message_of(Error(error.code()))}"


def _producer(settings: dict[str, Any]) -> Producer:
    try:
        return Producer(settings)
    except KafkaException as failure:
        raise ToolError(
            "org.apache.kafka.common.KafkaException: Failed to construct kafka producer", hint=failure.args[0].str()
        ) from None


def _is_idempotent(properties: Mapping[str, str]) -> bool:
    """Whether Java's producer would be, without having been told."""
    return (
        properties["acks"] in ("all", "-1")
        and properties["retries"] != "0"
        and int(properties.get("max.in.flight.requests.per.connection", 1)) <= 5
    )


def _size_of(record: NewRecord) -> int:
    """At most how many bytes a batch of this record alone has, as Java's producer reckons."""
    key, value, headers = record
    size = _field_size(key) + _field_size(value) + len(varint(len(headers)))
    for name, content in headers:
        size += _field_size(name.encode()) + _field_size(content)
    return _BATCH_HEADER_BYTES + _RECORD_HEADER_BYTES_MAX + size


def _field_size(data: bytes | None) -> int:
    return len(varint(-1)) if data is None else len(varint(len(data))) + len(data)
