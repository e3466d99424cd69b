"""The records of the metadata log as JSON, and those about segments in remote storage as Kafka's log has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.kafka.files.dump_log.decoders import UnreadableRecordError
from barnabas.protocol import uuids
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.compiler.structs import message_class
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.json_form import json_form, json_text
from barnabas.protocol.metadata_records import FRAME_VERSION, RECORD_NAMES
from barnabas.protocol.varint import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.cli.kafka.files.dump_log.careful_records import RawRecord
    from barnabas.protocol.compiler.structs import Message

_INT16_MAX: Final = (1 << 15) - 1
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")
_NO_VALUE: Final = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)
_REMOTE_RECORDS: Final = {
    0: "RemoteLogSegmentMetadataRecord",
    1: "RemoteLogSegmentMetadataUpdateRecord",
    2: "RemotePartitionDeleteMetadataRecord",
    3: "RemoteLogSegmentMetadataSnapshotRecord",
}


def metadata_decoder(record: RawRecord) -> tuple[None, str]:
    try:
        message, version = _framed(record.value, RECORD_NAMES)
    except UnreadableRecordError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    kind = _WORD.sub("_", type(message).__name__).upper()
    return None, json_text({"type": kind, "version": version, "data": json_form(message, version)})


def remote_log_metadata_decoder(record: RawRecord) -> tuple[None, str]:
    try:
        if record.value is None:
            raise UnreadableRecordError(_NO_VALUE)
        message, _ = _framed(record.value, _REMOTE_RECORDS)
        return None, _SHOWN[type(message).__name__](message)
    except UnreadableRecordError as error:
        return None, f"Error at offset {record.offset}, skipping. {error}"


def _framed(value: bytes | None, names: Mapping[int, str]) -> tuple[Message, int]:
    value = value or b""
    frame_version, position = _unsigned(value, 0, "frame version")
    if frame_version == 0:
        raise UnreadableRecordError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release "
            "of KRaft in 2.8 to newer versions are not supported."
        )
    if frame_version != FRAME_VERSION:
        raise UnreadableRecordError(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {FRAME_VERSION} is supported)"
        )
    kind, position = _unsigned(value, position, "type")
    version, position = _unsigned(value, position, "version")
    if kind not in names:
        raise UnreadableRecordError(
            f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {kind}"
        )
    try:
        message, position = decode_prefix(message_class(names[kind]), value, version, position)
    except DecodeError:
        raise UnreadableRecordError(f"Failed to deserialize record with type {kind}") from None
    if position < len(value):
        raise UnreadableRecordError(f"Found {len(value) - position} byte(s) of garbage after {kind}")
    return message, version


def _unsigned(data: bytes, position: int, what: str) -> tuple[int, int]:
    try:
        value, position = read_uvarint(data, position)
    except DecodeError:
        raise UnreadableRecordError(f"Error while reading {what}") from None
    if value > _INT16_MAX:
        raise UnreadableRecordError(f"Value for {what} was too large.")
    return value, position


_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_DELETION_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def _state(number: int, names: tuple[str, ...]) -> str:
    return names[number] if 0 <= number < len(names) else "null"


def _partition(entry: Any) -> str:
    return f"{uuids.to_text(entry.id)}:{entry.name}-{entry.partition}"


def _segment_id(entry: Any) -> str:
    return (
        f"RemoteLogSegmentId{{topicIdPartition={_partition(entry.topic_id_partition)}, id={uuids.to_text(entry.id)}}}"
    )


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _epochs(entries: list[Any]) -> str:
    offsets = dict(sorted((each.leader_epoch, each.offset) for each in entries))
    return "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in offsets.items()) + "}"


def _segment(record: Any) -> str:
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(record.remote_log_segment_id)}, "
        f"startOffset={record.start_offset}, endOffset={record.end_offset}, brokerId={record.broker_id}, "
        f"maxTimestampMs={record.max_timestamp_ms}, eventTimestampMs={record.event_timestamp_ms}, "
        f"segmentLeaderEpochs={_epochs(record.segment_leader_epochs)}, "
        f"segmentSizeInBytes={record.segment_size_in_bytes}, customMetadata={_custom(record.custom_metadata)}, "
        f"state={_state(record.remote_log_segment_state, _SEGMENT_STATES)}, "
        f"txnIdxEmpty={str(record.txn_index_empty).lower()}}}"
    )


def _segment_update(record: Any) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(record.remote_log_segment_id)}, "
        f"customMetadata={_custom(record.custom_metadata)}, "
        f"state={_state(record.remote_log_segment_state, _SEGMENT_STATES)}, "
        f"eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
    )


def _deletion(record: Any) -> str:
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(record.topic_id_partition)}, "
        f"state={_state(record.remote_partition_delete_state, _DELETION_STATES)}, "
        f"eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
    )


def _segment_snapshot(record: Any) -> str:
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={uuids.to_text(record.segment_id)}, "
        f"startOffset={record.start_offset}, endOffset={record.end_offset}, "
        f"maxTimestampMs={record.max_timestamp_ms}, segmentLeaderEpochs={_epochs(record.segment_leader_epochs)}, "
        f"segmentSizeInBytes={record.segment_size_in_bytes}, customMetadata={_custom(record.custom_metadata)}, "
        f"state={_state(record.remote_log_segment_state, _SEGMENT_STATES)}, "
        f"txnIdxEmpty={str(record.txn_index_empty).lower()}}}"
    )


_SHOWN: Final[dict[str, Callable[[Any], str]]] = {
    "RemoteLogSegmentMetadataRecord": _segment,
    "RemoteLogSegmentMetadataUpdateRecord": _segment_update,
    "RemotePartitionDeleteMetadataRecord": _deletion,
    "RemoteLogSegmentMetadataSnapshotRecord": _segment_snapshot,
}
