"""A producer on librdkafka's C interface, in the library that confluent-kafka brings along.

Handing records over through Python objects costs more than librdkafka's own work and several times the broker's, so
that every broker would look the same. Here a chunk of records is an array in C's memory, and one call outside the
interpreter's lock hands it over. What became of records comes back the same way: an event has those of a whole batch,
each with the number that it was given, and of a row of numbers only the first and the last are looked at.
"""

from __future__ import annotations

import ctypes
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import confluent_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PRODUCER = 0
_COPY = 0x2
_WAIT_FOR_ROOM = 0x4
_ERROR_BYTES = 512
_DELIVERIES = 0x1
_STATISTICS = 0x40
"""Kinds of events."""
_WAIT_MS_MAX = 1_000
"""How long C is waited for without a look at somebody's ^C."""


class LibrdkafkaError(RuntimeError):
    """librdkafka is not there, or does not take what it is given."""


class _Message(ctypes.Structure):
    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_char_p),
        ("length", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_length", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_int64),
    )


_WORD_BYTES = 8
_WORDS = ctypes.sizeof(_Message) // _WORD_BYTES
_PRIVATE = _Message.private.offset // _WORD_BYTES


class Chunk:
    """Records that go to one partition together, any number of times. They are not copied, so keep the chunk."""

    __slots__ = ("_words", "count", "messages", "size_bytes")

    def __init__(self, values: Sequence[bytes]) -> None:
        self.count = len(values)
        self.size_bytes = sum(map(len, values))
        self.messages = (_Message * self.count)()
        for message, value in zip(self.messages, values, strict=True):
            message.payload, message.length = value, len(value)
        self._words = memoryview(self.messages).cast("B").cast("q")

    def number(self, first: int) -> None:
        """Give the records the numbers from this one on, by which their deliveries know them."""
        self._words[_PRIVATE::_WORDS] = memoryview(array("q", range(first, first + self.count)))


class Delivered(NamedTuple):
    """Records with numbers in a row, of one batch, that were acknowledged or given up together."""

    first: int
    length: int
    partition: int
    error_code: int


class Producer:
    """Writes to one topic. Used by one thread."""

    __slots__ = ("_handle", "_library", "_queue", "_topic", "statistics")

    def __init__(
        self, settings: Mapping[str, str], topic: str, *, tells_deliveries: bool = False, tells_statistics: bool = False
    ) -> None:
        library = self._library = _load()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        configuration = library.rd_kafka_conf_new()
        for name, value in settings.items():
            if library.rd_kafka_conf_set(configuration, name.encode(), value.encode(), error, _ERROR_BYTES):
                raise LibrdkafkaError(error.value.decode())
        library.rd_kafka_conf_set_events(
            configuration, (_DELIVERIES if tells_deliveries else 0) | (_STATISTICS if tells_statistics else 0)
        )
        self._handle = library.rd_kafka_new(_PRODUCER, configuration, error, _ERROR_BYTES)
        if not self._handle:
            raise LibrdkafkaError(error.value.decode())
        self._topic = library.rd_kafka_topic_new(self._handle, topic.encode(), None)
        self._queue = library.rd_kafka_queue_get_main(self._handle)
        self.statistics = ""
        """The last that librdkafka told of itself, as JSON, where that was asked for."""

    def produce(self, chunk: Chunk, partition: int) -> None:
        """Hands a chunk over, and waits while the queue is full."""
        self._produce(chunk, partition, _WAIT_FOR_ROOM)

    def produce_now(self, chunk: Chunk, partition: int, *, copies: bool = False) -> None:
        """Hands a chunk over for which the caller has made sure of room; with `copies` it need not be kept."""
        self._produce(chunk, partition, _COPY if copies else 0)

    def deliveries(self, wait_s: float) -> Iterator[Delivered]:
        """What became of records since the last call; waits for the first of it. It is the caller that makes room by
        this, where deliveries are told."""
        wait_ms = int(min(wait_s * 1000, _WAIT_MS_MAX))
        while event := self._library.rd_kafka_queue_poll(self._queue, wait_ms):
            wait_ms = 0
            try:
                kind = self._library.rd_kafka_event_type(event)
                if kind == _DELIVERIES:
                    yield from self._delivered(event)
                elif kind == _STATISTICS:
                    self.statistics = self._library.rd_kafka_event_stats(event).decode()
            finally:
                self._library.rd_kafka_event_destroy(event)

    def waiting(self) -> int:
        """How many records are neither acknowledged nor given up, or have not been told of."""
        count: int = self._library.rd_kafka_outq_len(self._handle)
        return count

    def flush(self, seconds_max: float) -> None:
        """Waits until every record is acknowledged, or given up: the caller counts what the broker has."""
        if self._library.rd_kafka_flush(self._handle, int(seconds_max * 1000)):
            left = self._library.rd_kafka_outq_len(self._handle)
            raise LibrdkafkaError(f"{left} records were not acknowledged within {seconds_max:.0f} s")

    def init_transactions(self, timeout_s: float) -> None:
        self._check(self._library.rd_kafka_init_transactions(self._handle, int(timeout_s * 1000)))

    def begin_transaction(self) -> None:
        self._check(self._library.rd_kafka_begin_transaction(self._handle))

    def commit_transaction(self, timeout_s: float) -> None:
        """Everything that was handed over must have been told of before."""
        self._check(self._library.rd_kafka_commit_transaction(self._handle, int(timeout_s * 1000)))

    def close(self) -> None:
        self._library.rd_kafka_queue_destroy(self._queue)
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._handle)

    def _produce(self, chunk: Chunk, partition: int, flags: int) -> None:
        taken = self._library.rd_kafka_produce_batch(self._topic, partition, flags, chunk.messages, chunk.count)
        if taken != chunk.count:
            raise LibrdkafkaError(f"{chunk.count - taken} of {chunk.count} records were not taken")

    def _delivered(self, event: int) -> Iterator[Delivered]:
        """Rows of records in an event. Those of a batch are in the order in which they were handed over."""
        size = self._library.rd_kafka_event_message_count(event)
        pointers = (ctypes.c_void_p * size)()
        count = self._library.rd_kafka_event_message_array(event, pointers, size)
        at = 0
        while at < count:
            first = _at(pointers, at)
            length = _row_length(pointers, at, count, first.private)
            yield Delivered(first.private, length, first.partition, first.error)
            at += length

    def _check(self, failure: int | None) -> None:
        if failure:
            text = self._library.rd_kafka_error_string(failure).decode()
            self._library.rd_kafka_error_destroy(failure)
            raise LibrdkafkaError(text)


def _at(pointers: ctypes.Array[ctypes.c_void_p], index: int) -> _Message:
    address = cast("int", pointers[index])
    return _Message.from_address(address)


def _row_length(pointers: ctypes.Array[ctypes.c_void_p], start: int, end: int, first: int) -> int:
    """How many messages from one on have numbers in a row, found by halving. Numbers only grow within a partition, so
    that those between two that fit do, too."""
    low, high = start, end - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _at(pointers, middle).private - first == middle - start:
            low = middle
        else:
            high = middle - 1
    return low - start + 1


def _load() -> ctypes.CDLL:
    beside = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    path = next(beside.glob("librdkafka-*"), None)
    library = ctypes.CDLL(str(path) if path else "librdkafka.so.1")
    pointer, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    for name, result, arguments in (
        ("conf_new", pointer, ()),
        ("conf_set", number, (pointer, text, text, text, size)),
        ("conf_set_events", None, (pointer, number)),
        ("new", pointer, (number, pointer, text, size)),
        ("topic_new", pointer, (pointer, text, pointer)),
        ("produce_batch", number, (pointer, ctypes.c_int32, number, pointer, number)),
        ("queue_get_main", pointer, (pointer,)),
        ("queue_poll", pointer, (pointer, number)),
        ("queue_destroy", None, (pointer,)),
        ("event_type", number, (pointer,)),
        ("event_message_count", size, (pointer,)),
        ("event_message_array", size, (pointer, pointer, size)),
        ("event_stats", text, (pointer,)),
        ("event_destroy", None, (pointer,)),
        ("flush", number, (pointer, number)),
        ("outq_len", number, (pointer,)),
        ("init_transactions", pointer, (pointer, number)),
        ("begin_transaction", pointer, (pointer,)),
        ("commit_transaction", pointer, (pointer, number)),
        ("error_string", text, (pointer,)),
        ("error_destroy", None, (pointer,)),
        ("topic_destroy", None, (pointer,)),
        ("destroy", None, (pointer,)),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library
