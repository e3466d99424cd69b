"""Progress of a streaming query as that of a consumer group, so that tools that show lag see the pipeline.

With `kafka.group.id` set, a group stands where its query stands: at the start of a new query where that starts, then
behind each batch that is finished. Spark's checkpoint stays the authority, and a commit that fails is only worth a
warning: the next one brings the group up to date.

Two sides do it, because neither sees everything:

- The source (`stream_reader`) hears of a finished batch when Spark asks how far the next one goes. That is at once in a
  query that runs freely, and before the end of one that reads what is available now; but an hour later in one that is
  triggered by the hour, and never for the last batch before a stop, at which Spark kills the process of the source.
- `ProgressListener`, in the process that started the query, hears of every finished batch a moment later. It only ever
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
from barnabas.client.offsets import commit_offsets, committed_offsets
from barnabas.protocol.errors import KafkaError
from barnabas.spark.offsets import Offsets, from_json
from barnabas.spark.options import Query, parse_source
from barnabas.spark.settings import client_settings

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
"""A batch is not held up for longer by a group that cannot be committed to."""
RETRY_AFTER_S: Final = 10.0
"""Nor is every batch held up: after a failure none is committed for a while."""

LAST_WORDS_S_MAX: Final = 5.0
"""How long a program that ends waits for Spark to report on its last batches."""

_STREAM_OF_A_PLAN: Final = "StreamingDataSourceV2ScanRelation"

_log = logging.getLogger(__name__)
_listened_to: WeakSet[SparkSession] = WeakSet()


class GroupProgress:
    """Where a group stands, as far as this process has put it there."""

    def __init__(self, group: str, cluster: Callable[[], Cluster]) -> None:
        self._group = group
        self._cluster = cluster
        self._done: Offsets | None = None
        self._reached: Offsets | None = None
        self._retry_at = 0.0

    def stands_at(self, offsets: Offsets) -> None:
        """Puts the group there, forward or back."""
        self._try(offsets, self._commit)

    def has_reached(self, offsets: Offsets) -> None:
        """Brings the group up to there, where it is not there yet."""
        self._reached = offsets
        self._try(offsets, self._catch_up)

    def ends(self) -> None:
        """Tries once more what was put off after a failure: nothing comes after it that would make up for it."""
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
            _log.warning("the progress of group %r is not committed, the query goes on: %s", self._group, failure)

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
        """Notified when a run has."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        # The query is only to be had by its id while it runs, and its last progress is reported after its end.
        query = self._spark._jsparkSession.streams().get(str(event.id))  # noqa: SLF001
        if query is not None:
            self._runs[str(event.runId)] = _Run(query.streamingQuery())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        run = self._runs.get(str(event.progress.runId))
        if run is not None:
            run.finished_batch(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing has been processed, so there is nothing to commit."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._has_ended:
            run = self._runs.pop(str(event.runId), None)
            self._has_ended.notify_all()
        if run is not None:
            run.close()

    def end_with_the_program(self) -> None:
        """Hears Spark out on queries that have ended, and is not called any more: soon nobody would answer, and Spark
        would fill the screen with that. Nothing is left to do where the session has been stopped."""
        if self._spark.sparkContext._jsc is None:  # noqa: SLF001 (PySpark has no other way to tell)
            return
        if not self._spark.streams.active:
            with self._has_ended:
                self._has_ended.wait_for(lambda: not self._runs, LAST_WORDS_S_MAX)
        self._spark.streams.removeListener(self)


def listen(spark: SparkSession) -> None:
    """Adds a listener to a session that has none yet.

    A session of Spark Connect has its queries elsewhere; there, what the source does by itself has to do.
    """
    if hasattr(spark, "_jsparkSession") and spark not in _listened_to:
        listener = ProgressListener(spark)
        spark.streams.addListener(listener)
        atexit.register(listener.end_with_the_program)
        _listened_to.add(spark)


class _Run:
    """One run of a query, from a start to a stop."""

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
    """The options of the sources of a query that read with a group, by the names under which Spark reports on them.

    Spark says what it knows of a source in its plan only, which lies in the JVM.
    """
    leaves = query.logicalPlan().collectLeaves()
    found: dict[str, dict[str, str]] = {}
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if leaf.getClass().getSimpleName() == _STREAM_OF_A_PLAN and leaf.relation().table().name() == "barnabas":
            options = dict(leaf.relation().options().asCaseSensitiveMap())
            if any(name.lower() == "kafka.group.id" for name in options):
                found[leaf.stream().toString()] = options
    return found
