"""Segments and snapshots: a line for each batch, and below it one for each record."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.kafka.files.dump_log.file_names import base_offset_in, name_of
from barnabas.cli.kafka.files.dump_log.log_file import INT32_MAX, LogFile
from barnabas.cli.kafka.files.dump_log.record_lines import put_records
from barnabas.cli.kafka.tool import ToolError
from barnabas.log.segments.file_names import LOG
from barnabas.protocol.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME_FLAG, crc_is_valid, read_header
from barnabas.protocol.compression import Codec
from barnabas.raft.folder.format import BOOTSTRAP_FILE
from barnabas.raft.folder.snapshots import parse_name

if TYPE_CHECKING:
    from barnabas.cli.kafka.files.dump_log.complaints import Complaints
    from barnabas.cli.kafka.files.dump_log.decoders import Decoder
    from barnabas.cli.kafka.files.dump_log.log_file import FoundBatch
    from barnabas.cli.kafka.files.dump_log.page import Page
    from barnabas.protocol.batch import BatchHeader

CODEC_NAMES: Final = {codec.value: codec.name.lower() for codec in Codec}
_FALSE_TRUE: Final = ("false", "true")
_SNAPSHOT_OFFSET_DIGITS: Final = 20


class Depth(NamedTuple):
    """What is shown of each record."""

    shows_metadata: bool
    decoder: Decoder | None
    """Shows key and value; without it neither is shown."""


def dump_log(path: str, depth: Depth | None, bytes_max: int, page: Page, complaints: Complaints) -> None:
    """Without a depth, batches only."""
    page.line(_heading(path))
    with LogFile(path) as file:
        end = file.end_of(0, bytes_max)
        valid_bytes = 0
        last_offset = -1
        full_path = os.path.abspath(path)
        for batch in file.batches(0, end):
            if batch.is_legacy:
                raise ToolError(
                    f"{path} has a batch of magic {batch.magic} at byte {batch.position}: "
                    f"what Kafka wrote before 0.11 is not shown here"
                )
            header = read_header(batch.data)
            _put_batch(batch, header, page)
            if depth is not None:
                last_offset = put_records(batch, header, depth, last_offset, page, complaints, full_path)
            valid_bytes += header.size
    if valid_bytes < end and bytes_max == INT32_MAX:
        page.line(f"Found {end - valid_bytes} invalid bytes at the end of {name_of(path)}")


def _heading(path: str) -> str:
    name = name_of(path)
    if name.endswith(LOG):
        return f"Log starting offset: {base_offset_in(path)}"
    if name == BOOTSTRAP_FILE:
        return "KRaft bootstrap snapshot"
    snapshot_id = parse_name(name)
    if snapshot_id is None:
        raise ToolError(f"begin 0, end {_SNAPSHOT_OFFSET_DIGITS}, length {len(name)}")
    return f"Snapshot end offset: {snapshot_id.end_offset}, epoch: {snapshot_id.epoch}"


def _put_batch(batch: FoundBatch, header: BatchHeader, page: Page) -> None:
    horizon = "OptionalLong.empty" if (ms := header.delete_horizon_ms) is None else f"OptionalLong[{ms}]"
    beginning = (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_FALSE_TRUE[header.is_transactional]} isControl: {_FALSE_TRUE[header.is_control]} "
        f"deleteHorizonMs: {horizon}"
    )
    codec = CODEC_NAMES.get(header.attributes & CODEC_MASK)
    if codec is None:
        page.text(beginning)
        raise ToolError(f"Unknown compression type id: {header.attributes & CODEC_MASK}")
    is_valid = header.size >= HEADER_SIZE and crc_is_valid(batch.data, 0, header.size)
    page.line(
        f"{beginning} position: {batch.position} {timestamp_type(header)}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} compresscodec: {codec} crc: {header.crc} "
        f"isvalid: {_FALSE_TRUE[is_valid]}"
    )


def timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.attributes & LOG_APPEND_TIME_FLAG else "CreateTime"
