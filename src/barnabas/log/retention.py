"""Which segments a partition may drop: the oldest, if past the retention time or size, or before the log start.

A segment is dropped as a whole or not at all. It is as old as its newest record or, without timestamps, as its file.
Nothing at or after the high watermark goes. If even the active segment qualifies, the log rolls first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config.topic_config import DELETE

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.log.segments.segment import Segment
    from barnabas.log.segments.segment_list import Segments

    Rule = Callable[[Segment, int], bool]
    """Whether a segment, which ends before the given offset, may go."""


def count_expired(
    segments: Segments, *, log_start_offset: int, log_end_offset: int, high_watermark: int, now_ms: int
) -> int:
    """How many segments, from the oldest on, may go. Exceeding either limit, time or size, is enough."""
    config = segments.config
    rules: list[Rule] = [lambda segment, end: segment is not segments.active and end <= log_start_offset]
    if DELETE in config.cleanup_policy:
        if config.retention_bytes >= 0:
            rules.append(_beyond_size(segments, config.retention_bytes))
        if config.retention_ms >= 0:
            rules.append(_newest_record_before(segments, now_ms - config.retention_ms))
    return max(_leading(segments, rule, log_end_offset, high_watermark) for rule in rules)


def _leading(segments: Segments, is_expired: Rule, log_end_offset: int, high_watermark: int) -> int:
    ends = [segment.base_offset for segment in segments.all[1:]] + [log_end_offset]
    for number, (segment, end) in enumerate(zip(segments.all, ends, strict=True)):
        is_empty_last = segment is segments.active and not segment.size
        if end > high_watermark or is_empty_last or not is_expired(segment, end):
            return number
    return len(segments.all)


def _newest_record_before(segments: Segments, oldest_ms: int) -> Rule:
    def is_expired(segment: Segment, _: int) -> bool:
        timestamp = segments.max_timestamp_of(segment)
        return (timestamp if timestamp >= 0 else segments.modified_ms(segment)) < oldest_ms

    return is_expired


def _beyond_size(segments: Segments, retention_bytes: int) -> Rule:
    """A segment may go as long as what remains without it still reaches the limit."""
    excess = sum(segment.size for segment in segments.all) - retention_bytes

    def is_expired(segment: Segment, _: int) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0

    return is_expired
