"""A streaming read, batch by batch: where it starts, how far the next batch goes, and what its tasks read.

Spark's checkpoint is the authority on what has been read, and on the ids of the topics it was read from; nothing that
the planner remembers besides has to survive a restart. Two cases need care for that reason:

- Spark does not record where a query started until its first batch is planned. If the start is a moving one (the latest
  offsets, or those of a group), the first batch is left empty: it only puts the start into the checkpoint, where a
  query that crashes at that point finds it again.
- If a partition has lost what was to be read next and `failOnDataLoss` is false, one batch ends at the new beginning of
  the partition and reads nothing from it. The next batch reads from there, even after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.uuids import ZERO_UUID
from barnabas.spark.read.data_loss import (
    DataLoss,
    ends_moved_back,
    partitions_gone,
    ranges_gone,
    ranges_replaced,
    report,
    starts_missed,
    within,
)
from barnabas.spark.read.offset_ranges import (
    OffsetRange,
    count_between,
    is_worth_a_batch,
    limit_end,
    plan_ranges,
    split_ranges,
    without_missed,
)
from barnabas.spark.read.topic_positions import (
    LATEST,
    GroupOffsets,
    Latest,
    Offsets,
    SpecificOffsets,
    TopicIds,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from barnabas.protocol.uuids import Uuid
    from barnabas.spark.read.source_options import SourceOptions


class Topics(Protocol):
    """What the planner asks of the cluster; `offset_lookup.OffsetLookup` answers it."""

    def required(self) -> Collection[TopicPartition]: ...

    def present(self) -> Mapping[TopicPartition, Uuid]: ...

    def earliest(self, places: Iterable[TopicPartition]) -> Offsets: ...

    def latest(self, known: Mapping[TopicPartition, int]) -> Offsets: ...

    def start_of_read(self, places: Collection[TopicPartition], latest: Callable[[], Offsets]) -> Offsets: ...


class StreamPlanner:
    def __init__(self, topics: Topics, options: SourceOptions, now_ms: Callable[[], int]) -> None:
        self._topics = topics
        self._options = options
        self._now_ms = now_ms
        self._initial: Offsets | None = None
        self._moving: set[TopicPartition] = set()
        """Partitions that a new query starts to read at their moving end."""
        self._ends_with_what_is_there = False
        self._target: Offsets | None = None
        self.topic_ids: TopicIds = {}
        """The ids of the topics in the position that was last returned or received."""
        self._last_batch_ms: int | None = None
        self.latest_seen: Offsets | None = None
        """Where partitions ended when they were last looked up."""

    def initial(self) -> Offsets:
        """Where a new query starts. Spark asks more than once and expects the same answer."""
        if self._initial is None:
            places = self._topics.required()
            self._remember_topics()
            ends: Offsets = {}

            def latest() -> Offsets:
                # A partition that appears after the others were found is new, and read from its beginning.
                found = self._ends({})
                ends.update((place, found[place]) for place in places if place in found)
                return ends

            self._initial = self._within(self._topics.start_of_read(places, latest))
            self._moving = {place for place, offset in self._initial.items() if offset == ends.get(place)}
        return self._initial

    def recall(self, topic_ids: TopicIds) -> None:
        """Takes the topic ids of a checkpoint into account; a checkpoint may have none."""
        self.topic_ids |= topic_ids

    def available_now(self) -> None:
        """The query will read what is there now, in as many batches as the limits require, and end."""
        self._ends_with_what_is_there = True

    def end_of_batch(self, start: Offsets) -> Offsets:
        """Where the next batch ends within the limits of the options; `start` itself if there should be none."""
        begin, stop = self._available(start)
        if start == self._initial and self._last_batch_ms is None and _moves(self._options):
            self._last_batch_ms = self._now_ms()
            return start
        as_before = all(begin.get(place) == offset for place, offset in start.items())
        if as_before and not self._is_due(count_between(begin, stop)):
            return start
        if stop != start:
            self._last_batch_ms = self._now_ms()
        most = self._options.max_offsets_per_trigger
        return stop if most is None else limit_end(begin, stop, most)

    def end_of_everything(self, start: Offsets) -> Offsets:
        """Where a batch ends that reads everything there is, which some triggers ask for.

        It may be the only batch of a run. So if only some partitions have a moving start, only those are left empty
        at first; and the offsets of a group, which can be moved only by others meanwhile, are taken as they are.
        """
        stop = self._available(start)[1]
        if start == self._initial:
            stop |= {place: start[place] for place in self._moving & stop.keys()}
        return stop

    def ranges(self, start: Offsets, end: Offsets, topic_ids: Mapping[str, Uuid] | None = None) -> list[OffsetRange]:
        """What the tasks of a batch read. A batch that is run again reads the same offsets of the same topics, and
        nothing from topics recreated under their names since."""
        begin = {place: start.get(place, 0) for place in end}
        ranges = plan_ranges(begin, end)
        replaced = self._replaced(topic_ids or {})
        self._report(ranges_replaced(ranges, replaced))
        ranges = [each for each in ranges if each.topic not in replaced]
        earliest = self._topics.earliest((each.topic, each.partition) for each in ranges)
        self._report([*self._start_overtaken(start, end), *ranges_gone(ranges, earliest)])
        ranges = [each for each in ranges if (each.topic, each.partition) in earliest]
        self._report(starts_missed(ranges, earliest))
        return split_ranges(
            without_missed(ranges, earliest),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def _available(self, start: Offsets) -> tuple[Offsets, Offsets]:
        """From where to where each partition can be read next, having been read up to `start`."""
        ends = self.latest_seen = self._ends(start)
        restarted = self._restarted(start, ends)
        new = self._topics.earliest(ends.keys() - start.keys())
        begin = new | {place: start[place] for place in ends.keys() & start.keys()} | restarted
        return begin, {place: ends[place] for place in begin} | restarted

    def _ends(self, known: Offsets) -> Offsets:
        if self._target is not None:
            return dict(self._target)
        ends = self._topics.latest(known)
        if self._ends_with_what_is_there:
            self._target = ends
        return ends

    def _is_due(self, waiting: int) -> bool:
        least = self._options.min_offsets_per_trigger
        # A query that reads what is available now and then ends does not wait for more.
        if least is None or self._ends_with_what_is_there:
            return True
        since_ms = None if self._last_batch_ms is None else self._now_ms() - self._last_batch_ms
        return waiting > 0 and is_worth_a_batch(waiting, least, since_ms, self._options.max_trigger_delay_ms)

    def _restarted(self, start: Offsets, ends: Offsets) -> Offsets:
        """Partitions that were truncated or recreated after they were read up to `start`, and where they begin now."""
        losses = [*ends_moved_back(start, ends), *self._made_again(start, ends)]
        self._report([*partitions_gone(start, ends), *losses])
        self._remember_topics()
        return self._topics.earliest(loss.place for loss in losses)

    def _made_again(self, start: Offsets, ends: Offsets) -> list[DataLoss]:
        """Partitions of topics that have another id than before, and have already grown beyond `start`."""
        replaced = self._replaced(self.topic_ids)
        return [
            DataLoss(place, f"it was read up to offset {start[place]}, then the topic was deleted and recreated")
            for place in sorted(start.keys() & ends.keys())
            if ends[place] >= start[place] and place[0] in replaced
        ]

    def _replaced(self, topic_ids: Mapping[str, Uuid]) -> set[str]:
        """The topics that now have other ids. Old brokers have no ids, and send zero."""
        present = self._topics.present()
        return {topic for (topic, _), each in present.items() if each not in (ZERO_UUID, topic_ids.get(topic, each))}

    def _remember_topics(self) -> None:
        self.topic_ids = {topic: topic_id for (topic, _), topic_id in self._topics.present().items()}

    def _start_overtaken(self, start: Offsets, end: Offsets) -> list[DataLoss]:
        """Partitions whose first batch, run again after a crash, has nothing left to read.

        Spark then asks for the start of the query once more. A moving start is not the one that the batch was planned
        with, but that batch was empty anyway.
        """
        if start != self._initial or _moves(self._options):
            return []
        return [
            DataLoss(place, f"it was to be read up to offset {end[place]}, but the log now starts at offset {first}")
            for place, first in sorted(start.items())
            if place in end and first > end[place]
        ]

    def _within(self, start: Offsets) -> Offsets:
        """A start within the partitions: offsets of users or groups may be gone already, or not exist yet."""
        if not isinstance(self._options.starting, SpecificOffsets | GroupOffsets):
            return start
        bounds = self._topics.earliest(start), self._ends({})
        return within(start, self._options.starting, "startingOffsets", bounds, self._options.fail_on_data_loss)

    def _report(self, losses: list[DataLoss]) -> None:
        report(losses, self._options.fail_on_data_loss)


def _moves(options: SourceOptions) -> bool:
    """Whether the start of a query may be somewhere else a moment later."""
    start = options.starting
    if isinstance(start, SpecificOffsets):
        return LATEST in start.offsets.values()
    return isinstance(start, Latest | GroupOffsets) or options.latest_where_no_record_is_that_late
