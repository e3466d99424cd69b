"""Which bytes a reader gets: a range of one segment's file, to be sent as it is; and what of it was aborted.

The range begins with the batch that holds the wanted offset and ends where the reader may see no further, or where it
wants no more. It ends between two batches where that is known without a look at the file; elsewhere it may end within
one, as Kafka's answers do, and the reader fetches that batch again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.index import CorruptIndexError
from barnabas.log.positions import FileRange

if TYPE_CHECKING:
    from barnabas.log.aborted_txns import AbortedTxn
    from barnabas.log.positions import LogPosition
    from barnabas.log.segments import Segments


def range_from(
    segments: Segments, offset: int, max_bytes: int, limit: LogPosition, *, whole_first_batch: bool
) -> FileRange | None:
    """The bytes from the batch that holds `offset` up to `limit`; None when there are none to give."""
    place = segments.find(offset)
    if place is None:
        return None
    segment, position, first_size = place
    if segment.base_offset == limit.segment:
        end = limit.position
    elif segment.base_offset < limit.segment:
        end = segment.size
    else:
        return None
    if max_bytes < first_size:
        if not whole_first_batch:
            return None
        max_bytes = first_size
    length = end - position
    if length <= 0:
        return None
    if length > max_bytes:
        length = segment.whole_batches(position, max_bytes)
    return FileRange(segments.open_file(segment), position, length)


def aborted_in_range(segments: Segments, found: FileRange, offset: int, log_end_offset: int) -> list[AbortedTxn]:
    """The aborted transactions that may have records in a range that was read from `offset` on. Where the sparse index
    does not tell which offset the range ends with, there are more than needed, and a reader passes them over."""
    if not segments.aborted_txns:
        return []
    number = segments.number_of(offset)
    while segments.all[number].file is not found.file:
        number += 1
    segment = segments.all[number]
    end_offset = segments.offset_from_position(segment, found.position + found.length)
    if end_offset is None:
        is_last = number + 1 == len(segments.all)
        end_offset = log_end_offset if is_last else segments.all[number + 1].base_offset
    return aborted_between(segments, offset, end_offset)


def aborted_between(segments: Segments, offset: int, end_offset: int) -> list[AbortedTxn]:
    """The aborted transactions that have records between two offsets, in the order of their end markers."""
    base = segments.all[segments.number_of(offset)].base_offset
    try:
        return segments.aborted_txns.between(base, offset, end_offset)
    except (OSError, CorruptIndexError) as error:
        raise segments.storage_error("read the aborted transactions of", error) from error
