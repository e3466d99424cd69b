"""Markers: what tells a task that is run again whether its rows are in the topic already.

Spark runs a batch again when a task fails, when a twin of a slow task is started, and when a driver comes back that
died before it noted the batch as done. Each task of a batch writes its rows in one transaction, and with them, in the
same transaction, its marker: an offset committed for a consumer group of its own. So rows and marker are both there or
both not. There are two kinds, both on partition 0 of a topic that exists (the output, unless `markerTopic` says
otherwise), with the number of the batch as the offset and the rest as metadata:

    group <identity>-task-<task>   the last batch that this task has written: its query, how many rows, their checksum
    group <identity>-batch         the batch that was begun last: its query, which start of that query began it and
                                   when, how many tasks the batch before had

An identity may be a name that its user gave to other things too, such as consumer groups: so no group has just that
name, and none is removed that holds anything but markers.

Offsets of a group expire after `offsets.retention.minutes`, and those of a transaction cannot be told not to. A missing
marker of a task would then look like a batch that was never written. That is what the second kind is for: it is written
before any row of a batch, with a retention of its own (which the older versions of OffsetCommit have), so it stays.
A task without a marker, of a batch that was begun longer ago than markers are kept, is refused, never written twice.

Markers of tasks are removed too, when a later batch has fewer tasks. An attempt that was held up since before then
would find none, and write again what its twin has written. But by then the marker of the batch has moved on: so who
finds no marker of its own reads that of the batch again, after it has fenced its twins, and gives up when it is that of
a later batch. The marker of a batch moves on before any marker of a task is removed.

The identity is that of the output: `kafka.transactional.id` if given, else a name made of the checkpoint's location. It
outlives the checkpoint itself. When a query of another id comes with the same identity, the checkpoint was lost, and
starting over would write everything again. Without either, the query's own id is used, and a lost checkpoint is not
noticed.

A batch write is a query of its own, with a new id and one batch, number 0, that its driver begins. When it has ended,
the marker of its batch says 1, for attempts that come too late, and expires.

What is taken for granted of the plan: a batch that is run again has the same tasks with the same rows each, in any
order. A task that finds its marker writes nothing, but it compares count and checksum, and differences are errors.
When another start of the query finishes a batch, markers of tasks that it does not have any more are errors too.

This module decides; `marker_store` asks the cluster. Time comes in as an argument.
"""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.spark.sink_options import OnLostCheckpoint, OnMissingMarker, absolute_location

if TYPE_CHECKING:
    from barnabas.client.cluster import TopicPartition
    from barnabas.spark.sink_options import SinkOptions

IDENTITY_PREFIX: Final = "barnabas-sink-"
IDENTITY_DIGITS: Final = 20
WRITE_PREFIX: Final = "write-"
"""How the id of a batch write begins; Spark's ids of queries are bare UUIDs."""

DAY_MS: Final = 24 * 3_600_000
NAMED_KEPT_MS: Final = 100 * 365 * DAY_MS
"""How long the marker of a batch is kept where a query may come back to it at any time: forever."""
UNNAMED_KEPT_MS: Final = 90 * DAY_MS
"""Named after the query's own id, which nobody can look up to remove it. Longer than a query is idle."""
WRITE_KEPT_MS: Final = 30 * DAY_MS
"""Of a batch write: longer than it takes."""
ENDED_KEPT_MS: Final = DAY_MS
"""Of a batch write that has ended: longer than an attempt of a task goes on without its driver."""

FRESH_MS: Final = 30_000
"""A marker lives for a minute at least, whatever the brokers' settings: a batch begun this recently needs no look."""
KEPT_SURELY_MS: Final = 3_600_000
"""Where nobody says how long markers are kept, this long is believed. Kafka's default is seven days, and brokers that
kept offsets for less than an hour would lose those of every consumer that is stopped for maintenance."""
EXPIRY_SHARE: Final = 0.9
"""How much of the retention is relied on; the rest is for clocks that differ."""


class MarkerError(RuntimeError):
    """It is not certain that writing would write each row once; the text says why, and what to do."""


class Output(NamedTuple):
    """What is written, as its markers name it."""

    identity: str
    place: TopicPartition
    kept_ms: int
    """How long the marker of a batch is kept."""


class Run(NamedTuple):
    """A batch of a query; of a batch write, its one batch."""

    query_id: str
    batch_id: int


@dataclass(frozen=True)
class BatchMarker:
    """The batch that was begun last."""

    run: Run
    start_id: str
    """Which start of the query began it: one that comes back has its id of before, but another one of these."""
    begun_ms: int
    task_count: int
    """How many tasks wrote the last batch that was finished; 0 before there is one."""


@dataclass(frozen=True)
class TaskMarker:
    """What a task wrote last."""

    run: Run
    row_count: int
    checksum: int


class Decision(enum.Enum):
    WRITE = "write"
    """What the task wrote last is of a batch before."""
    SKIP = "skip"
    """The rows are in the topic."""
    UNSURE = "unsure"
    """There is no marker of this query: it has not written yet, or comes too late, or the marker has expired."""


def identity_of(options: SinkOptions, query_id: str) -> str:
    """The name under which an output is written, from one run of its query to the next."""
    return named_identity(options) or IDENTITY_PREFIX + query_id


def named_identity(options: SinkOptions) -> str | None:
    """The same, where it is known without the query."""
    if options.producer.transactional_id is not None:
        return options.producer.transactional_id
    if options.checkpoint_location is not None:
        return identity_of_checkpoint(options.checkpoint_location)
    return None


def identity_of_checkpoint(location: str) -> str:
    """The identity of a query that keeps its checkpoint there: the same however a local path is spelt."""
    path = absolute_location(location).rstrip("/") or "/"
    digest = hashlib.sha256(path.encode()).hexdigest()
    return IDENTITY_PREFIX + digest[:IDENTITY_DIGITS]


def batch_name(identity: str) -> str:
    """The group of the marker of the batch that was begun last."""
    return f"{identity}-batch"


def task_name(identity: str, task: int) -> str:
    """The group of a task's marker; its transactional id is the same."""
    return f"{identity}-task-{task}"


def begin(
    found: BatchMarker | None, run: Run, start_id: str, identity: str, options: SinkOptions, now_ms: int
) -> BatchMarker:
    """The marker that must be there before a task of this run writes; MarkerError if it must not."""
    if found is None:
        if run.batch_id > 0 and options.on_missing_marker is OnMissingMarker.FAIL:
            raise MarkerError(
                f"batch {run.batch_id} of query {run.query_id} is not its first, and the cluster has no marker of any "
                f"batch before (group {batch_name(identity)}): it was deleted, by itself or with the topic that it is "
                "committed for, or earlier batches were written with another identity or with delivery=at_least_once. "
                "If no row of this batch has been written yet, start once with option onMissingMarker=write"
            )
        return BatchMarker(run, start_id, now_ms, 0)
    if found.run.query_id != run.query_id:
        if options.on_lost_checkpoint is OnLostCheckpoint.FAIL:
            raise MarkerError(_lost_checkpoint(found, run, identity, options.checkpoint_location))
        return BatchMarker(run, start_id, now_ms, found.task_count)
    if found.run.batch_id > run.batch_id:
        raise MarkerError(
            f"batch {run.batch_id} of query {run.query_id} comes after batch {found.run.batch_id} was begun: another "
            "driver runs this query too, or its checkpoint was set back to an older state. Stop the other one; or "
            "restore the newest checkpoint; or, to write everything after it again, begin with an empty checkpoint "
            "and option onLostCheckpoint=restart"
        )
    if found.run == run:
        return found
    return BatchMarker(run, start_id, now_ms, found.task_count)


def begin_write(found: BatchMarker | None, write_id: str, identity: str, now_ms: int) -> BatchMarker:
    """The marker that must be there before a task of a batch write writes; MarkerError if it must not."""
    if found is not None and not found.run.query_id.startswith(WRITE_PREFIX):
        raise MarkerError(
            f"streaming query {found.run.query_id} has written up to batch {found.run.batch_id} under the identity "
            f"{identity}, and would not find its markers after this write: give it another kafka.transactional.id"
        )
    return BatchMarker(Run(write_id, 0), write_id, now_ms, 0)


def ended(begun: BatchMarker) -> BatchMarker:
    """The marker of a batch write of which no task is to write any more."""
    return BatchMarker(Run(begun.run.query_id, begun.run.batch_id + 1), begun.start_id, begun.begun_ms, 0)


def check_current(known: BatchMarker | None, found: BatchMarker | None, run: Run, identity: str) -> None:
    """Whether the batch begun last is, when it is looked up again, as it was known, or this one by now."""
    found_run, known_run = found and found.run, known and known.run
    if found_run in (known_run, run):
        return
    by_now = (
        "its marker is gone"
        if found is None
        else f"batch {found.run.batch_id} of query {found.run.query_id} has been begun, or the write has ended"
    )
    raise MarkerError(
        f"an attempt of a task of batch {run.batch_id} of query {run.query_id} comes too late and has written nothing: "
        f"by now {by_now} (group {batch_name(identity)})"
    )


def is_superseded(run: Run, found: BatchMarker) -> bool:
    """Whether another query, or another driver of this one, has gone on from this run."""
    return found.run.query_id != run.query_id or found.run.batch_id > run.batch_id


def decide(found: TaskMarker | None, run: Run) -> Decision:
    """What a task does that finds this marker of its own."""
    if found is None or found.run.query_id != run.query_id:
        return Decision.UNSURE
    if found.run == run:
        return Decision.SKIP
    if found.run.batch_id > run.batch_id:
        raise MarkerError(
            f"batch {run.batch_id} of query {run.query_id} comes after this task has written batch "
            f"{found.run.batch_id}: another driver runs this query too, or its checkpoint was set back"
        )
    return Decision.WRITE


def needs_retention(begun: BatchMarker, options: SinkOptions, now_ms: int) -> bool:
    """Whether it takes the brokers' settings to know that a missing marker was never there."""
    return now_ms - begun.begun_ms > FRESH_MS and options.on_missing_marker is OnMissingMarker.FAIL


def check_retention(begun: BatchMarker, retention_ms: int, now_ms: int) -> None:
    """Whether a marker of this batch would still be there, so that its absence means that nothing was written."""
    age_ms = now_ms - begun.begun_ms
    if age_ms <= retention_ms * EXPIRY_SHARE:
        return
    raise MarkerError(
        f"batch {begun.run.batch_id} of query {begun.run.query_id} was begun {age_ms // 60_000} minutes ago and this "
        f"task has no marker, which may have expired (the brokers keep them for {retention_ms // 60_000} minutes, "
        "offsets.retention.minutes): its rows may be in the topic already. Look whether they are; if not, start once "
        "with option onMissingMarker=write"
    )


def check_age(begun: BatchMarker, now_ms: int, why_unknown: str) -> None:
    """The same where the retention cannot be read: a batch is accepted that is younger than any would be."""
    age_ms = now_ms - begun.begun_ms
    if age_ms <= KEPT_SURELY_MS:
        return
    raise MarkerError(
        f"batch {begun.run.batch_id} of query {begun.run.query_id} was begun {age_ms // 60_000} minutes ago, there is "
        f"no marker of this task, and how long the brokers keep them cannot be read: {why_unknown}. Give this user the "
        "right to describe their configuration; or, if the rows of this batch are not in the topic, start once with "
        "option onMissingMarker=write"
    )


def check_rows(found: TaskMarker, row_count: int, checksum: int, task: int) -> None:
    """Whether a task that is run again was given the rows that it has written."""
    if (found.row_count, found.checksum) == (row_count, checksum):
        return
    difference = (
        f"{found.row_count} rows the first time and {row_count} now"
        if found.row_count != row_count
        else f"{row_count} rows with other contents than the first time"
    )
    raise MarkerError(
        f"task {task} of batch {found.run.batch_id} of query {found.run.query_id} has been run again with "
        f"{difference}: the plan does not give the same rows to the same task twice, so rows are written twice or "
        "never. Leave out what differs from run to run (random numbers, the current time, a number of partitions that "
        "was changed), or use delivery=at_least_once"
    )


def check_surplus(found: TaskMarker | None, run: Run, task: int, task_count: int) -> None:
    """Whether a task beyond those of a finished batch has written in it: there were more of them the first time."""
    if found is not None and found.run == run:
        raise MarkerError(
            f"task {task} of batch {run.batch_id} of query {run.query_id} has written {found.row_count} rows, and now "
            f"the batch has only {task_count} tasks: a batch that is run again must have as many as the first time"
        )


def batch_metadata(marker: BatchMarker) -> str:
    return json.dumps(
        {
            "query": marker.run.query_id,
            "start": marker.start_id,
            "begun_ms": marker.begun_ms,
            "tasks": marker.task_count,
        }
    )


def task_metadata(marker: TaskMarker) -> str:
    return json.dumps({"query": marker.run.query_id, "rows": marker.row_count, "sum": f"{marker.checksum:016x}"})


def read_batch_marker(group: str, offset: int, metadata: str) -> BatchMarker:
    fields = _fields(group, metadata, {"query": str, "start": str, "begun_ms": int, "tasks": int})
    return BatchMarker(Run(fields["query"], offset), fields["start"], fields["begun_ms"], fields["tasks"])


def read_task_marker(group: str, offset: int, metadata: str) -> TaskMarker:
    fields = _fields(group, metadata, {"query": str, "rows": int, "sum": str})
    return TaskMarker(Run(fields["query"], offset), fields["rows"], int(fields["sum"], 16))


def _fields(group: str, metadata: str, types: dict[str, type]) -> dict[str, Any]:
    try:
        fields = json.loads(metadata)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or any(not isinstance(fields.get(name), kind) for name, kind in types.items()):
        raise MarkerError(
            f"group {group} holds no marker but an offset with metadata {metadata[:100]!r}: somebody else uses this "
            "group. Choose another name by option kafka.transactional.id"
        )
    return fields


def _lost_checkpoint(found: BatchMarker, run: Run, identity: str, location: str | None) -> str:
    where = "" if location is None else f" ({location})"
    return (
        f"query {found.run.query_id} has written up to batch {found.run.batch_id} under the identity {identity}, and "
        f"this is batch {run.batch_id} of query {run.query_id}: the checkpoint was lost{where}, or two queries share "
        "one identity. Restore the checkpoint; or give this query another kafka.transactional.id; or, if it may begin "
        "again and write rows that the other one has written, start once with option onLostCheckpoint=restart"
    )
