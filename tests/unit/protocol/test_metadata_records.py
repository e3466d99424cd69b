from __future__ import annotations

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.compiler.schema import definitions
from barnabas.protocol.control_records import (
    ControlRecordType,
    decode_control_record,
    decode_key,
    encode_control_record,
    encode_end_transaction,
    encode_key,
)
from barnabas.protocol.errors import DecodeError, EncodeError
from barnabas.protocol.metadata_records import RECORD_NAMES, decode_record, encode_record
from tests.unit.protocol.values import ALL_VERSIONS, filled_message

CONTROL_MESSAGES = [
    "LeaderChangeMessage",
    "SnapshotHeaderRecord",
    "SnapshotFooterRecord",
    "KRaftVersionRecord",
    "VotersRecord",
]


def test_every_kind_of_metadata_record_is_read_as_it_was_written() -> None:
    for name, version in ALL_VERSIONS:
        if name in RECORD_NAMES.values():
            record = filled_message(name, version)
            assert decode_record(encode_record(record, version)) == (record, version)


def test_the_table_of_kinds_is_that_of_the_schemas() -> None:
    metadata = {
        definition["apiKey"]: name
        for name, definition in definitions().items()
        if definition["type"] == "metadata" and not name.startswith(("RemoteLog", "RemotePartition"))
    }
    assert metadata == RECORD_NAMES


def test_a_value_starts_with_frame_version_type_and_version() -> None:
    assert encode_record(m.FenceBrokerRecord(id=1, epoch=2), 0) == b"\x01\x07\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0"


def test_a_message_that_is_no_metadata_record_is_refused() -> None:
    with pytest.raises(EncodeError, match="MetadataRequest is not a record of the metadata log"):
        encode_record(m.MetadataRequest(), 0)
    with pytest.raises(EncodeError, match="VotersRecord is not a record of the metadata log"):
        encode_record(m.VotersRecord(), 0)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "ends inside a varint"),
        (b"\x02\x07\0", "unknown frame version 2, expected 1"),
        (b"\x01\x06\0", "unknown metadata record type 6"),
        (b"\x01\x07\x01", "FenceBrokerRecord has versions 0-0, not 1"),
        (b"\x01\x07\0\0\0", "is truncated"),
        (b"\x01\x14\0\0\0", "ends at byte 4 of 5"),
    ],
)
def test_a_malformed_metadata_record_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        decode_record(data)


@pytest.mark.parametrize("name", CONTROL_MESSAGES)
def test_every_control_record_is_read_as_it_was_written(name: str) -> None:
    message = filled_message(name, 0)
    message.version = 0  # type: ignore[attr-defined]
    key, value = encode_control_record(message)
    record_type, content = decode_control_record(key, value)
    assert content == message
    assert encode_key(record_type) == key


@pytest.mark.parametrize("record_type", [ControlRecordType.COMMIT, ControlRecordType.ABORT])
def test_a_transaction_marker_carries_the_coordinators_epoch(record_type: ControlRecordType) -> None:
    key, value = encode_end_transaction(record_type, 77)
    assert (key, value) == (bytes([0, 0, 0, record_type]), b"\0\0\0\0\0\x4d")
    assert decode_control_record(key, value) == (record_type, m.EndTxnMarker(coordinator_epoch=77))


def test_what_ends_no_transaction_or_is_no_control_record_is_refused() -> None:
    with pytest.raises(EncodeError, match="LEADER_CHANGE does not end a transaction"):
        encode_end_transaction(ControlRecordType.LEADER_CHANGE, 1)
    with pytest.raises(EncodeError, match="TopicRecord is not the value of a control record"):
        encode_control_record(m.TopicRecord())


def test_a_later_version_of_the_key_is_read_by_its_start() -> None:
    assert decode_key(b"\0\x05\0\x01more") is ControlRecordType.COMMIT


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (b"\0\0\0", b"\0\0", "needs 4 bytes, but has 3"),
        (b"\xff\xff\0\x01", b"\0\0", "has the invalid version -1"),
        (b"\0\0\0\x07", b"\0\0", "unknown control record type 7"),
        (b"\0\0\0\x02", b"\0", "value of a LEADER_CHANGE control record has only 1 bytes"),
        (b"\0\0\0\x02", b"\0\x09", "LeaderChangeMessage has versions 0-1, not 9"),
        (b"\0\0\0\x01", b"\0\0\0", "EndTxnMarker is truncated"),
    ],
)
def test_a_malformed_control_record_is_refused(key: bytes, value: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        decode_control_record(key, value)
