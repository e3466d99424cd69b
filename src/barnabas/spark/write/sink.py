"""Writing rows into topics: what Spark calls on the driver and in its tasks.

For each batch Spark creates a writer on the driver, where options and columns are checked, and sends it to the tasks,
which call `write`. Only a task knows which batch of which query it belongs to, from the properties of its context;
`commit` is called on another writer, in another process of the driver, which may be a different one each time. So what
must be known about a batch before its rows are written (`exactly_once`) is looked up and recorded by the tasks, and
what they find reaches `commit` in their commit messages.

A batch write has no batches before or after it. Its tasks write in transactions too, with markers that only attempts of
the same write can find, and that are removed when it ends. Tasks commit one by one: if a write fails, what its finished
tasks have written stays in the topic.
"""

from __future__ import annotations

import functools
import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.pool import borrowed
from barnabas.protocol.errors import Error, KafkaError
from barnabas.spark.client_options import PRODUCER_SETTINGS, client_settings, ignored_settings, similar_topics
from barnabas.spark.columnar.sink_columns import check_columns
from barnabas.spark.python_workers import settle_in
from barnabas.spark.raw_options import OptionError
from barnabas.spark.write import marker_store
from barnabas.spark.write.exactly_once import WRITE_PREFIX, Run, named_identity
from barnabas.spark.write.sink_options import Delivery, absolute_location, is_relative, parse_sink
from barnabas.spark.write.write_plan import Batch, WritePlan, begin_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.client.cluster import Cluster

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
START_ID: Final = "spark.jobGroup.id"
"""Spark puts the jobs of a streaming query into a job group that is named after the query's run id."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver."""

    batch: Batch | None
    """As the task found it, if rows are written exactly once."""
    row_count: int
    was_written_before: bool


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        del overwrite  # complete mode: each batch has all results again, which a topic can take
        self._plan = _plan(options, schema)
        if self._plan.options.delivery is Delivery.EXACTLY_ONCE:
            _warn_of_doubtful_name(self._plan, options.get("checkpointLocation"))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        from barnabas.spark.write.delivery import find_batch, write_at_least_once, write_exactly_once

        settle_in()
        if self._plan.options.delivery is Delivery.AT_LEAST_ONCE:
            return TaskDone(None, *write_at_least_once(self._plan, iterator))
        context = _task_context()
        batch_id, query_id = context.getLocalProperty(BATCH_ID), context.getLocalProperty(QUERY_ID)
        assert batch_id is not None, "Spark tells the tasks of a streaming query their batch id"
        assert query_id is not None, "Spark tells the tasks of a streaming query their query id"
        run, start_id = Run(query_id, int(batch_id)), context.getLocalProperty(START_ID) or ""
        with borrowed(self._plan.settings) as cluster:
            batch = find_batch(cluster, self._plan, self._plan.output(query_id), run, start_id)
            return TaskDone(batch, *write_exactly_once(cluster, self._plan, batch, context.partitionId(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        del batchId  # the tasks report it, together with their query
        settle_in()
        batches = [each.batch for each in messages if isinstance(each, TaskDone) and each.batch is not None]
        was_begun_before = any(each.was_begun_before for each in batches)
        if was_begun_before or any(each.begun.task_count != len(messages) for each in batches):
            gap_max = marker_store.GAP_MAX if was_begun_before else 0
            with borrowed(self._plan.settings) as cluster:
                marker_store.settle(cluster, batches[0].output, batches[0].begun, len(messages), gap_max=gap_max)


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode", 'is overwrite, but rows can only be appended to a topic: use mode("append")')
        self._plan = _plan(options, schema)
        self._batch: Batch | None = None
        if self._plan.options.delivery is Delivery.EXACTLY_ONCE:
            self._batch = begin_write(self._plan, WRITE_PREFIX + str(uuid.uuid4()))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        from barnabas.spark.write.delivery import write_at_least_once, write_exactly_once

        settle_in()
        if self._batch is None:
            return TaskDone(None, *write_at_least_once(self._plan, iterator))
        task = _task_context().partitionId()
        with borrowed(self._plan.settings) as cluster:
            return TaskDone(self._batch, *write_exactly_once(cluster, self._plan, self._batch, task, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._end(len(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._end(len(messages))

    def _end(self, task_count: int) -> None:
        settle_in()
        if self._batch is not None:
            marker_store.end_write(self._plan.settings, self._batch.output, self._batch.begun, task_count)


@functools.cache
def _warn(warning: str) -> None:
    """Once per process, because there is a writer for each batch."""
    _log.warning("%s", warning)


def _warn_of_doubtful_name(plan: WritePlan, location: str | None) -> None:
    if named_identity(plan.options) is None:
        _warn(
            "a query that writes exactly once has neither option checkpointLocation nor kafka.transactional.id (a sink "
            "cannot see the setting spark.sql.streaming.checkpointLocation): if its checkpoint is lost, this goes "
            "unnoticed, and rows are written again"
        )
    elif plan.options.producer.transactional_id is None and location is not None and is_relative(location):
        _warn(
            f"option checkpointLocation is {location!r}, which is relative to the folder that the program was started "
            f"in ({absolute_location(location)}): started in another folder, it is another query and writes "
            "everything again"
        )


def _plan(options: Mapping[str, str], schema: StructType) -> WritePlan:
    """How to write rows of this schema; an error if options, columns or topics are wrong."""
    settle_in()
    parsed = parse_sink(options)
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, topic=parsed.topic)
    plan = WritePlan(parsed, client_settings(parsed.client))
    for warning in ignored_settings(plan.settings, PRODUCER_SETTINGS, "this sink"):
        _warn(warning)
    named = {"topic": parsed.topic, "markerTopic": parsed.marker_topic}
    if any(named.values()):
        with borrowed(plan.settings) as cluster:
            for option, topic in named.items():
                if topic is not None:
                    _check_topic(cluster, option, topic)
    return plan


def _check_topic(cluster: Cluster, option: str, topic: str) -> None:
    try:
        cluster.metadata([topic])
    except KafkaError as failure:
        if failure.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        why = f"names topic {topic!r}, which does not exist: create it first, or correct the name"
        raise OptionError(option, why + similar_topics(cluster, [topic])) from failure


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written in tasks"
    return context
