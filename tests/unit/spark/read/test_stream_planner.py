"""A streaming read batch by batch, against topics that grow, shrink, come and go as a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.uuids import ZERO_UUID, Uuid
from barnabas.spark.raw_options import OptionError
from barnabas.spark.read.data_loss import DataLossError
from barnabas.spark.read.offset_ranges import OffsetRange
from barnabas.spark.read.source_options import Query, parse_source
from barnabas.spark.read.stream_planner import StreamPlanner
from barnabas.spark.read.topic_positions import LATEST, Earliest, GroupOffsets, Latest, SpecificOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from barnabas.spark.read.topic_positions import Offsets, Position, TopicPartition

OPTIONS = {
    "kafka.bootstrap.servers": "nowhere:9092",
    "kafka.group.id": "g",
    "subscribe": "a",
    "startingOffsets": "earliest",
}
A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


@dataclass
class FakeTopics:
    """A cluster as it is at the moment: where logs start and end, and what a group has committed."""

    ends: Offsets
    starts: Offsets = field(default_factory=dict)
    committed: Offsets = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    position: Position = field(default_factory=Earliest)
    found_first: list[TopicPartition] | None = None

    def required(self) -> Collection[TopicPartition]:
        return sorted(self.ends) if self.found_first is None else self.found_first

    def present(self) -> Mapping[TopicPartition, Uuid]:
        return {place: Uuid(self.ids.get(place[0], b"id of " + place[0].encode())) for place in self.ends}

    def earliest(self, places: Iterable[TopicPartition]) -> Offsets:
        return {place: self.starts.get(place, 0) for place in places if place in self.ends}

    def latest(self, known: Mapping[TopicPartition, int]) -> Offsets:
        return dict(self.ends)

    def start_of_read(self, places: Collection[TopicPartition], latest: Callable[[], Offsets]) -> Offsets:
        if isinstance(self.position, Latest):
            return latest()
        if isinstance(self.position, SpecificOffsets):
            return {place: latest()[place] if at == LATEST else at for place, at in self.position.offsets.items()}
        if isinstance(self.position, GroupOffsets):
            return self.earliest(places) | self.committed
        return self.earliest(places)


class RunningQuery:
    """A query as Spark runs it: it asks where to start, then batch after batch, and keeps what was read."""

    def __init__(self, topics: FakeTopics, start: Offsets | None = None, **options: Any) -> None:
        parsed = parse_source({**OPTIONS, **options}, Query.STREAMING)
        topics.position = parsed.starting
        self.now_ms = 0
        self.topics = topics
        self.planner = StreamPlanner(topics, parsed, lambda: self.now_ms)
        self.at = self.planner.initial() if start is None else start
        self.read: list[OffsetRange] = []

    def restarted(self, **options: Any) -> RunningQuery:
        """The query after a restart from its checkpoint."""
        query = RunningQuery(self.topics, start=self.at, **options)
        query.planner.recall(self.planner.topic_ids)
        return query

    def batch(self) -> list[OffsetRange] | None:
        """Plans the next batch; None where there is none."""
        end = self.planner.end_of_batch(self.at)
        if end == self.at:
            return None
        ranges = self.planner.ranges(self.at, end)
        self.at = end
        self.read += ranges
        return ranges


def test_a_new_query_reads_from_the_start_and_then_what_comes() -> None:
    query = RunningQuery(FakeTopics({A0: 5, A1: 0}))
    assert query.batch() == [OffsetRange("a", 0, 0, 5)]
    assert query.batch() is None
    query.topics.ends = {A0: 5, A1: 3}
    assert query.batch() == [OffsetRange("a", 1, 0, 3)]


def test_a_restarted_query_goes_on_where_the_checkpoint_says() -> None:
    query = RunningQuery(FakeTopics({A0: 9, A1: 3}), start={A0: 5, A1: 3})
    assert query.batch() == [OffsetRange("a", 0, 5, 9)]


def test_a_new_partition_is_read_from_its_start() -> None:
    query = RunningQuery(FakeTopics({A0: 5}))
    query.batch()
    query.topics.ends = {A0: 5, A1: 2}
    assert query.batch() == [OffsetRange("a", 1, 0, 2)]


def test_a_new_topic_is_read_from_its_start_within_the_limit() -> None:
    query = RunningQuery(FakeTopics({A0: 5}), maxOffsetsPerTrigger="10")
    query.batch()
    query.topics.ends = {A0: 5, B0: 25}
    assert query.batch() == [OffsetRange("b", 0, 0, 10)]
    assert query.batch() == [OffsetRange("b", 0, 10, 20)]
    assert query.batch() == [OffsetRange("b", 0, 20, 25)]


def test_a_new_partition_that_has_lost_its_first_records_is_a_loss() -> None:
    query = RunningQuery(FakeTopics({A0: 5}))
    query.batch()
    query.topics.ends, query.topics.starts = {A0: 5, A1: 9}, {A1: 4}
    with pytest.raises(DataLossError, match="a-1: offsets 0 to 3 were to be read, but the log now starts at offset 4"):
        query.batch()


def test_a_trigger_that_wants_everything_gets_it_whatever_the_limits() -> None:
    query = RunningQuery(FakeTopics({A0: 50}), maxOffsetsPerTrigger="10")
    query.topics.ends = {A0: 99}
    assert query.planner.end_of_everything({A0: 50}) == {A0: 99}


@pytest.mark.parametrize(
    ("starting", "end"),
    [("latest", {A0: 5, A1: 7}), ('{"a": {"0": 2, "1": -1}}', {A0: 20, A1: 7}), ("group", {A0: 20, A1: 20})],
)
def test_a_trigger_that_wants_everything_leaves_partitions_empty_whose_start_moves(starting: str, end: Offsets) -> None:
    """If the query crashes before it is done with its first batch, it is asked anew where to start."""
    query = RunningQuery(FakeTopics({A0: 5, A1: 7}), startingOffsets=starting)
    query.topics.ends = {A0: 20, A1: 20}
    assert query.planner.end_of_everything(query.at) == end
    restarted = RunningQuery(query.topics, start=end, startingOffsets=starting)
    assert restarted.planner.end_of_everything(end) == {A0: 20, A1: 20}


def test_a_partition_that_appears_while_the_start_is_looked_for_is_a_new_one() -> None:
    topics = FakeTopics({A0: 5, A1: 3}, found_first=[A0])
    query = RunningQuery(topics, startingOffsets="latest")
    assert query.at == {A0: 5}
    assert query.batch() is None
    assert query.batch() == [OffsetRange("a", 1, 0, 3)]


def test_a_batch_waits_until_enough_records_are_there_or_time_is_up() -> None:
    query = RunningQuery(FakeTopics({A0: 1}), minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    assert query.batch() == [OffsetRange("a", 0, 0, 1)]
    query.topics.ends = {A0: 5}
    assert query.batch() is None
    query.now_ms += 4_999
    assert query.batch() is None
    query.now_ms += 1
    assert query.batch() == [OffsetRange("a", 0, 1, 5)]
    query.topics.ends = {A0: 15}
    assert query.batch() == [OffsetRange("a", 0, 5, 15)]
    query.now_ms += 60_000
    assert query.batch() is None


def test_what_is_available_now_is_read_in_batches_and_nothing_that_comes_later() -> None:
    query = RunningQuery(FakeTopics({A0: 25}), maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10")
    query.planner.available_now()
    query.batch()
    query.topics.ends = {A0: 99, B0: 9}
    query.batch()
    assert query.batch() == [OffsetRange("a", 0, 20, 25)]
    assert query.batch() is None


@pytest.mark.parametrize("starting", ["latest", "group", '{"a": {"0": -1}}'])
def test_a_start_that_moves_is_put_into_the_checkpoint_by_an_empty_batch(starting: str) -> None:
    topics = FakeTopics({A0: 7}, committed={A0: 3})
    query = RunningQuery(topics, startingOffsets=starting)
    topics.ends, topics.committed = {A0: 9}, {A0: 8}
    start = query.at
    assert query.planner.end_of_batch(start) == start
    # Spark runs a first batch even if it ends where it starts, and asks again behind it.
    assert query.planner.ranges(start, start) == []
    again = RunningQuery(FakeTopics({A0: 9}, committed={A0: 8}), startingOffsets=starting)
    assert again.planner.ranges(again.at, start) == []
    again.planner.end_of_batch(again.at)
    assert again.planner.ranges(start, {A0: 9}) == [OffsetRange("a", 0, start[A0], 9)]


def test_a_first_batch_that_is_run_again_has_lost_what_is_gone_meanwhile() -> None:
    query = RunningQuery(FakeTopics({A0: 50}, starts={A0: 20}))
    with pytest.raises(DataLossError, match="a-0: it was to be read up to offset 10, but the log now starts at"):
        query.planner.ranges(query.at, {A0: 10})


def test_a_query_stops_at_a_partition_that_is_gone() -> None:
    query = RunningQuery(FakeTopics({A0: 5, B0: 5}))
    query.batch()
    query.topics.ends = {A0: 6}
    with pytest.raises(DataLossError, match="b-0: it was read up to offset 5 and is no longer there"):
        query.batch()


def test_a_query_that_accepts_loss_goes_on_without_a_partition_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    query = RunningQuery(FakeTopics({A0: 5, B0: 5}), failOnDataLoss="false")
    query.batch()
    query.topics.ends = {A0: 6}
    assert query.batch() == [OffsetRange("a", 0, 5, 6)]
    assert "b-0: it was read up to offset 5" in caplog.text
    assert query.at == {A0: 6}
    query.topics.ends = {A0: 6, B0: 2}
    assert query.batch() == [OffsetRange("b", 0, 0, 2)]
    assert caplog.text.count("records may have been lost") == 1


@pytest.mark.parametrize("end", [3, 5, 8])
def test_a_topic_that_was_made_again_is_noticed_however_large_it_is(end: int) -> None:
    query = RunningQuery(FakeTopics({A0: 5}))
    query.batch()
    query.topics.ends, query.topics.ids = {A0: end}, {"a": b"another id"}
    with pytest.raises(DataLossError, match="a-0: it was read up to offset 5"):
        query.batch()


@pytest.mark.parametrize("end", [3, 5, 8])
def test_a_topic_that_was_made_again_is_noticed_by_each_later_run_of_the_query(end: int) -> None:
    query = RunningQuery(FakeTopics({A0: 5}))
    query.batch()
    query.topics.ends, query.topics.ids = {A0: end}, {"a": b"another id"}
    for _ in range(2):
        query = query.restarted()
        with pytest.raises(DataLossError, match="a-0: it was read up to offset 5"):
            query.batch()
    query = query.restarted(failOnDataLoss="false")
    assert query.batch() == []
    assert query.restarted().batch() == [OffsetRange("a", 0, 0, end)]


def test_a_batch_that_is_run_again_reads_nothing_of_a_topic_that_was_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    query = RunningQuery(FakeTopics({A0: 5, B0: 5}))
    topic_ids = dict(query.planner.topic_ids)
    query.topics.ids = {"a": b"another id"}
    again = StreamPlanner(query.topics, parse_source(OPTIONS, Query.STREAMING), lambda: 0)
    with pytest.raises(
        DataLossError, match="a-0: offsets 2 to 4 were to be read, but the topic was deleted and recreated"
    ):
        again.ranges({A0: 2, B0: 2}, {A0: 5, B0: 5}, topic_ids)
    accepting = parse_source({**OPTIONS, "failOnDataLoss": "false"}, Query.STREAMING)
    again = StreamPlanner(query.topics, accepting, lambda: 0)
    assert again.ranges({A0: 2, B0: 2}, {A0: 5, B0: 5}, topic_ids) == [OffsetRange("b", 0, 2, 5)]
    assert "a-0: offsets 2 to 4 were to be read" in caplog.text


def test_brokers_that_know_of_no_ids_are_believed() -> None:
    query = RunningQuery(FakeTopics({A0: 5}))
    query.batch()
    query.topics.ends, query.topics.ids = {A0: 8}, {"a": ZERO_UUID}
    query = query.restarted()
    assert query.batch() == [OffsetRange("a", 0, 5, 8)]


@pytest.mark.parametrize("end", [3, 5, 8])
def test_a_query_that_accepts_loss_reads_a_topic_that_was_made_again_from_its_start(end: int) -> None:
    query = RunningQuery(FakeTopics({A0: 5}), failOnDataLoss="false", maxOffsetsPerTrigger="100")
    query.batch()
    query.topics.ends, query.topics.ids = {A0: end}, {"a": b"another id"}
    assert query.batch() == []
    # From here on the checkpoint alone is enough to go on.
    restarted = RunningQuery(query.topics, start=query.at)
    assert restarted.batch() == [OffsetRange("a", 0, 0, end)]


def test_records_that_retention_took_before_they_were_read_are_a_loss() -> None:
    query = RunningQuery(FakeTopics({A0: 5}))
    query.batch()
    query.topics.ends, query.topics.starts = {A0: 20}, {A0: 9}
    with pytest.raises(DataLossError, match="a-0: offsets 5 to 8 were to be read, but the log now starts at offset 9"):
        query.batch()


def test_a_query_that_accepts_loss_reads_what_retention_left() -> None:
    query = RunningQuery(FakeTopics({A0: 5}), failOnDataLoss="false")
    query.batch()
    query.topics.ends, query.topics.starts = {A0: 20}, {A0: 9}
    assert query.batch() == [OffsetRange("a", 0, 9, 20)]


@pytest.mark.parametrize(
    ("starting", "failure"),
    [
        ('{"a": {"0": 2}}', "option startingOffsets names offsets that do not exist: a-0: offset 2 is requested"),
        ("group", "a-0: offset 2 is requested, but the log goes from 9 to 20"),
    ],
)
def test_a_start_that_the_log_does_not_have_is_a_mistake_or_a_loss(starting: str, failure: str) -> None:
    topics = FakeTopics({A0: 20}, starts={A0: 9}, committed={A0: 2})
    with pytest.raises((OptionError, DataLossError), match=failure):
        RunningQuery(topics, startingOffsets=starting)
    accepting = RunningQuery(topics, startingOffsets=starting, failOnDataLoss="false")
    assert accepting.at == {A0: 9}


def test_large_ranges_are_cut_for_several_tasks() -> None:
    query = RunningQuery(FakeTopics({A0: 100}), minPartitions="4")
    assert [each.size for each in query.batch() or []] == [25] * 4


def test_a_query_knows_where_partitions_ended_when_it_last_asked() -> None:
    query = RunningQuery(FakeTopics({A0: 100}), maxOffsetsPerTrigger="10")
    assert query.planner.latest_seen is None
    query.batch()
    assert query.planner.latest_seen == {A0: 100}


@given(
    st.lists(st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 40), max_size=3), max_size=12),
    st.none() | st.integers(1, 15),
)
def test_every_record_is_read_once_and_in_order_whatever_the_topics_do(
    growth: list[dict[TopicPartition, int]], most: int | None
) -> None:
    limit: dict[str, Any] = {} if most is None else {"maxOffsetsPerTrigger": str(most)}
    query = RunningQuery(FakeTopics({A0: 0}), **limit)
    for step in growth:
        query.topics.ends = query.topics.ends | {
            place: query.topics.ends.get(place, 0) + count for place, count in step.items()
        }
        query.batch()
    while query.batch() is not None:
        pass
    for place, end in query.topics.ends.items():
        pieces = [(each.start, each.end) for each in query.read if (each.topic, each.partition) == place]
        assert [start for start, _ in pieces] == [0, *(stop for _, stop in pieces)][: len(pieces)]
        assert (pieces[-1][1] if pieces else 0) == end
