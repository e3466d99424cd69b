"""What is printed of a record, by the names of Kafka's formatters and deserializers."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest

from barnabas.cli.kafka.console.deserializers import DeserializationError, NoDeserializerError, deserializer
from barnabas.cli.kafka.console.formatters import DEFAULT, FormatError, UnknownFormatterError, formatter
from barnabas.coordination.framing import encode_key, encode_value
from barnabas.protocol import messages as m

PACKAGE = "org.apache.kafka.common.serialization."
TOOLS = "org.apache.kafka.tools.consumer."
UUID = "0d3b2f0e-9c1a-4d6f-8b3a-1f2e3d4c5b6a"
Headers = list[tuple[str, bytes | None]]


class Given(NamedTuple):
    """A record as librdkafka hands it over."""

    key_bytes: bytes | None = b"k"
    value_bytes: bytes | None = b"v"
    header_list: Headers | None = None
    time: tuple[int, int] = (1, 17)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 5

    def timestamp(self) -> tuple[int, int]:
        return self.time

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def headers(self) -> Headers | None:
        return self.header_list


def printed(record: Given, name: str = DEFAULT, **properties: str) -> str:
    out = bytearray()
    formatter(name, {key.replace("_", "."): value for key, value in properties.items()})(record, out)
    return out.decode()


def test_a_value_alone_is_a_line() -> None:
    assert printed(Given()) == "v\n"
    assert printed(Given(value_bytes=None)) == "null\n"
    assert printed(Given(value_bytes=None), null_literal="<>") == "<>\n"


def test_columns_come_in_their_order_and_the_last_one_ends_the_line() -> None:
    shown = dict.fromkeys(
        ["print_key", "print_headers", "print_epoch", "print_offset", "print_partition", "print_timestamp"], "true"
    )
    record = Given(header_list=[("a", b"1"), ("b", None)])
    assert printed(record, **shown) == "CreateTime:17\tPartition:3\tOffset:5\tEpoch:NOT_PRESENT\ta:1,b:null\tk\tv\n"
    assert printed(record, print_key="true", print_value="false", line_separator="|") == "k|"
    assert printed(Given(), print_headers="true", key_separator=" ", headers_separator="&") == "NO_HEADERS v\n"
    assert printed(Given(), print_value="false") == ""


def test_times_are_named_by_who_gave_them() -> None:
    assert printed(Given(time=(2, 17)), print_timestamp="true") == "LogAppendTime:17\tv\n"
    assert printed(Given(time=(0, 0)), print_timestamp="true") == "NO_TIMESTAMP\tv\n"


def test_what_was_printed_before_a_value_that_cannot_be_read_stays() -> None:
    out = bytearray()
    write = formatter(DEFAULT, {"print.key": "true", "value.deserializer": f"{PACKAGE}LongDeserializer"})
    with pytest.raises(FormatError, match="Size of data received by LongDeserializer is not 8"):
        write(Given(), out)
    assert out == b"k\t"


def test_a_deserializer_that_is_none_is_done_without(capsys: pytest.CaptureFixture[str]) -> None:
    write = formatter(DEFAULT, {"value.deserializer": "no.Such"})
    out = bytearray()
    write(Given(), out)
    assert out == b"v\n"
    assert "Unable to instantiate a deserializer from no.Such" in capsys.readouterr().err


def test_formatters_have_their_old_names_too() -> None:
    for name in (DEFAULT, f"{TOOLS}LoggingMessageFormatter", "kafka.tools.DefaultMessageFormatter"):
        assert printed(Given(), name) == "v\n"
    for name in (f"{TOOLS}NoOpMessageFormatter", "kafka.tools.NoOpMessageFormatter"):
        assert printed(Given(), name) == ""
    with pytest.raises(UnknownFormatterError):
        formatter("kafka.tools.NoSuchFormatter", {})


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("Boolean", b"\x01", "true"),
        ("Boolean", b"\x00", "false"),
        ("ByteArray", b"raw", "raw"),
        ("ByteBuffer", b"abc", "java.nio.HeapByteBuffer[pos=0 lim=3 cap=3]"),
        ("Bytes", b"a\\\xff\n~", r"a\x5C\xFF\x0A~"),
        ("Double", struct.pack(">d", 1e21), "1.0E21"),
        ("Double", struct.pack(">d", 0.1), "0.1"),
        ("Float", struct.pack(">f", 0.1), "0.1"),
        ("Float", struct.pack(">f", 16777216), "1.6777216E7"),
        ("Float", struct.pack(">f", 3.4028234663852886e38), "3.4028235E38"),
        ("Float", struct.pack(">f", float("-inf")), "-Infinity"),
        ("Integer", struct.pack(">i", -7), "-7"),
        ("Long", struct.pack(">q", 1 << 40), "1099511627776"),
        ("Short", struct.pack(">h", -1), "-1"),
        ("String", "ü".encode(), "ü"),
        ("UUID", UUID.encode(), UUID),
        ("UUID", b"1-2-3-4-5", "00000001-0002-0003-0004-000000000005"),
    ],
)
def test_values_are_shown_as_java_writes_them(kind: str, data: bytes, text: str) -> None:
    assert deserializer(f"{PACKAGE}{kind}Deserializer", {}, "value")(data).decode() == text


@pytest.mark.parametrize(
    ("kind", "data"),
    [("Boolean", b"\x02"), ("Boolean", b""), ("Double", b"1234"), ("Short", b"null"), ("UUID", b"x"), ("Void", b"")],
)
def test_bytes_that_are_none_of_that_kind_are_refused(kind: str, data: bytes) -> None:
    with pytest.raises(DeserializationError):
        deserializer(f"{PACKAGE}{kind}Deserializer", {}, "value")(data)


def test_strings_have_an_encoding() -> None:
    name = f"{PACKAGE}StringDeserializer"
    assert deserializer(name, {"key.deserializer.encoding": "ISO-8859-1"}, "key")(b"\xfc") == "ü".encode()
    with pytest.raises(NoDeserializerError, match="no-such"):
        deserializer(name, {"deserializer.encoding": "no-such"}, "key")


OFFSET_KEY = encode_key(m.OffsetCommitKey(group="g", topic="t", partition=0))
OFFSET_VALUE = encode_value(m.OffsetCommitValue(offset=7, metadata="", commit_timestamp=1), 3)


def test_records_of_coordinators_are_json_without_breaks() -> None:
    offsets = f"{TOOLS}OffsetsMessageFormatter"
    assert printed(Given(OFFSET_KEY, OFFSET_VALUE), offsets) == (
        '{"key":{"type":1,"data":{"group":"g","topic":"t","partition":0}},'
        '"value":{"version":3,"data":{"offset":7,"leaderEpoch":-1,"metadata":"","commitTimestamp":1}}}'
    )
    assert printed(Given(OFFSET_KEY, None), offsets).endswith(',"value":null}')
    assert printed(Given(None), offsets) == ""


def test_records_of_other_kinds_are_passed_over() -> None:
    assert printed(Given(OFFSET_KEY, OFFSET_VALUE), f"{TOOLS}GroupMetadataMessageFormatter") == ""
    assert printed(Given(OFFSET_KEY, OFFSET_VALUE), f"{TOOLS}TransactionLogMessageFormatter") == ""


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"k", b"v", "Could not read version from key's buffer."),
        (OFFSET_KEY, b"v", "Could not read version from value's buffer."),
        (OFFSET_KEY, b"\x00\x09", "Found an unknown record version 9 for 1 type"),
        (OFFSET_KEY[:3], None, "Could not read record with version 1 from key's buffer due to: "),
    ],
)
def test_what_is_no_record_of_a_coordinator_is_refused(key: bytes, value: bytes | None, reason: str) -> None:
    with pytest.raises(FormatError) as refused:
        printed(Given(key, value), f"{TOOLS}OffsetsMessageFormatter")
    assert str(refused.value).startswith(
        f"java.lang.RuntimeException: Could not read record at offset 5 due to: {reason}"
    )
