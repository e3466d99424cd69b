"""What is settled before the tasks of a write begin: how to write, and which batch it is.

It is made on the driver, where it takes a new process each time that Spark has had nothing to write for a while. So it
is kept apart from what tasks do (`writing`), which needs NumPy and Arrow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.pool import borrowed
from barnabas.spark import marker_store, markers
from barnabas.spark.markers import BatchMarker, Output

if TYPE_CHECKING:
    from barnabas.client.cluster import TopicPartition
    from barnabas.client.settings import ClientSettings
    from barnabas.spark.sink_options import SinkOptions


@dataclass(frozen=True)
class WritePlan:
    """How to write, as the options say. It travels to the tasks."""

    options: SinkOptions
    settings: ClientSettings

    def output(self, query_id: str) -> Output:
        """What a streaming query writes."""
        is_named = markers.named_identity(self.options) is not None
        kept_ms = markers.NAMED_KEPT_MS if is_named else markers.UNNAMED_KEPT_MS
        return Output(markers.identity_of(self.options, query_id), self._marker_place(), kept_ms)

    def output_of_write(self, write_id: str) -> Output:
        """What a batch write writes, which has no checkpoint to be named after."""
        identity = self.options.producer.transactional_id or markers.IDENTITY_PREFIX + write_id
        return Output(identity, self._marker_place(), markers.WRITE_KEPT_MS)

    def _marker_place(self) -> TopicPartition:
        """What markers are committed for: a partition that exists, whatever topics the rows go to."""
        return self.options.marker_topic or self.options.topic or INTERNAL_TOPIC, 0


INTERNAL_TOPIC: Final = "__consumer_offsets"
"""It is there as soon as there is a group, which a marker is."""


class Batch(NamedTuple):
    """The batch of which a task writes a part, and what was known of it when the task began."""

    output: Output
    start_id: str
    """Which start of the query this is."""
    found: BatchMarker | None
    begun: BatchMarker
    """What must be there before the task writes."""

    @property
    def was_begun_before(self) -> bool:
        """Whether an earlier start of the query has begun it: what that one wrote need not come again in this one."""
        return self.begun.start_id != self.start_id

    @property
    def can_have_expired(self) -> bool:
        """Whether a marker of it can be as old as markers become: not of a batch write, which is new."""
        return self.begun.run.query_id != self.start_id


def begin_write(plan: WritePlan, write_id: str) -> Batch:
    """The one batch of a batch write, begun."""
    output = plan.output_of_write(write_id)
    with borrowed(plan.settings) as cluster:
        found = marker_store.read_batch(cluster, output)
        begun = markers.begin_write(found, write_id, output.identity, now_ms())
        marker_store.write_batch(cluster, output, begun)
    return Batch(output, write_id, begun, begun)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
