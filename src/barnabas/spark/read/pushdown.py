"""Filters of a batch query that are answered by reading less: on topic, partition, offset and timestamp.

Filters on the first three decide exactly what is read, and Spark need not apply them again. A lower bound on the
timestamp moves the start of each partition to the first record with that timestamp or a later one; records after it may
still be older, so Spark filters again. An upper bound cannot end a read: an earlier timestamp may always follow.

Spark 4.3 keeps one plan per loaded DataFrame, not per query on it: after a query on `df.where("partition = 1")`, `df`
itself is read as if it had that filter, and of two filters on it in one query the last applies to both. So filter
pushdown is only for sessions that load a DataFrame anew for each query.
"""

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql.datasource import ColumnPath

    from barnabas.spark.read.offset_ranges import OffsetRange
    from barnabas.spark.read.topic_positions import TopicPartition

_PLANNER_WITH_FILTERS: Final = "pyspark.sql.worker.data_source_pushdown_filters"

_PLACE: Final = {"topic": 0, "partition": 1}
_TYPE: Final = {"topic": str, "partition": int, "offset": int}
_COMPARE: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
}
_LOWER_BOUNDS: Final = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def filters_are_pushed() -> bool:
    """Whether this process plans a read whose filters Spark pushes down.

    If `spark.sql.python.filterPushdown.enabled` is off, Spark refuses a reader that accepts filters, but does not tell
    the source about the setting. However, it plans reads with filters in a worker module of their own.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PLANNER_WITH_FILTERS in sys.modules or getattr(main, "name", None) == _PLANNER_WITH_FILTERS


@dataclass(frozen=True)
class Pushed:
    """What pushed filters leave to be read."""

    places: tuple[Filter, ...] = ()
    """Filters on topic and partition."""
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp_ms: int | None = None

    def takes(self, place: TopicPartition) -> bool:
        """Whether anything in a partition is wanted."""
        return all(_holds(each, place) for each in self.places)

    def within(self, whole: OffsetRange) -> OffsetRange:
        """The part of a range that is wanted, which may be empty."""
        start = whole.start if self.first_offset is None else max(whole.start, self.first_offset)
        end = whole.end if self.last_offset is None else min(whole.end, self.last_offset + 1)
        return whole._replace(start=start, end=max(start, end))


def push(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """What can be answered by reading less, and the filters that Spark still has to apply."""
    pushed = Pushed()
    left: list[Filter] = []
    for each in filters:
        column = _column(each)
        if column in _PLACE and _is_about_values(each, column):
            pushed = replace(pushed, places=(*pushed.places, each))
        elif column == "offset" and not isinstance(each, Not | In) and _is_about_values(each, column):
            pushed = _push_offset(pushed, each)
        elif column in _TYPE and isinstance(each, IsNotNull):
            continue  # every record has these
        else:
            if column == "timestamp" and isinstance(each, _LOWER_BOUNDS):
                pushed = _push_timestamp(pushed, each.value)
            left.append(each)
    return pushed, left


def _column(each: Filter) -> str:
    """The column that a filter is on; empty for a nested field."""
    inner = each.child if isinstance(each, Not) else each
    path: ColumnPath = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _is_about_values(each: Filter, column: str) -> bool:
    """Whether a filter compares with values of the column's own type, so that Python compares as Spark does."""
    inner = each.child if isinstance(each, Not) else each
    if type(inner) not in _COMPARE:
        return False
    value = inner.value  # type: ignore[attr-defined]
    values = value if isinstance(inner, In) else (value,)
    return all(type(one) is _TYPE[column] for one in values)


def _holds(each: Filter, place: TopicPartition) -> bool:
    if isinstance(each, Not):
        return not _holds(each.child, place)
    return _COMPARE[type(each)](place[_PLACE[_column(each)]], each.value)  # type: ignore[attr-defined]


def _push_offset(pushed: Pushed, each: Any) -> Pushed:
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return _at_least(pushed, each.value + isinstance(each, GreaterThan))
    if isinstance(each, LessThan | LessThanOrEqual):
        return _at_most(pushed, each.value - isinstance(each, LessThan))
    return _at_least(_at_most(pushed, each.value), each.value)


def _at_least(pushed: Pushed, offset: int) -> Pushed:
    return replace(pushed, first_offset=max(offset, pushed.first_offset or 0))


def _at_most(pushed: Pushed, offset: int) -> Pushed:
    return replace(pushed, last_offset=offset if pushed.last_offset is None else min(offset, pushed.last_offset))


def _push_timestamp(pushed: Pushed, value: object) -> Pushed:
    if not isinstance(value, datetime) or value.tzinfo is None or value < _EPOCH:
        return pushed
    timestamp_ms = (value - _EPOCH) // timedelta(milliseconds=1)
    return replace(pushed, first_timestamp_ms=max(timestamp_ms, pushed.first_timestamp_ms or 0))
