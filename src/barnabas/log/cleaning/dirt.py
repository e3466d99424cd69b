"""How dirty a compacted log is, and how far it may be cleaned.

The clean part of a log reaches up to the first dirty offset, where the last cleaning ended. Behind it lies what may be
cleaned: whole segments, none of which is the active one, has an offset that is not committed or belongs to an open
transaction, or a record that is younger than `min.compaction.lag.ms`. A log is cleaned when these bytes are a large
enough part of what would be read (`min.cleanable.dirty.ratio`), or hold a record that has waited for longer than
`max.compaction.lag.ms`; the dirtiest one first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.topic_config import LONG_MAX

if TYPE_CHECKING:
    from barnabas.log.segments.segment_list import Segments


class Dirt(NamedTuple):
    first_dirty_offset: int
    end_offset: int
    """Where the first segment begins that must not be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether a record has waited for too long, so that the ratio does not matter."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_enough(self, least_ratio: float) -> bool:
        """Whether the log is to be cleaned."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > least_ratio)


def dirt_of(segments: Segments, *, first_dirty_offset: int, stable_offset: int, now_ms: int) -> Dirt:
    """`stable_offset` is the last stable offset, which is never above the high watermark. Raises KafkaError if an index
    cannot be read."""
    first_dirty = segments.number_of(first_dirty_offset)
    closed = segments.all[:-1]
    limit = min(stable_offset, segments.active.base_offset)
    least_lag_ms = segments.config.min_compaction_lag_ms
    if least_lag_ms > 0:
        for segment in closed[first_dirty:]:
            if segments.max_timestamp_of(segment) > now_ms - least_lag_ms:
                limit = min(limit, segment.base_offset)
                break
    end = segments.number_of(max(limit, first_dirty_offset))
    end_offset = segments.all[end].base_offset
    return Dirt(
        first_dirty_offset,
        end_offset,
        sum(segment.size for segment in segments.all if segment.base_offset < first_dirty_offset),
        sum(segment.size for segment in segments.all[first_dirty:end]),
        _is_overdue(segments, first_dirty, now_ms),
    )


def _is_overdue(segments: Segments, first_dirty: int, now_ms: int) -> bool:
    most_lag_ms = segments.config.max_compaction_lag_ms
    if most_lag_ms == LONG_MAX:
        return False
    return any(
        0 < segments.first_timestamp_of(segment) < now_ms - most_lag_ms for segment in segments.all[first_dirty:-1]
    )
