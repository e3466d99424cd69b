"""Cleaning one log: what a worker process is ordered to do, and what it answers.

The cleaning is a generator, and goes on only when it is asked to. So its owner can hold it back, which keeps to
`log.cleaner.io.max.bytes.per.second`, and can leave it. How it is done is in `two_passes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.log.producers.aborted_txns import AbortedTxn, Outline
    from barnabas.log.producers.producer_state import LastOfProducer
    from barnabas.ports import Disk


class UncleanableLogError(Exception):
    """A log holds something that cannot be read, so that nobody knows what may go. The message names the file."""


class SegmentToClean(NamedTuple):
    base_offset: int
    bytes: int
    end_offset: int
    """Where the next segment begins."""


class CleaningOrder(NamedTuple):
    """What is to be cleaned, and by which rules."""

    folder: str
    segments: tuple[SegmentToClean, ...]
    """All from the beginning of the log to the first that must not be cleaned."""
    later_segments: tuple[int, ...]
    """The base offsets of the closed ones after these: transactions that begin before them may end there."""
    aborted_later: tuple[AbortedTxn, ...]
    """Aborted transactions whose markers are in the active segment."""
    first_dirty_offset: int
    end_offset: int
    """That of the first segment that must not be cleaned."""
    last_of_producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    map_load_factor: float
    step_bytes: int
    """After so many, read or written, the owner is asked whether to go on."""


class Progress(NamedTuple):
    bytes: int
    """Read and written since the last step."""


class CleanedSegment(NamedTuple):
    """A new segment, in files whose names end in `.cleaned`."""

    base_offset: int
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    replaces: tuple[int, ...]
    """The base offsets of the segments whose records it holds."""
    aborted: Outline | None
    """Of its index of aborted transactions, if it has one."""


class CleaningDone(NamedTuple):
    end_offset: int
    """The log is clean up to here."""
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keyless_records: int


Step: TypeAlias = Progress | CleanedSegment | CleaningDone


def clean_log(disk: Disk, order: CleaningOrder) -> Iterator[Step]:
    """Cleans a log, step by step; the last step is `CleaningDone`. Raises UncleanableLogError or OSError."""
    # NumPy comes with this, and has no place in the process of the node, which imports the rest.
    from barnabas.log.cleaning.two_passes import TwoPasses

    return TwoPasses(disk, order).run()
