"""Which segments become one when a log is cleaned: as many small ones as a single one may hold.

But no more than a swap can take the place of in a few milliseconds, as it renames the files of each on the event loop.
What is left of a log of very many small segments becomes less with every cleaning.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.log.segments.segment_index import RELATIVE_OFFSET_MAX

GROUP_SEGMENTS_MAX: Final = 250


class SegmentSizes(NamedTuple):
    base_offset: int
    end_offset: int
    """Where the next segment begins."""
    bytes: int
    index_bytes: int = 0
    time_index_bytes: int = 0


def group_segments(
    segments: list[SegmentSizes], *, segment_bytes_max: int, index_bytes_max: int
) -> list[list[SegmentSizes]]:
    """Groups of neighbours, none of which is larger than a segment may be; one that is larger by itself stays alone."""
    groups: list[list[SegmentSizes]] = []
    sizes = (0, 0, 0)
    for segment in segments:
        sizes = (
            sizes[0] + segment.bytes,
            sizes[1] + segment.index_bytes,
            sizes[2] + segment.time_index_bytes,
        )
        is_small_enough = sizes[0] <= segment_bytes_max and max(sizes[1:]) <= index_bytes_max
        # Indexes count offsets from the first of the segment. A segment without batches has none to count.
        if (
            groups
            and is_small_enough
            and len(groups[-1]) < GROUP_SEGMENTS_MAX
            and (not segment.bytes or segment.end_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            sizes = (segment.bytes, segment.index_bytes, segment.time_index_bytes)
    return groups
