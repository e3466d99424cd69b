"""The names of a partition's files and folder on disk: Kafka's names.

A segment's files carry the segment's base offset as 20 digits, so that names sort as offsets do. A partition's folder
is `<topic>-<partition>`; one that is being deleted is `<topic>-<partition>.<32 hex digits>-delete`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
PRODUCER_SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

SEGMENT_FILES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

DELETE_FOLDER = "-delete"
FUTURE_FOLDER = "-future"
STRAY_FOLDER = "-stray"

FOLDER_NAME_LENGTH_MAX = 255
_OFFSET_FILE = re.compile(r"(\d{20})(\.(?:log|index|timeindex|txnindex|snapshot))")
_MARKED_FOLDER = re.compile(r"(\S+)-(\S+)\.(\S+)(-delete|-future|-stray)")


class FolderName(NamedTuple):
    """The parts of the name of a partition's folder."""

    topic: str
    partition: int
    mark: str
    """Empty, or one of `-delete`, `-future`, `-stray`."""


def offset_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offset_file(folder: str, base_offset: int, suffix: str) -> str:
    """The path of one of a segment's files, or of the producer snapshot at an offset."""
    return f"{folder}/{base_offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a segment's file or a producer snapshot; None for any other name."""
    match = _OFFSET_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def partition_folder(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_folder(topic: str, partition: int, unique_hex: str, mark: str) -> str:
    """The name under which a partition's folder is renamed away, short enough for any file system."""
    tail = f"-{partition}.{unique_hex}{mark}"
    return topic[: FOLDER_NAME_LENGTH_MAX - len(tail)] + tail


def parse_folder(name: str) -> FolderName | None:
    """The parts of a folder's name; None if it is not the name of a partition's folder."""
    mark = ""
    if name.endswith((DELETE_FOLDER, FUTURE_FOLDER, STRAY_FOLDER)):
        match = _MARKED_FOLDER.fullmatch(name)
        if match is None:
            return None
        name, mark = f"{match[1]}-{match[2]}", match[4]
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    return FolderName(topic, int(partition), mark)
