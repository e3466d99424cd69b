"""What holds of every message in every version, and of the errors that the codec raises."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.codec import DecodeError, EncodeError
from barnabas.protocol.compiler.schema import message_schema
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from tests.unit.protocol.test_codec_kio import KIO_PATHS
from tests.unit.protocol.values import ALL_VERSIONS, filled_message, message_class, messages_of

WITHOUT_KIO = [pair for pair in ALL_VERSIONS if pair not in KIO_PATHS]
UNKNOWN_TAG = bytes.fromhex("01 8f4e 03") + b"abc"


@pytest.mark.parametrize(("name", "version"), WITHOUT_KIO)
def test_any_message_that_kio_lacks_is_read_as_it_was_written(name: str, version: int) -> None:
    @settings(max_examples=10, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(messages_of(name, version))
    def check(message: Any) -> None:
        assert codec.decode(message_class(name), codec.encode(message, version), version) == message

    check()


def test_every_version_of_every_message_is_read_from_any_kind_of_buffer() -> None:
    for name, version in ALL_VERSIONS:
        message = filled_message(name, version)
        data = codec.encode(message, version)
        for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))):
            assert codec.decode(message_class(name), buffer, version) == message, (name, version)


def test_a_message_of_defaults_is_read_as_it_was_written() -> None:
    for name, version in ALL_VERSIONS:
        cls = message_class(name)
        assert codec.decode(cls, codec.encode(cls(), version), version) == cls(), (name, version)


def test_a_message_is_read_from_the_middle_of_a_buffer() -> None:
    data = b"before" + codec.encode(m.HeartbeatRequest(group_id="g"), 4) + b"after"
    assert codec.decode_prefix(m.HeartbeatRequest, data, 4, 6) == (m.HeartbeatRequest(group_id="g"), len(data) - 5)


def test_unknown_tagged_fields_are_skipped() -> None:
    for name, version in ALL_VERSIONS:
        if message_schema(name).flexible.covers(version):
            cls = message_class(name)
            data = codec.encode(cls(), version)
            assert data.endswith(b"\0")
            assert codec.decode(cls, data[:-1] + UNKNOWN_TAG, version) == cls(), (name, version)


def test_tagged_fields_are_written_in_the_order_of_their_tags_and_only_when_set() -> None:
    response = m.ApiVersionsResponse(finalized_features_epoch=5, zk_migration_ready=True)
    untagged = codec.encode(m.ApiVersionsResponse(), 3)
    expected = untagged[:-1] + bytes([2, 1, 8]) + struct.pack(">q", 5) + bytes([3, 1, 1])
    assert codec.encode(response, 3) == expected


def test_the_client_id_of_a_request_header_never_has_a_varint_length() -> None:
    header = m.RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="me")
    assert codec.encode(header, 2) == b"\0\x12\0\x03\0\0\0\x07\0\x02me\0"


def test_a_nullable_struct_is_preceded_by_a_byte() -> None:
    cursor = m.DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=1)
    assert codec.encode(m.DescribeTopicPartitionsRequest(cursor=None), 0) == b"\x01\0\0\x07\xd0\xff\0"
    assert (
        codec.encode(m.DescribeTopicPartitionsRequest(cursor=cursor), 0) == b"\x01\0\0\x07\xd0\x01\x02t\0\0\0\x01\0\0"
    )


def test_a_tagged_struct_that_is_null_is_told_from_one_of_defaults() -> None:
    value = m.ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    data = codec.encode(value, 0)
    assert data.endswith(b"\x01\0\x01\0")
    assert codec.decode(m.ConsumerGroupMemberMetadataValue, data, 0) == value
    assert codec.encode(m.ConsumerGroupMemberMetadataValue(), 0).endswith(b"\0")


def test_records_are_read_as_a_view_of_the_frame() -> None:
    data = bytearray(codec.encode(filled_message("ProduceRequest", 9), 9))
    records = codec.decode(m.ProduceRequest, data, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    data[data.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


def test_a_writer_of_an_inner_struct_appends_what_the_message_would_contain() -> None:
    partition = m.MetadataResponse.MetadataResponsePartition(partition_index=3, replica_nodes=(1, 2), isr_nodes=[1])
    out = bytearray(b"kept")
    codec.writer(m.MetadataResponse.MetadataResponsePartition, 12)(partition, out)
    topic = m.MetadataResponse.MetadataResponseTopic(partitions=[partition])
    assert out.startswith(b"kept")
    assert bytes(out[4:]) in codec.encode(m.MetadataResponse(topics=[topic]), 12)


def test_a_field_that_a_version_lacks_has_its_default() -> None:
    response = m.MetadataResponse(controller_id=4, cluster_id="ignored")
    assert codec.decode(m.MetadataResponse, codec.encode(response, 1), 1) == m.MetadataResponse(controller_id=4)


@pytest.mark.parametrize(
    ("message", "version", "complaint"),
    [
        (m.MetadataRequest(include_cluster_authorized_operations=True), 7, "does not exist in this version"),
        (m.MetadataRequest(topics=None), 0, "topics must not be null"),
        (m.HeartbeatRequest(group_id=None), 4, "group_id must not be null"),  # type: ignore[arg-type]
        (m.HeartbeatRequest(generation_id=1 << 31), 4, "generation_id must be of type int32, not 2147483648"),
        (m.HeartbeatRequest(generation_id="1"), 4, "generation_id must be of type int32, not '1'"),  # type: ignore[arg-type]
        (m.HeartbeatRequest(group_id="x" * 32768), 4, "group_id is 32768 bytes long, but the limit is 32767"),
        (m.HeartbeatRequest(group_id="x" * 32768), 3, "group_id is 32768 bytes long, but the limit is 32767"),
        (m.HeartbeatRequest(group_id="\ud800"), 4, "group_id has surrogates"),
        (m.HeartbeatRequest(group_id=b"bytes"), 4, "group_id must be a string"),  # type: ignore[arg-type]
        (m.TopicRecord(topic_id=Uuid(bytes(15))), 0, "topic_id must be an id of 16 bytes"),
        (m.PartitionRecord(replicas=[1, 1 << 40]), 0, "replicas has an element that must be of type int32"),
        (m.PartitionRecord(replicas=[None] * 20), 0, "replicas has an element that must be of type int32"),  # type: ignore[list-item]
        (m.SaslAuthenticateRequest(auth_bytes="text"), 2, "auth_bytes must be bytes"),  # type: ignore[arg-type]
        (m.MetadataResponse(topics=[m.MetadataRequest.MetadataRequestTopic()]), 12, "expected a MetadataResponseTopic"),  # type: ignore[list-item]
        (m.MetadataRequest(), 99, "MetadataRequest has versions 0-13, not 99"),
        (m.StopReplicaRequest(), 0, "StopReplicaRequest has versions none, not 0"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_fields_name(message: Any, version: int, complaint: str) -> None:
    with pytest.raises(EncodeError, match=complaint):
        codec.encode(message, version)


def test_a_version_that_does_not_exist_cannot_be_read() -> None:
    with pytest.raises(DecodeError, match="MetadataRequest has versions 0-13, not 14"):
        codec.decode(m.MetadataRequest, b"", 14)


def test_an_ignorable_field_is_dropped_in_a_version_that_lacks_it() -> None:
    assert codec.encode(m.MetadataResponse(throttle_time_ms=5), 0) == codec.encode(m.MetadataResponse(), 0)


def test_ids_default_to_zero() -> None:
    assert m.TopicRecord().topic_id == ZERO_UUID
