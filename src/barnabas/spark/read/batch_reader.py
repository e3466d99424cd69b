"""A batch read: what the options and pushed filters select from the topics, cut into ranges for tasks."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.spark.raw_options import OptionError
from barnabas.spark.read.data_loss import gone_while_planning, report, within
from barnabas.spark.read.offset_lookup import OffsetLookup
from barnabas.spark.read.offset_ranges import OffsetRange, plan_ranges, split_ranges
from barnabas.spark.read.pushdown import Pushed, push
from barnabas.spark.read.read_plan import RangePartition, read_partition
from barnabas.spark.read.source_options import SourceOptions, SubscribePattern
from barnabas.spark.read.topic_positions import (
    AtTimestamp,
    GroupOffsets,
    Offsets,
    SpecificOffsets,
    SpecificTimestamps,
    describe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow
    from pyspark.sql.datasource import Filter

    from barnabas.spark.read.read_plan import ReadPlan

_log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """What Spark calls when it plans a batch query, and in each of its tasks."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._plan.options
        for warning in self._plan.warnings:
            _log.warning("%s", warning)
        lookup = OffsetLookup(self._plan.settings, options)
        try:
            return [RangePartition(each) for each in plan_batch(lookup, options, self._pushed)]
        finally:
            lookup.close()

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_partition(self._plan, partition)


class FilteringBatchReader(BatchReader):
    """A reader that accepts filters. Spark refuses such a reader if filter pushdown is turned off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._pushed, left = push(filters)
        return left


def plan_batch(lookup: OffsetLookup, options: SourceOptions, pushed: Pushed) -> list[OffsetRange]:
    """The ranges that tasks read."""
    places = lookup.required()
    if not places and isinstance(options.selection, SubscribePattern):
        raise OptionError(
            "subscribePattern", f"is {options.selection.pattern!r}, which no topic of the cluster matches"
        )
    latest = cache(lambda: lookup.latest({}))
    start = _existing(lookup, options, "starting", lookup.start_of_read(places, latest), latest)
    end = _existing(lookup, options, "ending", lookup.end_of_read(places, latest), latest)
    # Partitions may appear or disappear meanwhile. Those that were found first are read.
    present = [place for place in places if place in start and place in end]
    report(gone_while_planning(places, present), options.fail_on_data_loss)
    start, end = ({place: offsets[place] for place in present} for offsets in (start, end))
    _check_order(options, start, end)
    ranges = plan_ranges(start, {place: offset for place, offset in end.items() if pushed.takes(place)})
    wanted = [pushed.within(each) for each in ranges]
    return split_ranges(
        _from_timestamp(lookup, pushed, [each for each in wanted if each.size > 0]),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )


def _existing(
    lookup: OffsetLookup, options: SourceOptions, side: str, offsets: Offsets, latest: Callable[[], Offsets]
) -> Offsets:
    """Offsets that exist in the partitions; those of users or groups may be gone, or not exist yet."""
    position = options.starting if side == "starting" else options.ending
    if not isinstance(position, SpecificOffsets | GroupOffsets):
        return offsets
    bounds = lookup.earliest(offsets), latest()
    return within(offsets, position, f"{side}Offsets", bounds, options.fail_on_data_loss)


def _check_order(options: SourceOptions, start: Offsets, end: Offsets) -> None:
    names = {
        AtTimestamp: "startingTimestamp",
        SpecificTimestamps: "startingOffsetsByTimestamp",
    }
    for place, first in sorted(start.items()):
        if first > end[place]:
            raise OptionError(
                names.get(type(options.starting), "startingOffsets"),
                f"puts the start of {describe([place])} at offset {first}, after its end at offset {end[place]}",
            )


def _from_timestamp(lookup: OffsetLookup, pushed: Pushed, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """Ranges without the records at their beginning that are older than the pushed timestamp."""
    if pushed.first_timestamp_ms is None or not ranges:
        return ranges
    timestamp_ms = pushed.first_timestamp_ms
    found = lookup.at_or_after({(each.topic, each.partition): timestamp_ms for each in ranges})
    later = []
    for each in ranges:
        first = found[each.topic, each.partition]
        if first is not None and first < each.end:
            later.append(each._replace(start=max(each.start, first)))
    return later
