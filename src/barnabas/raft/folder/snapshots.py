"""Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint`, which replaces the log up to that offset.

    control batch   SnapshotHeader, KRaftVersion, KRaftVoters
    data batches    the image as records
    control batch   SnapshotFooter

A snapshot is written under another name, synced, and renamed when it is complete. Without a footer it is invalid.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol import messages as m
from barnabas.protocol.batch import crc_is_valid, iter_headers
from barnabas.protocol.errors import DecodeError
from barnabas.raft.consensus.log_history import SnapshotId
from barnabas.raft.folder.metadata_batches import (
    DecodedBatch,
    control_batch,
    data_batch,
    decode_batch,
    voters_from_record,
    voters_messages,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.metadata.versions import VersionedRecord
    from barnabas.ports import Disk
    from barnabas.protocol.compiler.structs import Message
    from barnabas.raft.consensus.voter_sets import VoterNode

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
RECORDS_PER_BATCH = 1024
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_LEFTOVER = re.compile(r"\d{20}-\d{10}.*\.checkpoint\.(part|deleted)")
_READ_ONLY = 0o400


class Snapshot(NamedTuple):
    id: SnapshotId
    timestamp_ms: int
    """When the last batch in the snapshot was written to the log."""
    kraft_version: int
    voters: tuple[VoterNode, ...]
    records: tuple[Message, ...]


class CorruptCheckpointError(Exception):
    """A snapshot that is incomplete or invalid."""


def snapshot_name(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def parse_name(name: str) -> SnapshotId | None:
    match = _NAME.fullmatch(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def list_snapshots(disk: Disk, folder: str) -> list[SnapshotId]:
    """All snapshots in a folder, oldest first."""
    return sorted(filter(None, map(parse_name, disk.list_folder(folder))))


def remove_leftovers(disk: Disk, folder: str) -> None:
    """Removes snapshots that were never completed, or were only partly deleted."""
    for name in disk.list_folder(folder):
        if _LEFTOVER.fullmatch(name):
            disk.unlink(f"{folder}/{name}")


def write_snapshot(
    disk: Disk,
    folder: str,
    snapshot_id: SnapshotId,
    records: Iterable[VersionedRecord],
    voters: Sequence[VoterNode] | None,
    *,
    contained_timestamp_ms: int,
    now_ms: int,
) -> str:
    """Returns the path when the snapshot is durable. `voters` is None if they are not part of the log."""
    header: list[Message] = [m.SnapshotHeaderRecord(last_contained_log_timestamp=contained_timestamp_ms)]
    if voters is not None:
        header += voters_messages(voters)
    path = f"{folder}/{snapshot_name(snapshot_id)}"
    part = f"{folder}/{snapshot_name(snapshot_id).removesuffix(SUFFIX)}{PART_SUFFIX}"
    _write_durably(disk, part, _batches(header, records, snapshot_id.epoch, now_ms), mode=_READ_ONLY)
    disk.rename(part, path)
    disk.sync_dir(folder)
    return path


def write_bootstrap_file(disk: Disk, path: str, records: Iterable[VersionedRecord], *, now_ms: int) -> None:
    """Writes `bootstrap.checkpoint`: the records that the first leader of a new cluster appends."""
    header: list[Message] = [m.SnapshotHeaderRecord(last_contained_log_timestamp=0)]
    temporary = f"{path}.tmp"
    _write_durably(disk, temporary, _batches(header, records, 0, now_ms), mode=0o644)
    disk.rename(temporary, path)
    disk.sync_dir(os.path.dirname(path))


def read_snapshot(disk: Disk, folder: str, snapshot_id: SnapshotId, path: str | None = None) -> Snapshot:
    """`path` is that of the file, if it does not have its name yet."""
    path = path or f"{folder}/{snapshot_name(snapshot_id)}"
    timestamp_ms, kraft_version = 0, 0
    voters: tuple[VoterNode, ...] = ()
    records: list[Message] = []
    for batch in read_batches(disk, path):
        if batch.epoch != snapshot_id.epoch:
            raise CorruptCheckpointError(f"{path} has a batch of epoch {batch.epoch}")
        if not batch.is_control:
            records += batch.records
            continue
        for message in batch.records:
            if isinstance(message, m.SnapshotHeaderRecord):
                timestamp_ms = message.last_contained_log_timestamp
            elif isinstance(message, m.KRaftVersionRecord):
                kraft_version = message.kraft_version
            elif isinstance(message, m.VotersRecord):
                voters = voters_from_record(message)
    return Snapshot(snapshot_id, timestamp_ms, kraft_version, voters, tuple(records))


def read_range(
    disk: Disk, folder: str, snapshot_id: SnapshotId, position: int, max_bytes: int
) -> tuple[int, bytes] | None:
    """The size of a snapshot and the bytes at a position, none if that is not in it; None if there is no snapshot of
    this id. Blocks."""
    path = f"{folder}/{snapshot_name(snapshot_id)}"
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        size = disk.size(path)
        return size, disk.pread(fd, max_bytes, position) if 0 <= position < size else b""
    finally:
        disk.close(fd)


def read_batches(disk: Disk, path: str) -> Iterator[DecodedBatch]:
    """The batches of a snapshot or of bootstrap.checkpoint, with verified checksums, up to and including the footer."""
    data = _read_file(disk, path)
    is_whole, next_offset = False, 0
    try:
        for position, header in iter_headers(data):
            # The checksum does not cover the offset.
            if not crc_is_valid(data, position, header.size) or header.base_offset != next_offset:
                raise DecodeError(f"the batch at byte {position} fails its checksum or has a wrong offset")
            next_offset = header.next_offset
            batch = decode_batch(data[position : position + header.size], path)
            is_whole = any(isinstance(message, m.SnapshotFooterRecord) for message in batch.records)
            yield batch
    except DecodeError as error:
        raise CorruptCheckpointError(f"{path} cannot be read: {error}") from error
    if not is_whole:
        raise CorruptCheckpointError(f"{path} does not end with a footer")


def _batches(header: Sequence[Message], records: Iterable[VersionedRecord], epoch: int, now_ms: int) -> Iterator[bytes]:
    yield control_batch(header, base_offset=0, epoch=epoch, timestamp_ms=now_ms)
    offset = len(header)
    remaining = iter(records)
    while chunk := list(islice(remaining, RECORDS_PER_BATCH)):
        yield data_batch(chunk, base_offset=offset, epoch=epoch, timestamp_ms=now_ms)
        offset += len(chunk)
    yield control_batch([m.SnapshotFooterRecord()], base_offset=offset, epoch=epoch, timestamp_ms=now_ms)


def _write_durably(disk: Disk, path: str, parts: Iterable[bytes], *, mode: int) -> None:
    if disk.exists(path):
        disk.unlink(path)
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        position = 0
        for part in parts:
            view = memoryview(part)
            while view:
                written = disk.pwrite(fd, view, position)
                position += written
                view = view[written:]
        disk.fsync(fd)
    finally:
        disk.close(fd)


def _read_file(disk: Disk, path: str) -> bytes:
    fd = disk.open(path, os.O_RDONLY)
    try:
        return disk.pread(fd, disk.size(path), 0)
    finally:
        disk.close(fd)
