"""The records about segments in remote storage, in one line each, as Kafka's log has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.kafka.files.dump_log.decoders import UnreadableRecordError
from barnabas.cli.kafka.files.dump_log.metadata_records import framed_message
from barnabas.protocol import uuids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.kafka.files.dump_log.careful_records import RawRecord

_RECORD_NAMES: Final = {
    0: "RemoteLogSegmentMetadataRecord",
    1: "RemoteLogSegmentMetadataUpdateRecord",
    2: "RemotePartitionDeleteMetadataRecord",
    3: "RemoteLogSegmentMetadataSnapshotRecord",
}

_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_DELETION_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


_NO_VALUE: Final = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)


def remote_log_metadata_decoder(record: RawRecord) -> tuple[None, str]:
    try:
        if record.value is None:
            raise UnreadableRecordError(_NO_VALUE)
        message, _ = framed_message(record.value, _RECORD_NAMES)
        return None, _SHOWN[type(message).__name__](message)
    except UnreadableRecordError as error:
        return None, f"Error at offset {record.offset}, skipping. {error}"


def _state(number: int, names: Sequence[str], complaint: str = "state can not be null") -> str:
    if not 0 <= number < len(names):
        raise UnreadableRecordError(complaint)
    return names[number]


def _partition(entry: Any) -> str:
    return f"{uuids.to_text(entry.id)}:{entry.name}-{entry.partition}"


def _segment_id(entry: Any) -> str:
    return (
        f"RemoteLogSegmentId{{topicIdPartition={_partition(entry.topic_id_partition)}, id={uuids.to_text(entry.id)}}}"
    )


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _epochs(entries: list[Any]) -> str:
    offsets = {each.leader_epoch: each.offset for each in entries}
    if not offsets:
        raise UnreadableRecordError("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(offsets.items())) + "}"


def _segment(record: Any) -> str:
    if record.start_offset < 0:
        raise UnreadableRecordError(
            f"Unexpected start offset = {record.start_offset}. StartOffset for a remote segment cannot be negative"
        )
    if record.end_offset < record.start_offset:
        raise UnreadableRecordError(
            f"Unexpected end offset = {record.end_offset}. EndOffset for a remote segment cannot be less than "
            f"startOffset = {record.start_offset}"
        )
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
        f"state={_state(record.remote_partition_delete_state, _DELETION_STATES, 'null')}, "
        f"eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
    )


def _segment_snapshot(record: Any) -> str:
    state = _state(record.remote_log_segment_state, _SEGMENT_STATES)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={uuids.to_text(record.segment_id)}, "
        f"startOffset={record.start_offset}, endOffset={record.end_offset}, "
        f"maxTimestampMs={record.max_timestamp_ms}, segmentLeaderEpochs={_epochs(record.segment_leader_epochs)}, "
        f"segmentSizeInBytes={record.segment_size_in_bytes}, customMetadata={_custom(record.custom_metadata)}, "
        f"state={state}, "
        f"txnIdxEmpty={str(record.txn_index_empty).lower()}}}"
    )


_SHOWN: Final[dict[str, Callable[[Any], str]]] = {
    "RemoteLogSegmentMetadataRecord": _segment,
    "RemoteLogSegmentMetadataUpdateRecord": _segment_update,
    "RemotePartitionDeleteMetadataRecord": _deletion,
    "RemoteLogSegmentMetadataSnapshotRecord": _segment_snapshot,
}
