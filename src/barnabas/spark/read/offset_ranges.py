"""Ranges of offsets, and how they are cut into the pieces that tasks read.

Everything here is arithmetic on offsets: where a batch ends within the limits of a trigger, and how large ranges are
cut. What the cluster says is passed in as arguments.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.spark.read.topic_positions import Offsets, TopicPartition


class OffsetRange(NamedTuple):
    """Records of one partition, from `start` up to but not including `end`: what one task reads.

    Not every offset in between has a record: transaction markers take offsets, and compaction leaves gaps.
    """

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"


def plan_ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """One range for each partition that has anything between the two positions, in order."""
    return [
        OffsetRange(topic, partition, start[topic, partition], stop)
        for (topic, partition), stop in sorted(end.items())
        if stop > start[topic, partition]
    ]


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cuts ranges so that none has more than `max_records` offsets and there are about `min_partitions` of them.

    Each range is cut into a number of pieces proportional to its share of all offsets, at least one.
    """
    pieces = [1 if max_records is None else -(-each.size // max_records) for each in ranges]
    total = sum(each.size for each in ranges)
    if min_partitions is not None and sum(pieces) < min_partitions:
        pieces = [
            max(count, round(each.size * min_partitions / total)) for each, count in zip(ranges, pieces, strict=True)
        ]
    return [piece for each, count in zip(ranges, pieces, strict=True) for piece in cut(each, count)]


def cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """A range in `count` pieces whose sizes differ by at most one; fewer pieces if it has fewer offsets."""
    count = max(1, min(count, whole.size))
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=low, end=high) for low, high in pairwise(bounds)]


def count_between(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between two positions."""
    return sum(max(0, stop - start[place]) for place, stop in end.items())


def limit_end(start: Offsets, latest: Offsets, max_offsets: int) -> Offsets:
    """Where a batch of at most `max_offsets` ends; each partition gets a share in proportion to its backlog.

    Every partition with a backlog gets one offset before the rest is shared out, so that large ones do not starve small
    ones. The limit is exceeded only if there are more such partitions than offsets, and then by the difference.
    """
    behind = {place: stop - start[place] for place, stop in latest.items() if stop > start[place]}
    waiting = sum(behind.values())
    if waiting <= max_offsets:
        return dict(latest)
    spare = max(0, max_offsets - len(behind))
    rest = max(1, waiting - len(behind))
    return latest | {place: start[place] + 1 + (count - 1) * spare // rest for place, count in behind.items()}


def is_worth_a_batch(waiting: int, min_offsets: int, since_last_batch_ms: int | None, max_delay_ms: int) -> bool:
    """Whether enough offsets are waiting, or have waited long enough. The first batch of a run does not wait."""
    return waiting >= min_offsets or since_last_batch_ms is None or since_last_batch_ms >= max_delay_ms


def without_missed(ranges: Iterable[OffsetRange], earliest: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """What is left of ranges without the offsets that are gone."""
    kept = (each._replace(start=max(each.start, earliest[each.topic, each.partition])) for each in ranges)
    return [each for each in kept if each.size > 0]


def clamp(offsets: Offsets, first: Offsets, last: Offsets) -> Offsets:
    """The nearest offsets that exist in the partitions."""
    return {place: min(max(offset, first[place]), last[place]) for place, offset in offsets.items()}
