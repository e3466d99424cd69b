"""The image that a snapshot, a segment of the metadata log, or both hold, read without changing anything.

What cannot be read or applied is left out with a word about it: this is for looking into what is broken.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.files.dump_log.careful_records import careful_records
from barnabas.cli.kafka.files.dump_log.file_names import suffix_of
from barnabas.cli.kafka.files.dump_log.log_file import INT32_MAX, LogFile
from barnabas.cli.kafka.tool import ToolError, warn
from barnabas.log.folder.data_dir import LOCK
from barnabas.log.segments.file_names import LOG, partition_folder
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.replay import ImageReplay, ReplayError
from barnabas.protocol import messages as m
from barnabas.protocol.batch import read_header
from barnabas.protocol.control_records import decode_control_record
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.metadata_records import decode_record
from barnabas.raft.folder.metadata_log import TOPIC
from barnabas.raft.folder.snapshots import parse_name, snapshot_name

if TYPE_CHECKING:
    from barnabas.cli.kafka.files.dump_log.log_file import FoundBatch

_CLUSTER_ID: Final = ""
"""It is not in the metadata log, and not shown."""


def image_of_file(path: str) -> MetadataImage:
    """What a snapshot or one segment holds."""
    check_unlocked(os.path.dirname(os.path.dirname(path)) or ".")
    replay = ImageReplay(MetadataImage(_CLUSTER_ID))
    _replay_file(replay, path, -1)
    return _published(replay)


def image_of_folder(folder: str) -> MetadataImage:
    """The newest snapshot and the log after it; `folder` is that of the metadata log, or the one above it."""
    inner = os.path.join(folder, partition_folder(TOPIC, 0))
    if os.path.isdir(inner):
        folder = inner
    check_unlocked(os.path.dirname(os.path.abspath(folder)))
    names = os.listdir(folder)
    snapshots = sorted(found for name in names if (found := parse_name(name)) is not None)
    replay = ImageReplay(MetadataImage(_CLUSTER_ID))
    end_offset = 0
    if snapshots:
        _replay_file(replay, os.path.join(folder, snapshot_name(snapshots[-1])), -1)
        end_offset = snapshots[-1].end_offset
    for name in sorted(name for name in names if suffix_of(name) == LOG):
        _replay_file(replay, os.path.join(folder, name), end_offset)
    if not snapshots and not any(suffix_of(name) == LOG for name in names):
        raise ToolError(f"Unexpected error: {folder} has neither snapshots nor segments of a metadata log")
    return _published(replay)


def check_unlocked(folder: str) -> None:
    """ToolError if a node runs on this folder. It may begin to while somebody looks, which harms neither."""
    path = os.path.join(folder, LOCK)
    try:
        with open(path, "rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return
    except PermissionError:
        # Of somebody else: there is no telling, and nothing is written anyway.
        return
    except OSError:
        raise ToolError(
            f"Unexpected error: Unable to lock {os.path.abspath(folder)}. Please ensure that no broker or controller "
            "process is using this directory before proceeding."
        ) from None


def _replay_file(replay: ImageReplay, path: str, start_offset: int) -> None:
    """Applies what is at `start_offset` or after it."""
    with LogFile(path) as file:
        try:
            for batch in file.batches(0, file.end_of(0, INT32_MAX)):
                if batch.last_offset >= start_offset:
                    _replay_batch(replay, batch)
        except ToolError as error:
            warn(error.message)


def _replay_batch(replay: ImageReplay, batch: FoundBatch) -> None:
    header = read_header(batch.data)
    for record in careful_records(batch, header):
        try:
            if header.is_control:
                _, message = decode_control_record(record.key or b"", record.value or b"")
                if isinstance(message, m.LeaderChangeMessage):
                    replay.set_controller(message.leader_id)
            else:
                replay.apply_records([decode_record(record.value or b"")[0]])
        except (DecodeError, ReplayError) as error:
            warn(f"unable to read metadata record at offset {record.offset}: {error}")
    if not header.is_control:
        replay.skip_batch(
            last_offset=header.last_offset, epoch=header.partition_leader_epoch, timestamp_ms=header.max_timestamp
        )


def _published(replay: ImageReplay) -> MetadataImage:
    replay.publish()
    return replay.image
