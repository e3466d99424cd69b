"""The bytes of `__consumer_offsets`. Those of Kafka were read from the log of a 4.3.1 broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import apache_kafka

from barnabas.coordination.effects import Record
from barnabas.groups import group_records
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import DecodeError, EncodeError, UnknownFormatError
from barnabas.protocol.record import Record as LogRecord
from barnabas.protocol.uuids import Uuid, from_text

if TYPE_CHECKING:
    from pathlib import Path

FOO_ID = Uuid(bytes.fromhex("7644bfaa97494842958f81fbd40465a1"))
MEMBER_ID = "one-a0cb8d97-1925-43df-94e1-28a9f283ef6e"

OFFSET = Record(
    m.OffsetCommitKey(group="simple", topic="foo", partition=0),
    m.OffsetCommitValue(offset=7, metadata="some métadata\0", commit_timestamp=1794798883180, topic_id=FOO_ID),
)
OFFSET_WITH_EPOCH = Record(
    m.OffsetCommitKey(group="members", topic="foo", partition=1),
    m.OffsetCommitValue(offset=1, leader_epoch=0, commit_timestamp=1794798883544, topic_id=FOO_ID),
)
NEW_GROUP = Record(
    m.GroupMetadataKey(group="members"),
    m.GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=1794798883290),
)
STABLE_GROUP = Record(
    m.GroupMetadataKey(group="members"),
    m.GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=MEMBER_ID,
        current_state_timestamp=1794798883343,
        members=[
            m.GroupMetadataValue.MemberMetadata(
                member_id=MEMBER_ID,
                group_instance_id="one",
                client_id="member",
                client_host="/127.0.0.1",
                rebalance_timeout=300_000,
                session_timeout=45_000,
                subscription=bytes.fromhex("0003000000010003666f6f0000000000000000ffffffff0000"),
                assignment=bytes.fromhex("0000000000010003666f6f00000002000000000000000100000000"),
            )
        ],
    ),
)

WRITTEN_BY_KAFKA = [
    pytest.param(
        OFFSET,
        "0001000673696d706c650003666f6f00000000",
        "00040000000000000007ffffffff10736f6d65206dc3a974616461746100000001a1e259916c0100107644bfaa97494842958f81fbd4"
        "0465a1",
        id="an offset with metadata",
    ),
    pytest.param(
        OFFSET_WITH_EPOCH,
        "000100076d656d626572730003666f6f00000001",
        "000400000000000000010000000001000001a1e25992d80100107644bfaa97494842958f81fbd40465a1",
        id="an offset with its leader epoch",
    ),
    pytest.param(
        NEW_GROUP,
        "000200076d656d62657273",
        "0003000000000000ffffffff000001a1e25991da00000000",
        id="a new group",
    ),
    pytest.param(
        STABLE_GROUP,
        "000200076d656d62657273",
        "00030008636f6e73756d657200000001000572616e676500286f6e652d61306362386439372d313932352d343364662d393465312d32"
        "3861396632383365663665000001a1e259920f0000000100286f6e652d61306362386439372d313932352d343364662d393465312d32"
        "386139663238336566366500036f6e6500066d656d626572000a2f3132372e302e302e31000493e00000afc800000019000300000001"
        "0003666f6f0000000000000000ffffffff00000000001b0000000000010003666f6f00000002000000000000000100000000",
        id="a stable group",
    ),
    pytest.param(
        group_records.offset_tombstone("simple", "foo", 1),
        "0001000673696d706c650003666f6f00000001",
        None,
        id="no offset",
    ),
    pytest.param(group_records.group_tombstone("simple"), "0002000673696d706c65", None, id="no group"),
]


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN_BY_KAFKA)
def test_records_have_the_bytes_that_kafka_writes(record: Record, key: str, value: str | None) -> None:
    as_bytes = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert group_records.encode(record) == as_bytes
    assert group_records.decode(*as_bytes) == record


names = st.text(max_size=20)


@given(
    st.builds(m.OffsetCommitKey, group=names, topic=names, partition=st.integers(0, 2**31 - 1)),
    st.none()
    | st.builds(
        m.OffsetCommitValue,
        offset=st.integers(-1, 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=names,
        commit_timestamp=st.integers(0, 2**62),
        topic_id=st.binary(min_size=16, max_size=16),
    ),
)
def test_whatever_is_written_of_an_offset_is_read_again(
    key: m.OffsetCommitKey, value: m.OffsetCommitValue | None
) -> None:
    assert group_records.decode(*group_records.encode(Record(key, value))) == Record(key, value)


def test_an_offset_that_says_when_it_expires_is_written_in_the_only_version_that_can() -> None:
    value = m.OffsetCommitValue(offset=3, leader_epoch=5, commit_timestamp=100, expire_timestamp=200, topic_id=FOO_ID)
    key_bytes, value_bytes = group_records.encode(group_records.offset_commit("g", "foo", 0, value))
    assert value_bytes is not None
    assert value_bytes[:2] == b"\0\x01"
    expected = m.OffsetCommitValue(offset=3, commit_timestamp=100, expire_timestamp=200)
    assert group_records.decode(key_bytes, value_bytes) == group_records.offset_commit("g", "foo", 0, expected)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_groups_in_any_version_that_kafka_ever_wrote_are_read(version: int) -> None:
    value = version.to_bytes(2, "big") + encode(m.GroupMetadataValue(protocol_type="consumer", generation=4), version)
    record = group_records.decode(b"\0\x02\0\x01g", value)
    assert record is not None
    assert isinstance(record.value, m.GroupMetadataValue)
    assert (record.value.protocol_type, record.value.generation) == ("consumer", 4)


def test_offsets_of_kafka_0_8_are_read_as_offsets_of_today() -> None:
    key = b"\0\0" + b"\0\x01g" + b"\0\x03foo" + b"\0\0\0\x02"
    value = b"\0\0" + (9).to_bytes(8, "big") + b"\0\x01x" + (77).to_bytes(8, "big")
    expected = m.OffsetCommitValue(offset=9, metadata="x", commit_timestamp=77)
    assert group_records.decode(key, value) == group_records.offset_commit("g", "foo", 2, expected)
    assert group_records.decode(key, None) == group_records.offset_tombstone("g", "foo", 2)


def test_kinds_of_records_that_nothing_here_acts_on_are_passed_over() -> None:
    key, value = group_records.encode(Record(m.ShareGroupMetadataKey(group_id="g"), m.ShareGroupMetadataValue(epoch=1)))
    assert group_records.decode(key, value) is None
    assert group_records.decode(key, None) is None


def test_kinds_of_records_that_nobody_knows_are_told_from_damaged_ones() -> None:
    with pytest.raises(UnknownFormatError, match="Unknown record type 32767"):
        group_records.decode(b"\x7f\xff of another age", b"\0\0")


def test_values_of_a_version_yet_to_come_are_not_passed_over() -> None:
    key, value = group_records.encode(OFFSET)
    assert value is not None
    with pytest.raises(DecodeError, match="not 99") as refused:
        group_records.decode(key, b"\0\x63" + value[2:])
    assert not isinstance(refused.value, UnknownFormatError)


def test_what_follows_a_message_is_left_unread_as_by_kafka() -> None:
    key, value = group_records.encode(OFFSET)
    assert value is not None
    assert group_records.decode(key + b" and more", value + b" and more") == OFFSET


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0"),
        (b"", None),
        (b"\0", None),
        (b"\0\x01\0\x05g", None),
        (b"\0\x02\0\x01g", b""),
        (b"\0\x02\0\x01g", b"\0\x03\0"),
    ],
)
def test_damaged_records_are_told_from_unknown_ones(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        group_records.decode(key, value)


def test_only_keys_of_records_are_written_as_keys() -> None:
    with pytest.raises(EncodeError, match="HeartbeatRequest"):
        group_records.encode(Record(m.HeartbeatRequest(), None))


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
def test_kafkas_own_tool_decodes_what_is_written_here(tmp_path: Path) -> None:
    expiring = m.OffsetCommitValue(offset=3, commit_timestamp=100, expire_timestamp=200)
    written = [
        OFFSET_WITH_EPOCH,
        NEW_GROUP,
        STABLE_GROUP,
        group_records.offset_commit("old", "bar", 2, expiring),
        group_records.offset_tombstone("gone", "bar", 3),
        group_records.group_tombstone("gone"),
    ]
    pairs = [group_records.encode(record) for record in written]
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(build_batch([LogRecord(key=key, value=value, timestamp=1) for key, value in pairs]))

    done = apache_kafka.run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(file), timeout=100.0
    )

    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| offset")]
    assert len(lines) == len(written)
    offset, new_group, stable_group, expiring_offset, no_offset, no_group = lines
    assert '"type":"1","data":{"group":"members","topic":"foo","partition":1}' in offset
    assert '"version":"4","data":{"offset":1,"leaderEpoch":0' in offset
    assert from_text("dkS_qpdJSEKVj4H71ARloQ") == FOO_ID
    assert '"topicId":"dkS_qpdJSEKVj4H71ARloQ"' in offset
    assert '"version":"3","data":{"protocolType":"","generation":0,"protocol":null' in new_group
    assert f'"leader":"{MEMBER_ID}"' in stable_group
    assert '"version":"1"' in expiring_offset
    assert '"expireTimestamp":200' in expiring_offset
    assert '"type":"1","data":{"group":"gone","topic":"bar","partition":3}} payload: <DELETE>' in no_offset
    assert '"type":"2","data":{"group":"gone"}} payload: <DELETE>' in no_group
