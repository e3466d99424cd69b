"""Records that should have been read and are gone: how that is detected, and how it is reported.

An offset without a record is not a loss in itself: transaction markers take offsets, and compaction leaves gaps. A loss
is a partition or a range of offsets that the cluster no longer has, or never had.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.raw_options import OptionError
from barnabas.spark.read.offset_ranges import clamp
from barnabas.spark.read.topic_positions import SpecificOffsets

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from barnabas.spark.read.offset_ranges import OffsetRange
    from barnabas.spark.read.topic_positions import Offsets, Position, TopicPartition

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataLoss:
    """Offsets that should have been read and do not exist."""

    place: TopicPartition
    description: str

    def __str__(self) -> str:
        return f"{self.place[0]}-{self.place[1]}: {self.description}"


class DataLossError(Exception):
    """Records that should have been read are gone, and `failOnDataLoss` makes that an error."""

    def __init__(self, losses: Sequence[DataLoss]) -> None:
        super().__init__(losses)
        self.losses = tuple(losses)

    def __str__(self) -> str:
        return (
            f"records may have been lost: {describe(self.losses)}. Set option failOnDataLoss to false to continue with "
            "what is there, or start over with a new checkpoint"
        )


def describe(losses: Iterable[DataLoss]) -> str:
    return "; ".join(str(loss) for loss in losses)


def report(losses: Sequence[DataLoss], fail_on_data_loss: bool) -> None:
    """Fails because of lost data, or logs it and carries on, as `failOnDataLoss` says."""
    if losses and fail_on_data_loss:
        raise DataLossError(losses)
    if losses:
        _log.warning("records may have been lost; continuing, because failOnDataLoss is false: %s", describe(losses))


def partitions_gone(start: Offsets, present: Iterable[TopicPartition]) -> list[DataLoss]:
    """Partitions that were read up to some offset and no longer exist."""
    return [
        DataLoss(
            place,
            f"it was read up to offset {start[place]} and is no longer there: it was deleted, or the options now name "
            "other topics",
        )
        for place in sorted(start.keys() - set(present))
    ]


def ends_moved_back(start: Offsets, latest: Offsets) -> list[DataLoss]:
    """Partitions that end before the offset up to which they have been read."""
    return [
        DataLoss(
            place,
            f"it was read up to offset {start[place]} and now ends at offset {stop}: "
            "the topic was deleted and recreated, or its log was truncated",
        )
        for place, stop in sorted(latest.items())
        if stop < start.get(place, 0)
    ]


def ranges_gone(ranges: Iterable[OffsetRange], present: Container[TopicPartition]) -> list[DataLoss]:
    """Ranges of partitions that no longer exist."""
    gone = [each for each in ranges if (each.topic, each.partition) not in present]
    return _unread(gone, "but it no longer exists")


def ranges_replaced(ranges: Iterable[OffsetRange], topics: Container[str]) -> list[DataLoss]:
    """Ranges of topics that were deleted and recreated since they were planned."""
    return _unread([each for each in ranges if each.topic in topics], "but the topic was deleted and recreated")


def _unread(ranges: Iterable[OffsetRange], what_happened: str) -> list[DataLoss]:
    return [
        DataLoss(
            (each.topic, each.partition),
            f"offsets {each.start} to {each.end - 1} were to be read, {what_happened}",
        )
        for each in ranges
    ]


def starts_missed(ranges: Iterable[OffsetRange], earliest: Mapping[TopicPartition, int]) -> list[DataLoss]:
    """Ranges that begin before the log start offset."""
    return [
        DataLoss(
            (each.topic, each.partition),
            f"offsets {each.start} to {min(first, each.end) - 1} were to be read, but the log now starts at offset "
            f"{first}: retention or DeleteRecords removed them",
        )
        for each in ranges
        if (first := earliest[each.topic, each.partition]) > each.start
    ]


def gone_while_planning(places: Iterable[TopicPartition], present: Container[TopicPartition]) -> list[DataLoss]:
    """Partitions that existed when planning began and no longer do."""
    return [
        DataLoss(place, "it was to be read, but no longer exists") for place in sorted(places) if place not in present
    ]


def within(
    offsets: Offsets, position: Position, option: str, bounds: tuple[Offsets, Offsets], fail_on_data_loss: bool
) -> Offsets:
    """Requested offsets, moved to the nearest ones that exist; partitions that have no bounds are gone, and left out.

    An offset that a group has committed and that does not exist is lost data. One that a user named is a mistake, as
    far as anybody can tell.
    """
    first, last = bounds
    known = {place: offset for place, offset in offsets.items() if place in first and place in last}
    by_person = position.offsets if isinstance(position, SpecificOffsets) else None
    losses = [
        DataLoss(place, f"offset {offset} is requested, but the log goes from {first[place]} to {last[place]}")
        for place, offset in sorted(known.items())
        if not first[place] <= offset <= last[place] and (by_person is None or by_person[place] >= 0)
    ]
    if losses and fail_on_data_loss and by_person is not None:
        raise OptionError(
            option,
            f"names offsets that do not exist: {describe(losses)}; with failOnDataLoss=false the nearest ones are used",
        )
    report(losses, fail_on_data_loss)
    return clamp(known, first, last)
