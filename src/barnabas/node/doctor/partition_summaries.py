"""What is in the partitions of a data folder, once their logs are open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.log.segments.segment import CorruptSegmentError
from barnabas.log.segments.segment_index import NO_TIMESTAMP, CorruptIndexError
from barnabas.node.doctor.report import PartitionSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.log.partition_log import PartitionLog


def summary_of(log: PartitionLog, high_watermarks: Mapping[TopicPartition, int]) -> PartitionSummary:
    return PartitionSummary(
        log.topic,
        log.partition,
        log.folder,
        len(log.segments.all),
        log.size_bytes,
        log.log_start_offset,
        log.log_end_offset,
        log.recovery_point,
        high_watermarks.get(TopicPartition(log.topic, log.partition)),
        _first_timestamp(log),
        _last_timestamp(log),
        len(log.producers.producers),
        log.producers.open_transactions,
    )


def _first_timestamp(log: PartitionLog) -> int | None:
    segments = log.segments
    first = next((segment for segment in segments.all if segment.size), None)
    if first is None:
        return None
    try:
        timestamp = first.load_first_timestamp(segments.disk, segments.files)
    except CorruptSegmentError:
        return None
    return None if timestamp == NO_TIMESTAMP else timestamp


def _last_timestamp(log: PartitionLog) -> int | None:
    """As the time indexes say. One that cannot be read is rebuilt by whoever looks for a time."""
    segments = log.segments
    try:
        latest = max(segment.load_max_timestamp(segments.disk) for segment in segments.all)
    except CorruptIndexError:
        return None
    return None if latest == NO_TIMESTAMP else latest
