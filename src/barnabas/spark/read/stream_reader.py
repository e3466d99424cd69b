"""A streaming read as Spark calls it: in a process of its own on the driver, and `read` in each task.

That process lives as long as the run of the query. Offsets are exchanged in the JSON of Spark's own Kafka source, so
checkpoints and progress reports look the same, except for the topic ids (`topic_positions`).
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from barnabas.spark.read.offset_lookup import OffsetLookup
from barnabas.spark.read.read_plan import RangePartition, read_partition
from barnabas.spark.read.stream_planner import StreamPlanner
from barnabas.spark.read.topic_positions import from_json, to_json, topic_ids_from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow

    from barnabas.spark.raw_options import OptionError
    from barnabas.spark.read.group_progress import GroupProgress
    from barnabas.spark.read.read_plan import ReadPlan

NO_LIMIT: Final = sys.maxsize
"""No limit in effect, but distinct from ReadAllAvailable, which triggers use that demand everything there is."""

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
        """Where the next batch ends. That Spark asks means that everything before `start` has been processed."""
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
        """What only the driver needs. It is created there; tasks get a copy of the reader without it."""
        if self._driver is None:
            for warning in self._plan.warnings:
                _log.warning("%s", warning)
            self._driver = _Driver(self._plan)
        return self._driver


class RefusedStreamReader(StreamReader):
    """Raises the error about the options as soon as it is asked for anything. An error raised while the reader is
    created would be buried by PySpark under one of its own."""

    def __init__(self, refusal: OptionError) -> None:
        self._refusal = refusal
        self._driver = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self._refusal

    def _on_driver(self) -> _Driver:
        raise self._refusal


class _Driver:
    """What the process of a source keeps between calls."""

    def __init__(self, plan: ReadPlan) -> None:
        self.lookup = OffsetLookup(plan.settings, plan.options)
        self.planner = StreamPlanner(self.lookup, plan.options, now_ms=lambda: time.monotonic_ns() // 1_000_000)
        self.group: GroupProgress | None = None
        if plan.options.group_id is not None:
            from barnabas.spark.read.group_progress import GroupProgress

            self.group = GroupProgress(plan.options.group_id, lambda: self.lookup.cluster)
