"""Taking the end of a log away, as a follower does that has what its leader has not.

If a file of many cannot be removed, the log ends with it: what is told of the log is true at every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log import recovery

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog


def cut_from(log: PartitionLog, offset: int) -> None:
    """Removes everything from `offset` on, which is within the log. When a batch straddles the offset, it goes too."""
    segments = log.segments
    for segment in reversed(segments.all[segments.number_of(offset) + 1 :]):
        segments.drop((segment,))
        segments.active = segments.all[-1]
        _end_at(log, segment.base_offset)
    _end_at(log, segments.cut_active(offset))
    recovery.reload_producers(segments.disk, log.producers, segments.all, log.log_start_offset, log.log_end_offset)


def _end_at(log: PartitionLog, offset: int) -> None:
    log.log_end_offset = offset
    log.log_start_offset = min(log.log_start_offset, offset)
    log.recovery_point = min(log.recovery_point, offset)
