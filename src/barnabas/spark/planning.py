"""What a read consists of: ranges of offsets, cut into the pieces that tasks read.

Everything here is arithmetic on offsets: where a batch ends under the limits of a trigger, and how large ranges are
cut. What the cluster says comes in as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.spark.offsets import Offsets, TopicPartition


class OffsetRange(NamedTuple):
    """Records of one partition, from `start` up to but not including `end`: what one task reads.

    Offsets in between need not have records: transaction markers take offsets, and compaction leaves gaps.
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


@dataclass(frozen=True)
class DataLoss:
    """Offsets that were to be read and are not there."""

    place: TopicPartition
    description: str

    def __str__(self) -> str:
        return f"{self.place[0]}-{self.place[1]}: {self.description}"


class DataLossError(Exception):
    """Records that were to be read are gone, and `failOnDataLoss` says that this is an error."""

    def __init__(self, losses: Sequence[DataLoss]) -> None:
        super().__init__(losses)
        self.losses = tuple(losses)

    def __str__(self) -> str:
        return (
            f"records may have been lost: {describe(self.losses)}. Set failOnDataLoss to false to go on with what is "
            "there, or start over with a new checkpoint"
        )


def describe(losses: Iterable[DataLoss]) -> str:
    return "; ".join(str(loss) for loss in losses)


def plan_ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """One range for each partition that has something between two positions, in order."""
    return [
        OffsetRange(topic, partition, start[topic, partition], stop)
        for (topic, partition), stop in sorted(end.items())
        if stop > start[topic, partition]
    ]


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Ranges cut so that none has more than `max_records` offsets and there are about `min_partitions` of them.

    Large ranges are cut first: each gets pieces according to its share of all offsets, and at least one.
    """
    pieces = [1 if max_records is None else -(-each.size // max_records) for each in ranges]
    total = sum(each.size for each in ranges)
    if min_partitions is not None and sum(pieces) < min_partitions:
        pieces = [
            max(count, round(each.size * min_partitions / total)) for each, count in zip(ranges, pieces, strict=True)
        ]
    return [piece for each, count in zip(ranges, pieces, strict=True) for piece in cut(each, count)]


def cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """A range in so many pieces, whose sizes differ by one at most; fewer where it has fewer offsets."""
    count = max(1, min(count, whole.size))
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=low, end=high) for low, high in pairwise(bounds)]


def count_between(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between two positions."""
    return sum(max(0, stop - start[place]) for place, stop in end.items())


def limit_end(start: Offsets, latest: Offsets, max_offsets: int) -> Offsets:
    """The position up to which a batch of at most `max_offsets` goes; each partition gets its share of what waits.

    Every partition that has data gets one offset before the rest is shared, so that small ones are not starved by large
    ones. Only where more partitions wait than there are offsets to give is the limit exceeded, by that much.
    """
    behind = {place: stop - start[place] for place, stop in latest.items() if stop > start[place]}
    waiting = sum(behind.values())
    if waiting <= max_offsets:
        return dict(latest)
    spare = max(0, max_offsets - len(behind))
    rest = max(1, waiting - len(behind))
    return latest | {place: start[place] + 1 + (count - 1) * spare // rest for place, count in behind.items()}


def is_worth_a_batch(waiting: int, min_offsets: int, since_last_batch_ms: int | None, max_delay_ms: int) -> bool:
    """Whether enough offsets wait, or have waited long enough. The first batch of a run does not wait."""
    return waiting >= min_offsets or since_last_batch_ms is None or since_last_batch_ms >= max_delay_ms


def without_missed(ranges: Iterable[OffsetRange], earliest: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """What is left of ranges when the offsets that are gone are taken away."""
    kept = (each._replace(start=max(each.start, earliest[each.topic, each.partition])) for each in ranges)
    return [each for each in kept if each.size > 0]


def clamp(offsets: Offsets, first: Offsets, last: Offsets) -> Offsets:
    """The nearest offsets that partitions have."""
    return {place: min(max(offset, first[place]), last[place]) for place, offset in offsets.items()}
