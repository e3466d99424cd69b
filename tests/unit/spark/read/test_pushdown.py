"""Filters that are answered by not reading: what is pushed gives the same rows as filtering would."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from barnabas.spark.read.offset_ranges import OffsetRange
from barnabas.spark.read.pushdown import filters_are_pushed, push

if TYPE_CHECKING:
    from collections.abc import Callable

MEANING: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, other: value == other,
    EqualNullSafe: lambda value, other: value == other,
    GreaterThan: lambda value, other: value > other,
    GreaterThanOrEqual: lambda value, other: value >= other,
    LessThan: lambda value, other: value < other,
    LessThanOrEqual: lambda value, other: value <= other,
    In: lambda value, others: value in others,
}
SINGLE = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]


def filters_on(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    plain = st.builds(lambda kind, value: kind((column,), value), st.sampled_from(SINGLE), values)
    some = st.builds(lambda found: In((column,), tuple(found)), st.lists(values, max_size=3))
    return plain | some | st.builds(Not, plain | some)


FILTERS = (
    filters_on("topic", st.sampled_from(["a", "b", "c"]))
    | filters_on("partition", st.integers(0, 3))
    | filters_on("offset", st.integers(-2, 12))
)


def holds(each: Any, row: dict[str, Any]) -> bool:
    if isinstance(each, Not):
        return not holds(each.child, row)
    return MEANING[type(each)](row[each.attribute[0]], each.value)


@given(st.lists(FILTERS, max_size=4))
def test_what_is_read_and_passes_the_filters_left_is_what_passes_all_filters(filters: list[Filter]) -> None:
    pushed, left = push(filters)
    for topic in ("a", "b"):
        for partition in range(3):
            rows = [{"topic": topic, "partition": partition, "offset": offset} for offset in range(2, 10)]
            whole = OffsetRange(topic, partition, 2, 10)
            read = pushed.within(whole) if pushed.takes((topic, partition)) else whole._replace(end=whole.start)
            kept = [row for row in rows if row["offset"] in range(read.start, read.end)]
            expected = [row for row in rows if all(holds(each, row) for each in filters)]
            assert [row for row in kept if all(holds(each, row) for each in left)] == expected


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("partition",), 1),
        Not(EqualTo(("partition",), 1)),
        In(("topic",), ("a", "b")),
        GreaterThan(("offset",), 5),
        EqualTo(("offset",), 5),
        IsNotNull(("partition",)),
        IsNotNull(("offset",)),
    ],
)
def test_spark_need_not_look_again_at_what_decides_what_is_read(each: Filter) -> None:
    assert push([each])[1] == []


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("partition",), None),
        EqualTo(("partition",), True),
        EqualTo(("offset",), "5"),
        EqualTo(("headers", "key"), "x"),
        Not(EqualTo(("offset",), 5)),
        In(("offset",), (5, 7)),
        IsNull(("partition",)),
        IsNotNull(("key",)),
        IsNotNull(("timestamp",)),
        StringStartsWith(("topic",), "a"),
        LessThan(("timestamp",), datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_other_filters_are_left_to_spark_and_change_nothing(each: Filter) -> None:
    pushed, left = push([each])
    assert left == [each]
    assert left[0] is each
    assert pushed == push([])[0]


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual])
def test_a_lower_bound_on_the_timestamp_moves_the_start_and_is_checked_again(kind: type) -> None:
    when = datetime(1970, 1, 1, 0, 0, 1, 999, tzinfo=UTC)
    bound = kind(("timestamp",), when)
    pushed, left = push([bound, GreaterThan(("timestamp",), when - timedelta(days=3_650))])
    assert left[0] is bound
    assert pushed.first_timestamp_ms == 1_000


def test_a_timestamp_without_a_zone_or_before_1970_moves_nothing() -> None:
    naive = datetime(2024, 1, 1)  # noqa: DTZ001
    ancient = datetime(1960, 1, 1, tzinfo=UTC)
    pushed, _ = push([GreaterThan(("timestamp",), naive), GreaterThan(("timestamp",), ancient)])
    assert pushed.first_timestamp_ms is None


def test_filters_are_not_offered_where_spark_does_not_push_them() -> None:
    assert not filters_are_pushed()
