"""Input that is not what it should be raises DecodeError, reads nothing beyond the frame, and allocates little."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.codec import DecodeError
from barnabas.protocol.compiler.schema import message_schema
from tests.unit.protocol.values import ALL_VERSIONS, filled_message, message_class

VARINT_MAX = b"\xff\xff\xff\xff\x0f"
INT32_MAX = b"\x7f\xff\xff\xff"
ALLOCATED_BYTES_MAX = 100_000


def filled_data(name: str, version: int) -> bytes:
    return codec.encode(filled_message(name, version), version)


def newest_versions() -> list[tuple[str, int]]:
    """Of each message the highest version, and the highest without varint lengths."""
    schemas = [message_schema(name) for name, _ in ALL_VERSIONS]
    newest = {(schema.name, schema.versions.high) for schema in schemas}
    return sorted(newest | {(schema.name, schema.flexible.low - 1) for schema in schemas} & set(ALL_VERSIONS))


def test_every_message_cut_at_any_byte_is_refused() -> None:
    for name, version in ALL_VERSIONS:
        data = filled_data(name, version)
        cls = message_class(name)
        for end in range(len(data)):
            with pytest.raises(DecodeError):
                codec.decode(cls, data[:end], version)


def test_bytes_behind_a_message_are_refused() -> None:
    for name, version in ALL_VERSIONS:
        with pytest.raises(DecodeError, match="ends at byte"):
            codec.decode(message_class(name), filled_data(name, version) + b"\0", version)


def test_a_damaged_message_is_read_or_refused_but_never_raises_anything_else() -> None:
    generator = random.Random(1)
    for name, version in ALL_VERSIONS:
        data = bytearray(filled_data(name, version))
        cls = message_class(name)
        for _ in range(50):
            damaged = bytearray(data)
            for _ in range(generator.randint(1, 4)):
                if damaged:
                    damaged[generator.randrange(len(damaged))] = generator.choice((0, 1, 0x7F, 0x80, 0xFF, 0x42))
            read_or_refused(cls, damaged, version)


@settings(max_examples=1000, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(ALL_VERSIONS), st.binary(max_size=200))
def test_random_bytes_are_read_or_refused_but_never_raise_anything_else(message: tuple[str, int], data: bytes) -> None:
    read_or_refused(message_class(message[0]), data, message[1])


def read_or_refused(cls: Any, data: bytes | bytearray, version: int) -> None:
    try:
        message = codec.decode(cls, data, version)
    except DecodeError:
        return
    assert codec.decode(cls, codec.encode(message, version), version) == message or contains_nan(message)


def contains_nan(message: Any) -> bool:
    return "nan" in repr(message)


def test_a_huge_length_anywhere_is_refused_without_allocating_for_it() -> None:
    for name, version in newest_versions():
        data = filled_data(name, version)
        cls = message_class(name)
        huge = VARINT_MAX if message_schema(name).flexible.covers(version) else INT32_MAX
        codec.reader(cls, version)
        tracemalloc.start()
        try:
            for position in range(0, len(data), 1 + len(data) // 300):
                read_or_none(cls, data[:position] + huge + data[position + 1 :], version)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < ALLOCATED_BYTES_MAX, (name, version)


def read_or_none(cls: Any, data: bytes, version: int) -> Any:
    try:
        return codec.decode(cls, data, version)
    except DecodeError:
        return None


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff"])
def test_a_count_of_elements_that_the_frame_cannot_hold_is_refused(count: bytes) -> None:
    with pytest.raises(DecodeError, match=r"topics claims \d+ elements, but 3 bytes are left"):
        codec.decode(m.MetadataRequest, count + b"abc", 0)


def test_an_array_of_numbers_that_the_frame_cannot_hold_is_refused() -> None:
    data = codec.encode(m.PartitionRecord(replicas=[1] * 20), 0)
    position = data.index(bytes([21]))
    with pytest.raises(DecodeError, match="replicas claims 99 elements"):
        codec.decode(m.PartitionRecord, data[:position] + bytes([100]) + data[position + 1 :], 0)


def test_null_is_refused_where_it_is_not_allowed() -> None:
    with pytest.raises(DecodeError, match="group_id must not be null"):
        codec.decode(m.HeartbeatRequest, b"\0" * 20, 4)
    with pytest.raises(DecodeError, match="topics must not be null"):
        codec.decode(m.MetadataRequest, b"\xff\xff\xff\xff", 0)


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError, match="not UTF-8"):
        codec.decode(m.SaslHandshakeRequest, b"\0\x02\xc3\x28", 1)


def test_a_string_longer_than_kafka_allows_is_refused() -> None:
    data = b"\x81\x80\x02" + b"x" * 32768 + b"\0" * 30
    with pytest.raises(DecodeError, match="group_id claims 32768 bytes"):
        codec.decode(m.HeartbeatRequest, data, 4)


def test_a_varint_of_more_than_32_bits_is_refused() -> None:
    with pytest.raises(DecodeError, match="longer than 32 bits"):
        codec.decode(m.HeartbeatRequest, b"\xff" * 20, 4)


def test_a_tagged_field_whose_size_is_wrong_is_refused() -> None:
    data = codec.encode(m.ApiVersionsResponse(finalized_features_epoch=5), 3)
    assert data.count(b"\x01\x01\x08") == 1
    with pytest.raises(DecodeError, match="finalized_features_epoch ends 1 bytes after its tagged size of 7"):
        codec.decode(m.ApiVersionsResponse, data.replace(b"\x01\x01\x08", b"\x01\x01\x07"), 3)
    with pytest.raises(DecodeError, match="has a tagged field of 127 bytes"):
        codec.decode(m.ApiVersionsResponse, data.replace(b"\x01\x01\x08", b"\x01\x63\x7f"), 3)
