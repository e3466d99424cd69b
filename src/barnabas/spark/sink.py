"""Writing rows into topics: what Spark calls on the driver and in its tasks.

Spark makes a writer on the driver for each batch, which is where options and columns are checked, and sends it to the
tasks, which call `write`. Which batch of which query a task belongs to is only known there, from the properties of its
context; `commit` is called on another writer, in another process of the driver. So what must be known of a batch
before its rows are written (`markers`) is looked up and noted by the tasks.

A batch write has no batches before or after it. Its tasks write in transactions too, with markers that only an
attempt of the same write can find, and that are removed when it ends. Tasks commit one by one: when a write fails,
what its finished tasks have written stays.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.pool import borrowed
from barnabas.spark import marker_store
from barnabas.spark.given import OptionError
from barnabas.spark.markers import IDENTITY_PREFIX, BatchMarker, Run, identity_of
from barnabas.spark.resident import settle
from barnabas.spark.rows import check_columns
from barnabas.spark.settings import client_settings
from barnabas.spark.sink_options import Delivery, parse_sink
from barnabas.spark.writing import WritePlan, write_at_least_once, write_exactly_once, write_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver."""

    identity: str | None
    """Of an output that is written exactly once."""
    row_count: int
    was_written_before: bool


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        del overwrite  # complete mode: all results again in each batch, as a topic takes them
        self._plan = _plan(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        settle()
        if self._plan.options.delivery is Delivery.AT_LEAST_ONCE:
            return TaskDone(None, *write_at_least_once(self._plan, iterator))
        context = _task_context()
        batch_id, query_id = context.getLocalProperty(BATCH_ID), context.getLocalProperty(QUERY_ID)
        assert batch_id is not None, "Spark tells the tasks of a streaming query their batch"
        assert query_id is not None, "Spark tells the tasks of a streaming query whose they are"
        identity = identity_of(self._plan.options, query_id)
        run = Run(query_id, int(batch_id))
        return TaskDone(identity, *write_exactly_once(self._plan, identity, run, context.partitionId(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        settle()
        identities = {each.identity for each in messages if isinstance(each, TaskDone)} - {None}
        for identity in identities:
            assert identity is not None
            _settle(self._plan, identity, batchId, len(messages))


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode", 'is overwrite: rows can only be added to a topic; use mode("append")')
        self._plan = _plan(options, schema)
        job_id = str(uuid.uuid4())
        self._identity = self._plan.options.producer.transactional_id or IDENTITY_PREFIX + job_id
        self._begun = BatchMarker(Run(job_id, 0), time.time_ns() // 1_000_000, 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        settle()
        if self._plan.options.delivery is Delivery.AT_LEAST_ONCE:
            return TaskDone(None, *write_at_least_once(self._plan, iterator))
        task = _task_context().partitionId()
        with borrowed(self._plan.settings) as cluster:
            return TaskDone(
                self._identity, *write_once(cluster, self._plan, self._identity, self._begun, task, iterator)
            )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._remove_markers(len(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._remove_markers(len(messages))

    def _remove_markers(self, task_count: int) -> None:
        if self._plan.options.delivery is Delivery.EXACTLY_ONCE:
            with borrowed(self._plan.settings) as cluster:
                marker_store.remove_tasks(cluster, self._identity, task_count)


_settled: dict[str, int] = {}
"""How many tasks the last batch of an output had, as far as this process has noted it in the cluster."""
SETTLED_MAX: Final = 64


def _settle(plan: WritePlan, identity: str, batch_id: int, task_count: int) -> None:
    if _settled.get(identity) == task_count:
        return
    with borrowed(plan.settings) as cluster:
        marker_store.settle(cluster, identity, plan.marker_place(), batch_id, task_count)
    while len(_settled) >= SETTLED_MAX:
        _settled.pop(next(iter(_settled)))
    _settled[identity] = task_count


def _plan(options: Mapping[str, str], schema: StructType) -> WritePlan:
    """How to write rows of this schema, or what is wrong with options, columns or topics."""
    settle()
    parsed = parse_sink(options)
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, topic=parsed.topic)
    plan = WritePlan(parsed, client_settings(parsed.client))
    if topics := {topic for topic in (parsed.topic, parsed.marker_topic) if topic is not None}:
        with borrowed(plan.settings) as cluster:
            cluster.metadata(topics)
    return plan


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written in tasks"
    return context
