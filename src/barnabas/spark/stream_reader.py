"""A streaming read, as Spark calls it: in a process of its own on the driver, and `read` in each task.

The process of the source lives as long as a run of the query. Offsets go in and out as Spark's own Kafka source writes
them, so that checkpoints and progress reports look alike, but for the ids of the topics (`offsets`).
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from barnabas.spark.lookup import Lookup
from barnabas.spark.offsets import from_json, to_json, topic_ids_from_json
from barnabas.spark.stream_planner import StreamPlanner
from barnabas.spark.tasks import RangePartition, read_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow

    from barnabas.spark.given import OptionError
    from barnabas.spark.progress import GroupProgress
    from barnabas.spark.tasks import ReadPlan

NO_LIMIT: Final = sys.maxsize
"""A limit that is none, but tells a trigger that has no limit of its own from one that demands all there is."""

_log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._driver: _Driver | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        planner = self._on_driver().planner
        return to_json(planner.initial(), planner.topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._plan.options.max_offsets_per_trigger or NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._on_driver().planner.available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch goes. That Spark asks says that everything before `start` is processed."""
        driver = self._on_driver()
        begin = from_json(start)
        driver.planner.recall(topic_ids_from_json(start))
        if isinstance(limit, ReadAllAvailable):
            end = driver.planner.end_of_everything(begin)
        else:
            end = driver.planner.end_of_batch(begin)
        if driver.group is not None:
            driver.group.stands_at({place: offset for place, offset in begin.items() if place in end})
        return to_json(end, driver.planner.topic_ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        seen = self._on_driver().planner.latest_seen
        return None if seen is None else to_json(seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._on_driver().planner.ranges(from_json(start), from_json(end), topic_ids_from_json(end))
        return [RangePartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_partition(self._plan, partition)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.lookup.close()

    def _on_driver(self) -> _Driver:
        """What is only needed on the driver, and made there: tasks get a copy of the reader without it."""
        if self._driver is None:
            for warning in self._plan.warnings:
                _log.warning("%s", warning)
            self._driver = _Driver(self._plan)
        return self._driver


class RefusedStreamReader(StreamReader):
    """Says what is wrong with the options as soon as it is asked for anything. Where it is said while a reader is made,
    PySpark buries it under an error of its own."""

    def __init__(self, refusal: OptionError) -> None:
        self._refusal = refusal
        self._driver = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self._refusal

    def _on_driver(self) -> _Driver:
        raise self._refusal


class _Driver:
    """What the process of a source keeps from one call to the next."""

    def __init__(self, plan: ReadPlan) -> None:
        self.lookup = Lookup(plan.settings, plan.options)
        self.planner = StreamPlanner(self.lookup, plan.options, now_ms=lambda: time.monotonic_ns() // 1_000_000)
        self.group: GroupProgress | None = None
        if plan.options.group_id is not None:
            from barnabas.spark.progress import GroupProgress

            self.group = GroupProgress(plan.options.group_id, lambda: self.lookup.cluster)
