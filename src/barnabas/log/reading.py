"""Which bytes a reader gets: a range of one segment's file, to be sent as it is.

The range begins with the batch that holds the wanted offset and ends where the reader may see no further, or where it
wants no more. It ends between two batches where that is known without a look at the file; elsewhere it may end within
one, as Kafka's answers do, and the reader fetches that batch again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.positions import FileRange

if TYPE_CHECKING:
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
