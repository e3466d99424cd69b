"""Records that were to be read and are gone: how that is noticed, and what it is called.

Offsets without records are no loss as such: transaction markers take offsets, and compaction leaves gaps. What counts
is a partition or a range of offsets that the cluster does not have any more, or never had.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.spark.given import OptionError
from barnabas.spark.offsets import SpecificOffsets
from barnabas.spark.planning import DataLoss, DataLossError, clamp, describe

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from barnabas.spark.offsets import Offsets, Position, TopicPartition
    from barnabas.spark.planning import OffsetRange

_log = logging.getLogger(__name__)


def report(losses: Sequence[DataLoss], fail_on_data_loss: bool) -> None:
    """Stop at lost data, or say so and go on: which one is for the user to choose."""
    if losses and fail_on_data_loss:
        raise DataLossError(losses)
    if losses:
        _log.warning("records may have been lost, and failOnDataLoss is false: %s", describe(losses))


def partitions_gone(start: Offsets, present: Iterable[TopicPartition]) -> list[DataLoss]:
    """Partitions that were read up to some offset and are not there any more."""
    return [
        DataLoss(
            place,
            f"it was read up to offset {start[place]} and is not there any more: it was deleted, or the options name "
            "other topics now",
        )
        for place in sorted(start.keys() - set(present))
    ]


def ends_moved_back(start: Offsets, latest: Offsets) -> list[DataLoss]:
    """Partitions that end before the offset up to which they were read."""
    return [
        DataLoss(
            place,
            f"it was read up to offset {start[place]} and now ends at offset {stop}: "
            "the topic was deleted and made again, or its log lost its end",
        )
        for place, stop in sorted(latest.items())
        if stop < start.get(place, 0)
    ]


def ranges_gone(ranges: Iterable[OffsetRange], present: Container[TopicPartition]) -> list[DataLoss]:
    """Ranges of partitions that do not exist any more."""
    gone = [each for each in ranges if (each.topic, each.partition) not in present]
    return _unread(gone, "and it does not exist any more")


def ranges_replaced(ranges: Iterable[OffsetRange], topics: Container[str]) -> list[DataLoss]:
    """Ranges of topics that were deleted and made again since they were planned."""
    return _unread([each for each in ranges if each.topic in topics], "then the topic was deleted and made again")


def _unread(ranges: Iterable[OffsetRange], what_happened: str) -> list[DataLoss]:
    return [
        DataLoss(
            (each.topic, each.partition),
            f"offsets {each.start} to {each.end - 1} were to be read, {what_happened}",
        )
        for each in ranges
    ]


def starts_missed(ranges: Iterable[OffsetRange], earliest: Mapping[TopicPartition, int]) -> list[DataLoss]:
    """Ranges whose first offsets are older than the oldest record that is kept."""
    return [
        DataLoss(
            (each.topic, each.partition),
            f"offsets {each.start} to {min(first, each.end) - 1} were to be read, and the log now starts at offset "
            f"{first}: retention or DeleteRecords removed them",
        )
        for each in ranges
        if (first := earliest[each.topic, each.partition]) > each.start
    ]


def gone_while_planning(places: Iterable[TopicPartition], present: Container[TopicPartition]) -> list[DataLoss]:
    """Partitions that were there when a read began to be planned."""
    return [
        DataLoss(place, "it was to be read, and does not exist any more")
        for place in sorted(places)
        if place not in present
    ]


def within(
    offsets: Offsets, position: Position, option: str, bounds: tuple[Offsets, Offsets], fail_on_data_loss: bool
) -> Offsets:
    """Offsets that partitions have, of those that are asked for by a position; partitions without bounds are gone.

    An offset that a group has committed and that is not there is lost. One that a person named is a mistake, as far as
    anybody can tell.
    """
    first, last = bounds
    known = {place: offset for place, offset in offsets.items() if place in first and place in last}
    by_person = position.offsets if isinstance(position, SpecificOffsets) else None
    losses = [
        DataLoss(place, f"offset {offset} is asked for, and the log goes from {first[place]} to {last[place]}")
        for place, offset in sorted(known.items())
        if not first[place] <= offset <= last[place] and (by_person is None or by_person[place] >= 0)
    ]
    if losses and fail_on_data_loss and by_person is not None:
        raise OptionError(
            option,
            f"names offsets that are not there: {describe(losses)}; with failOnDataLoss=false the nearest are taken",
        )
    report(losses, fail_on_data_loss)
    return clamp(known, first, last)
