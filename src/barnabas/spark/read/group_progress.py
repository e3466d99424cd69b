"""The progress of a streaming query as that of a consumer group, so that tools that show lag can see the pipeline.

With `kafka.group.id` set, the offsets of a query are committed for that group: where it starts, then after each
finished batch. Spark's checkpoint remains the authority, and a commit that fails is only worth a warning: the next one
brings the group up to date.

Two parts do this, because neither sees everything:

- The source (`stream_reader`) learns that a batch is finished when Spark asks where the next one ends. That is at once
  in a query that runs continuously, and before the end of one that reads what is available now; but it is an hour later
  in a query with an hourly trigger, and never happens for the last batch before a stop, when Spark kills the source's
  process.
- `ProgressListener`, in the process that started the query, learns of every finished batch a moment later. It only
  moves a group forward, so it does not undo what the source has done since.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.client.cluster import Cluster
from barnabas.client.offset_queries import commit_offsets, committed_offsets
from barnabas.protocol.errors import KafkaError
from barnabas.spark.client_options import client_settings
from barnabas.spark.read.source_options import Query, parse_source
from barnabas.spark.read.topic_positions import Offsets, from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

COMMIT_TIMEOUT_MS: Final = 5_000
"""A batch is held up no longer than this by a commit that fails."""
RETRY_AFTER_S: Final = 10.0
"""Nor is every batch held up: after a failure, nothing is committed for this long."""

LAST_WORDS_S_MAX: Final = 5.0
"""How long a program that ends waits for Spark to report on its last batches."""

_STREAM_OF_A_PLAN: Final = "StreamingDataSourceV2ScanRelation"

_log = logging.getLogger(__name__)
_listened_to: WeakSet[SparkSession] = WeakSet()


class GroupProgress:
    """The offsets that this process has committed for a group."""

    def __init__(self, group: str, cluster: Callable[[], Cluster]) -> None:
        self._group = group
        self._cluster = cluster
        self._done: Offsets | None = None
        self._reached: Offsets | None = None
        self._retry_at = 0.0

    def stands_at(self, offsets: Offsets) -> None:
        """Commits these offsets, whether they move the group forward or back."""
        self._try(offsets, self._commit)

    def has_reached(self, offsets: Offsets) -> None:
        """Moves the group forward to these offsets, in partitions where it is behind them."""
        self._reached = offsets
        self._try(offsets, self._catch_up)

    def ends(self) -> None:
        """Retries what was put off after a failure: no later commit will make up for it."""
        if self._reached is not None and self._reached != self._done:
            self._retry_at = 0.0
            self.has_reached(self._reached)

    def _try(self, offsets: Offsets, act: Callable[[Offsets], None]) -> None:
        if offsets == self._done or time.monotonic() < self._retry_at:
            return
        try:
            act(offsets)
            self._done = offsets
        except KafkaError as failure:
            self._retry_at = time.monotonic() + RETRY_AFTER_S
            _log.warning("cannot commit the progress of group %r; the query continues: %s", self._group, failure)

    def _commit(self, offsets: Offsets) -> None:
        commit_offsets(self._cluster(), self._group, offsets, timeout_ms=COMMIT_TIMEOUT_MS)

    def _catch_up(self, offsets: Offsets) -> None:
        standing = committed_offsets(
            self._cluster(), self._group, offsets, require_stable=False, timeout_ms=COMMIT_TIMEOUT_MS
        )
        self._commit(
            {
                place: offset
                for place, offset in offsets.items()
                if place not in standing or standing[place].offset < offset
            }
        )


class ProgressListener(StreamingQueryListener):
    """Commits the progress of all queries of a session that read with a group.

    Spark calls it from one thread at a time for each query, and from several for several queries.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._runs: dict[str, _Run] = {}
        self._has_ended = threading.Condition()
        """Notified when a run has ended."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        # A query can be looked up by its id only while it runs, but its last progress is reported after it has ended.
        query = self._spark._jsparkSession.streams().get(str(event.id))  # noqa: SLF001
        if query is not None:
            self._runs[str(event.runId)] = _Run(query.streamingQuery())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        run = self._runs.get(str(event.progress.runId))
        if run is not None:
            run.finished_batch(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Does nothing: if nothing has been processed, there is nothing to commit."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._has_ended:
            run = self._runs.pop(str(event.runId), None)
            self._has_ended.notify_all()
        if run is not None:
            run.close()

    def end_with_the_program(self) -> None:
        """Waits for Spark's last reports on queries that have ended, then removes this listener: calls to a process
        that is exiting would fail, and Spark would fill the screen with stack traces. Does nothing if the session has
        been stopped already."""
        if self._spark.sparkContext._jsc is None:  # noqa: SLF001 (there is no public way to ask PySpark)
            return
        if not self._spark.streams.active:
            with self._has_ended:
                self._has_ended.wait_for(lambda: not self._runs, LAST_WORDS_S_MAX)
        self._spark.streams.removeListener(self)


def listen(spark: SparkSession) -> None:
    """Adds a listener to a session that has none yet.

    The queries of a Spark Connect session run elsewhere; what the source commits must do there.
    """
    if hasattr(spark, "_jsparkSession") and spark not in _listened_to:
        listener = ProgressListener(spark)
        spark.streams.addListener(listener)
        atexit.register(listener.end_with_the_program)
        _listened_to.add(spark)


class _Run:
    """One run of a query, from start to stop."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self._groups: dict[str, GroupProgress] | None = None
        self._clusters: list[Cluster] = []

    def finished_batch(self, progress: StreamingQueryProgress) -> None:
        if self._groups is None:
            self._groups = {
                stream: self._group_progress(options) for stream, options in _sources_with_group(self._query).items()
            }
        for source in progress.sources:
            group = self._groups.get(source.description)
            if group is not None and source.endOffset:
                group.has_reached(from_json(json.loads(source.endOffset)))

    def close(self) -> None:
        for group in (self._groups or {}).values():
            group.ends()
        for cluster in self._clusters:
            cluster.close()

    def _group_progress(self, options: Mapping[str, str]) -> GroupProgress:
        parsed = parse_source(options, Query.STREAMING)
        cluster = Cluster(client_settings(parsed.client))
        self._clusters.append(cluster)
        assert parsed.group_id is not None
        return GroupProgress(parsed.group_id, lambda: cluster)


def _sources_with_group(query: Any) -> dict[str, dict[str, str]]:
    """The options of a query's sources that have a group, by the names under which Spark reports on them.

    The options are only to be found in the query's plan, which is in the JVM.
    """
    leaves = query.logicalPlan().collectLeaves()
    found: dict[str, dict[str, str]] = {}
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if leaf.getClass().getSimpleName() == _STREAM_OF_A_PLAN and leaf.relation().table().name() == "barnabas":
            options = dict(leaf.relation().options().asCaseSensitiveMap())
            if any(name.lower() == "kafka.group.id" for name in options):
                found[leaf.stream().toString()] = options
    return found
