"""A producer on librdkafka's C interface, in the library that confluent-kafka brings along.

Handing records over through Python objects costs more than librdkafka's own work and several times the broker's, so
that every broker would look the same. Here a chunk of records is an array in C's memory, made once, and one call
outside the interpreter's lock hands it over.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PRODUCER = 0
_WAIT_FOR_ROOM = 0x4
_ERROR_BYTES = 512


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
        ("private", ctypes.c_void_p),
    )


class Chunk:
    """Records that go to one partition together, any number of times. They are not copied, so keep the chunk."""

    __slots__ = ("count", "messages")

    def __init__(self, values: Sequence[bytes]) -> None:
        self.count = len(values)
        self.messages = (_Message * self.count)()
        for message, value in zip(self.messages, values, strict=True):
            message.payload, message.length = value, len(value)


class Producer:
    """Writes to one topic. Used by one thread."""

    __slots__ = ("_handle", "_library", "_topic")

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        library = self._library = _load()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        configuration = library.rd_kafka_conf_new()
        for name, value in settings.items():
            if library.rd_kafka_conf_set(configuration, name.encode(), value.encode(), error, _ERROR_BYTES):
                raise LibrdkafkaError(error.value.decode())
        self._handle = library.rd_kafka_new(_PRODUCER, configuration, error, _ERROR_BYTES)
        if not self._handle:
            raise LibrdkafkaError(error.value.decode())
        self._topic = library.rd_kafka_topic_new(self._handle, topic.encode(), None)

    def produce(self, chunk: Chunk, partition: int) -> None:
        """Hands a chunk over, and waits while the queue is full."""
        taken = self._library.rd_kafka_produce_batch(
            self._topic, partition, _WAIT_FOR_ROOM, chunk.messages, chunk.count
        )
        if taken != chunk.count:
            raise LibrdkafkaError(f"{chunk.count - taken} of {chunk.count} records were not taken")

    def flush(self, seconds_max: float) -> None:
        """Waits until every record is acknowledged, or given up: the caller counts what the broker has."""
        if self._library.rd_kafka_flush(self._handle, int(seconds_max * 1000)):
            left = self._library.rd_kafka_outq_len(self._handle)
            raise LibrdkafkaError(f"{left} records were not acknowledged within {seconds_max:.0f} s")

    def close(self) -> None:
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._handle)


def _load() -> ctypes.CDLL:
    beside = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    path = next(beside.glob("librdkafka-*"), None)
    library = ctypes.CDLL(str(path) if path else "librdkafka.so.1")
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    for name, result, arguments in (
        ("conf_new", pointer, ()),
        ("conf_set", ctypes.c_int, (pointer, text, text, text, size)),
        ("new", pointer, (ctypes.c_int, pointer, text, size)),
        ("topic_new", pointer, (pointer, text, pointer)),
        ("produce_batch", ctypes.c_int, (pointer, ctypes.c_int32, ctypes.c_int, pointer, ctypes.c_int)),
        ("flush", ctypes.c_int, (pointer, ctypes.c_int)),
        ("outq_len", ctypes.c_int, (pointer,)),
        ("topic_destroy", None, (pointer,)),
        ("destroy", None, (pointer,)),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library
