"""Where a batch read starts and ends, asked of a real cluster: what tasks would be told to read."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

from barnabas.spark.raw_options import OptionError
from barnabas.spark.read.batch_reader import plan_batch
from barnabas.spark.read.data_loss import DataLossError
from barnabas.spark.read.offset_lookup import OffsetLookup
from barnabas.spark.read.pushdown import Pushed, push
from barnabas.spark.read.read_plan import plan_read
from barnabas.spark.read.source_options import Query
from tests.spark.topics import (
    LONG_AGO_MS,
    add_partitions,
    commit,
    create_topic,
    delete_topic,
    expire,
    produce,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers import Peer

SECOND_MS = 1_000
START_MS = 1_700_000_000_000
EVERYTHING = Pushed()


@pytest.fixture
def seconds(node: Peer, topic: str) -> str:
    """A topic of two partitions with a record for each second: ten in the first, five in the second."""
    create_topic(node, topic, partitions=2, retention_ms="-1")
    for partition, count in ((0, 10), (1, 5)):
        for number in range(count):
            produce(node, topic, [number], partition, timestamp=START_MS + number * SECOND_MS)
    return topic


def ranges(node: Peer, pushed: Pushed = EVERYTHING, /, **options: str) -> list[tuple[int, int, int]]:
    plan = plan_read({"kafka.bootstrap.servers": node.bootstrap, **options}, Query.BATCH)
    lookup = OffsetLookup(plan.settings, plan.options)
    try:
        planned = plan_batch(lookup, plan.options, pushed)
    finally:
        lookup.close()
    return [(each.partition, each.start, each.end) for each in planned]


def test_without_more_everything_is_read(node: Peer, seconds: str) -> None:
    assert ranges(node, subscribe=seconds) == [(0, 0, 10), (1, 0, 5)]
    assert ranges(node, subscribePattern=f"{seconds}|nothing") == [(0, 0, 10), (1, 0, 5)]
    assert ranges(node, assign=f'{{"{seconds}": [1]}}') == [(1, 0, 5)]


def test_offsets_are_given_for_each_partition(node: Peer, seconds: str) -> None:
    start, end = f'{{"{seconds}": {{"0": 3, "1": -2}}}}', f'{{"{seconds}": {{"0": -1, "1": 2}}}}'
    assert ranges(node, subscribe=seconds, startingOffsets=start, endingOffsets=end) == [(0, 3, 10), (1, 0, 2)]


def test_a_time_is_that_of_the_first_record_then_or_later(node: Peer, seconds: str) -> None:
    after_2 = START_MS + 2 * SECOND_MS - 500
    assert ranges(node, subscribe=seconds, startingTimestamp=str(after_2)) == [(0, 2, 10), (1, 2, 5)]
    both = f'{{"{seconds}": {{"0": {START_MS + 4 * SECOND_MS}, "1": {START_MS + SECOND_MS}}}}}'
    assert ranges(node, subscribe=seconds, startingOffsetsByTimestamp=both) == [(0, 4, 10), (1, 1, 5)]
    assert ranges(node, subscribe=seconds, endingOffsetsByTimestamp=both) == [(0, 0, 4), (1, 0, 1)]


def test_an_end_that_no_record_has_reached_is_the_end_of_the_partition(node: Peer, seconds: str) -> None:
    after_7 = START_MS + 7 * SECOND_MS
    assert ranges(node, subscribe=seconds, endingTimestamp=str(after_7)) == [(0, 0, 7), (1, 0, 5)]


def test_a_start_that_no_record_has_reached_is_an_error_or_the_end_of_the_partition(node: Peer, seconds: str) -> None:
    after_7 = str(START_MS + 7 * SECOND_MS)
    with pytest.raises(OptionError, match=f"option startingTimestamp is later than all records of {seconds}-1"):
        ranges(node, subscribe=seconds, startingTimestamp=after_7)
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert ranges(node, subscribe=seconds, startingTimestamp=after_7, **strategy) == [(0, 7, 10)]


def test_a_batch_may_start_where_a_group_has_come_to(node: Peer, seconds: str, group: str) -> None:
    commit(node, group, {(seconds, 0): 4})
    options = {"kafka.group.id": group, "startingOffsets": "group"}
    assert ranges(node, subscribe=seconds, **options) == [(0, 4, 10), (1, 0, 5)]


def test_large_ranges_are_cut(node: Peer, seconds: str) -> None:
    assert ranges(node, subscribe=seconds, maxRecordsPerPartition="4") == [
        (0, 0, 3),
        (0, 3, 6),
        (0, 6, 10),
        (1, 0, 2),
        (1, 2, 5),
    ]
    assert len(ranges(node, subscribe=seconds, minPartitions="3")) == 3


def test_filters_leave_less_to_read(node: Peer, seconds: str) -> None:
    third_second = datetime.fromtimestamp((START_MS + 3 * SECOND_MS) / 1000, UTC)
    later, _ = push([GreaterThanOrEqual(("timestamp",), third_second)])
    assert ranges(node, later, subscribe=seconds) == [(0, 3, 10), (1, 3, 5)]
    one, _ = push([EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 2)])
    assert ranges(node, one, subscribe=seconds) == [(1, 2, 5)]
    never, _ = push([GreaterThanOrEqual(("timestamp",), datetime(2500, 1, 1, tzinfo=UTC))])
    assert ranges(node, never, subscribe=seconds) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"startingOffsets": '{{"{topic}": {{"0": 1}}}}'},
            "option startingOffsets has nothing for {topic}-1: give an offset or -2 (earliest) for each partition",
        ),
        (
            {"startingOffsets": '{{"{topic}": {{"0": 1}}, "other": {{"0": 1}}}}'},
            "option startingOffsets has nothing for {topic}-1 and names other-0, which would not be read: give",
        ),
        (
            {"startingOffsets": '{{"{topic}": {{"0": 1, "1": 1, "2": 1}}}}'},
            "names {topic}-2, which are not among the partitions to be read",
        ),
        (
            {"endingOffsets": '{{"{topic}": {{"0": 1}}}}'},
            "option endingOffsets has nothing for {topic}-1: give an offset or -1",
        ),
        (
            {"startingOffsets": '{{"{topic}": {{"0": 8, "1": 0}}}}', "endingTimestamp": str(START_MS + SECOND_MS)},
            "puts the start of {topic}-0 at offset 8, after its end at offset 1",
        ),
    ],
)
def test_offsets_that_do_not_fit_the_topic_are_refused(
    node: Peer, seconds: str, options: dict[str, str], said: str
) -> None:
    given = {name: value.format(topic=seconds) for name, value in options.items()}
    with pytest.raises(OptionError) as raised:
        ranges(node, subscribe=seconds, **given)
    assert said.format(topic=seconds) in str(raised.value)


def test_offsets_that_the_log_does_not_have_are_refused_lost_or_left_out(node: Peer, topic: str, group: str) -> None:
    create_topic(node, topic, partitions=2, retention_ms="-1")
    produce(node, topic, range(4), timestamp=LONG_AGO_MS)
    expire(node, topic)
    produce(node, topic, range(6))
    start, end = f'{{"{topic}": {{"0": 2, "1": 0}}}}', f'{{"{topic}": {{"0": 50, "1": 0}}}}'
    there = "is requested, but the log goes from 4 to 10"
    with pytest.raises(OptionError, match=f"option startingOffsets names offsets .*: {topic}-0: offset 2 {there}"):
        ranges(node, subscribe=topic, startingOffsets=start)
    with pytest.raises(OptionError, match=f"option endingOffsets names offsets .*: {topic}-0: offset 50 {there}"):
        ranges(node, subscribe=topic, endingOffsets=end)
    commit(node, group, {(topic, 0): 2})
    with pytest.raises(DataLossError, match=f"{topic}-0: offset 2 {there}"):
        ranges(node, subscribe=topic, startingOffsets="group", **{"kafka.group.id": group})
    both = {"startingOffsets": start, "endingOffsets": end, "failOnDataLoss": "false"}
    assert ranges(node, subscribe=topic, **both) == [(0, 4, 10)]


def planned_while(
    node: Peer, happens: Callable[[], None], monkeypatch: pytest.MonkeyPatch, **options: str
) -> list[tuple[str, int]]:
    """The partitions of a read during whose planning something happens, just after they were looked for."""
    plan = plan_read({"kafka.bootstrap.servers": node.bootstrap, **options}, Query.BATCH)
    lookup = OffsetLookup(plan.settings, plan.options)
    found = lookup.required()
    happens()
    monkeypatch.setattr("barnabas.spark.read.offset_lookup.DISCOVERY_INTERVAL_S", 0)
    monkeypatch.setattr(lookup, "required", lambda: found)
    try:
        return [(each.topic, each.partition) for each in plan_batch(lookup, plan.options, EVERYTHING)]
    finally:
        lookup.close()


@pytest.mark.parametrize("ending", ["latest", '{{"{topic}": {{"0": -1, "1": -1}}}}'])
def test_partitions_that_appear_while_a_read_is_planned_are_not_part_of_it(
    node: Peer, seconds: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow() -> None:
        add_partitions(node, seconds, 3)
        produce(node, seconds, range(3), 2)

    options = {"subscribe": seconds, "endingOffsets": ending.format(topic=seconds)}
    assert planned_while(node, grow, monkeypatch, **options) == [(seconds, 0), (seconds, 1)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"endingOffsets": '{{"{topic}": {{"0": -1, "1": -1}}, "{topic}-other": {{"0": -1}}}}'},
        {"startingOffsets": '{{"{topic}": {{"0": 0, "1": -2}}, "{topic}-other": {{"0": 0}}}}'},
    ],
    ids=["everything", "ends named", "starts named"],
)
def test_partitions_that_disappear_while_a_read_is_planned_are_lost(
    node: Peer, seconds: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"{seconds}-other"
    given = {name: value.format(topic=seconds) for name, value in options.items()} | {"subscribe": f"{seconds},{other}"}
    for failing in ("true", "false"):
        create_topic(node, other)
        produce(node, other, range(3))
        with contextlib.ExitStack() as stack:
            if failing == "true":
                lost = f"{other}-0: it was to be read, but no longer exists"
                stack.enter_context(pytest.raises(DataLossError, match=lost))
            found = planned_while(node, lambda: delete_topic(node, other), monkeypatch, failOnDataLoss=failing, **given)
            assert found == [(seconds, 0), (seconds, 1)]


def test_a_topic_or_partition_that_is_missing_is_named(node: Peer, seconds: str) -> None:
    with pytest.raises(OptionError, match=f"option subscribe names '{seconds}x'.*; did you mean '{seconds}'?"):
        ranges(node, subscribe=f"{seconds}x")
    with pytest.raises(OptionError, match=f"option assign names {seconds}-7, which the cluster does not have"):
        ranges(node, assign=f'{{"{seconds}": [0, 7]}}')
    with pytest.raises(OptionError, match=r"option subscribePattern is 'nothing.*', which no topic"):
        ranges(node, subscribePattern="nothing.*")


def test_internal_topics_are_never_read_by_pattern(node: Peer, seconds: str, group: str) -> None:
    commit(node, group, {(seconds, 0): 1})
    with pytest.raises(OptionError, match="which no topic"):
        ranges(node, subscribePattern="__.*")


def test_a_setting_of_the_client_that_cannot_be_right_is_named_as_it_was_given(topic: str) -> None:
    with pytest.raises(OptionError, match=r"option kafka\.bootstrap\.servers has 'nowhere'"):
        plan_read({"kafka.bootstrap.servers": "nowhere", "subscribe": topic}, Query.BATCH)
    with pytest.raises(OptionError, match=r"option kafka\.fetch\.max\.bytes is 'much'"):
        plan_read({"kafka.bootstrap.servers": "x:1", "subscribe": topic, "kafka.fetch.max.bytes": "much"}, Query.BATCH)


def test_a_misspelt_setting_of_the_client_is_refused(topic: str) -> None:
    options = {"kafka.bootstrap.servers": "x:1", "subscribe": topic, "kafka.isolation.levle": "read_committed"}
    with pytest.raises(OptionError, match=r"option kafka.isolation.levle .* did you mean kafka.isolation.level\?"):
        plan_read(options, Query.BATCH)


def test_a_setting_of_the_client_that_nobody_acts_on_is_worth_a_warning(topic: str) -> None:
    options = {
        "kafka.bootstrap.servers": "x:1",
        "subscribe": topic,
        "kafka.group.id": "g",
        "kafka.fetch.max.bytes": "9",
    }
    assert plan_read({**options, "kafka.session.timeout.ms": "6000"}, Query.STREAMING).warnings == (
        "option kafka.session.timeout.ms has no effect on this source",
    )
