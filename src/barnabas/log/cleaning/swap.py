"""Putting a cleaned segment in place of those whose records it holds, so that a crash at any moment loses nothing.

1. The new files, which are on the device, go from `.cleaned` to `.swap`, the one with the batches first. As long as one
   of them is still named `.cleaned`, nothing is decided: the next start removes them all.
2. From then on the swap is decided: the next start completes it. The old files are renamed to `.deleted`.
3. The new files get the names of a segment, the one with the batches first: what has the name of a segment's index
   while that is still named `.swap` belongs to an old one.

These are Kafka's names and Kafka's order, so that either broker completes what the other has begun. Files of old
segments that are being read stay open for their readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.folder.deletion import FILES_OF_SEGMENT, unlink_if_there
from barnabas.log.segments.file_names import (
    CLEANED,
    DELETED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    offset_file,
)

if TYPE_CHECKING:
    from barnabas.log.cleaning.log_cleaning import CleanedSegment, CleaningOrder
    from barnabas.log.segments.segment import Segment
    from barnabas.ports import Disk


class Cleaning(NamedTuple):
    """A cleaning that is under way, as the log's owner remembers it."""

    order: CleaningOrder
    segments: tuple[Segment, ...]
    """Those of the order."""
    truncations: int
    """How often the log had been truncated when it began."""


class CleaningLimits(NamedTuple):
    map_bytes: int
    map_load_factor: float
    step_bytes: int


def decide(disk: Disk, folder: str, cleaned: CleanedSegment) -> None:
    """Renames from `.cleaned` to `.swap`. Raises OSError with nothing decided, and nothing left."""
    try:
        for suffix in _suffixes(cleaned):
            path = offset_file(folder, cleaned.base_offset, suffix)
            disk.rename(path + CLEANED, path + SWAP)
    except OSError:
        discard(disk, folder, cleaned)
        raise


def retire(disk: Disk, folder: str, cleaned: CleanedSegment) -> tuple[str, ...]:
    """Renames the files of the old segments to `.deleted`; returns their new names. The snapshot of producers before
    the first of them stays: the new segment begins there. Raises OSError as soon as one cannot be renamed: an index of
    an old segment must not be taken for one of the new."""
    retired = []
    for base_offset in cleaned.replaces:
        for suffix in SEGMENT_FILES if base_offset == cleaned.base_offset else FILES_OF_SEGMENT:
            path = offset_file(folder, base_offset, suffix)
            try:
                disk.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            retired.append(path + DELETED)
    return tuple(retired)


def complete(disk: Disk, folder: str, cleaned: CleanedSegment) -> None:
    """Renames from `.swap` to the names of a segment."""
    for suffix in _suffixes(cleaned):
        path = offset_file(folder, cleaned.base_offset, suffix)
        disk.rename(path + SWAP, path)


def discard(disk: Disk, folder: str, cleaned: CleanedSegment) -> None:
    """Removes the files of a cleaned segment that is not wanted. What is still named `.cleaned` goes last: until then
    it says that nothing was decided."""
    for mark in (SWAP, CLEANED):
        for suffix in _suffixes(cleaned):
            unlink_if_there(disk, offset_file(folder, cleaned.base_offset, suffix + mark))


def _suffixes(cleaned: CleanedSegment) -> tuple[str, ...]:
    return (LOG, OFFSET_INDEX, TIME_INDEX) if cleaned.aborted is None else (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
