"""What is decided before the tasks of a write begin: how to write, and which batch it is.

It is made on the driver, in a new process each time Spark has had nothing to write for a while. So it is kept apart
from what tasks do (`delivery`), which needs NumPy and Arrow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.pool import borrowed
from barnabas.spark.write import exactly_once, marker_store
from barnabas.spark.write.exactly_once import BatchMarker, Output

if TYPE_CHECKING:
    from barnabas.client.client_settings import ClientSettings
    from barnabas.client.cluster import TopicPartition
    from barnabas.spark.write.sink_options import SinkOptions


@dataclass(frozen=True)
class WritePlan:
    """How to write, according to the options. It is sent to the tasks."""

    options: SinkOptions
    settings: ClientSettings

    def output(self, query_id: str) -> Output:
        """The output of a streaming query."""
        is_named = exactly_once.named_identity(self.options) is not None
        kept_ms = exactly_once.NAMED_KEPT_MS if is_named else exactly_once.UNNAMED_KEPT_MS
        return Output(exactly_once.identity_of(self.options, query_id), self._marker_place(), kept_ms)

    def output_of_write(self, write_id: str) -> Output:
        """The output of a batch write, which has no checkpoint to be named after."""
        identity = self.options.producer.transactional_id or exactly_once.IDENTITY_PREFIX + write_id
        return Output(identity, self._marker_place(), exactly_once.WRITE_KEPT_MS)

    def _marker_place(self) -> TopicPartition:
        """The partition that markers are committed for. It must exist, whatever topics the rows go to."""
        return self.options.marker_topic or self.options.topic or INTERNAL_TOPIC, 0


INTERNAL_TOPIC: Final = "__consumer_offsets"
"""It exists as soon as there is a group, and a marker is one."""


class Batch(NamedTuple):
    """The batch that a task writes a part of, and what was known about it when the task began."""

    output: Output
    start_id: str
    """Identifies this start of the query; after each restart it is another one."""
    found: BatchMarker | None
    begun: BatchMarker
    """The marker that must exist before the task writes."""

    @property
    def was_begun_before(self) -> bool:
        """Whether an earlier start of the query began it, which may have had tasks that this one does not have."""
        return self.begun.start_id != self.start_id

    @property
    def can_have_expired(self) -> bool:
        """Whether a marker of this batch may have expired. It cannot in a batch write, which is always new."""
        return self.begun.run.query_id != self.start_id


def begin_write(plan: WritePlan, write_id: str) -> Batch:
    """Begins the one batch of a batch write."""
    output = plan.output_of_write(write_id)
    with borrowed(plan.settings) as cluster:
        found = marker_store.read_batch(cluster, output)
        begun = exactly_once.begin_write(found, write_id, output.identity, now_ms())
        marker_store.write_batch(cluster, output, begun)
    return Batch(output, write_id, begun, begun)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
