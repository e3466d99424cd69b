"""Exactly-once markers: they tell a task that is run again whether its rows are in the topic already.

Spark runs a batch again when a task fails, when a slow task gets a speculative second attempt, and when a driver
restarts that died before it recorded the batch as done. Each task of a batch writes its rows in one transaction, and in
the same transaction its marker: an offset committed for a consumer group of its own. So either both rows and marker
exist, or neither. There are two kinds of marker, both on partition 0 of a topic that exists (the output, unless
`markerTopic` says otherwise), with the batch id as the offset and the rest as metadata:

    group <identity>-task-<task>   the last batch that this task has written: its query, row count and checksum
    group <identity>-batch         the batch that was begun last: its query, which start of that query began it and
                                   when, and how many tasks the previous batch had

How markers are used:

1. A task reads the batch marker. `begin` refuses a batch that must not be written, and says what the marker must be.
2. The task fences other attempts of itself and reads its own marker. `decide` compares it with the task's batch: an
   earlier batch means write; this batch means that the rows are in the topic, and `compare_rows` compares their count
   and checksum instead; no marker is not proof of anything yet (3 and 4).
3. Offsets of a group expire after `offsets.retention.minutes`, and those of a transaction cannot be exempted. A task
   whose marker has expired would look like one that never wrote. That is what the batch marker is for: it is written
   before any row of a batch, with a retention of its own (which older versions of OffsetCommit have), so it stays. If
   a batch was begun longer ago than markers are kept, a task without a marker is refused and nothing is written twice
   (`check_retention`, `check_age`).
4. Task markers are also removed when a later batch has fewer tasks. An attempt that was held up since before that would
   find none, and write again what another attempt has written. But the batch marker has moved on by then, because it
   moves on before any task marker is removed. So a task that finds no marker of its own reads the batch marker again,
   after it has fenced other attempts, and gives up if a later batch has begun (`check_current`).

The identity is that of the output: `kafka.transactional.id` if set, else a name derived from the checkpoint's location.
It outlives the checkpoint itself. If a query with another id has the same identity, the checkpoint was lost, and
starting over would write everything again. If neither option is set, the query's own id is used, and a lost checkpoint
goes unnoticed. Users may give the same name to other things, such as consumer groups: so no marker's group has just
that name, and no group is removed that holds anything but markers.

A batch write is a query of its own, with a new id and one batch, number 0, which its driver begins. When it has ended,
its batch marker says 1, for attempts that come too late, and then expires.

This relies on the plan: a batch that is run again must have the same tasks with the same rows, in any order. Where a
difference shows it is an error: another count or checksum of a task's rows, or, when another start of the query
finishes a batch, markers of tasks that the batch no longer has.

This module decides; `marker_store` talks to the cluster. Time is passed in as an argument.
"""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.spark.write.sink_options import OnLostCheckpoint, OnMissingMarker, absolute_location

if TYPE_CHECKING:
    from barnabas.client.cluster import TopicPartition
    from barnabas.spark.write.sink_options import SinkOptions

IDENTITY_PREFIX: Final = "barnabas-sink-"
IDENTITY_DIGITS: Final = 20
WRITE_PREFIX: Final = "write-"
"""How the id of a batch write begins; Spark's query ids are bare UUIDs."""

DAY_MS: Final = 24 * 3_600_000
NAMED_KEPT_MS: Final = 100 * 365 * DAY_MS
"""How long a batch marker is kept if the query may come back to it at any time: forever."""
UNNAMED_KEPT_MS: Final = 90 * DAY_MS
"""Of an output named after the query's own id, which nobody can look up to remove it: longer than a query is idle."""
WRITE_KEPT_MS: Final = 30 * DAY_MS
"""Of a batch write: longer than it takes."""
ENDED_KEPT_MS: Final = DAY_MS
"""Of a batch write that has ended: longer than an attempt of a task goes on without its driver."""

FRESH_MS: Final = 30_000
"""A marker lives for at least a minute, whatever the brokers' settings: a batch begun this recently needs no check."""
KEPT_SURELY_MS: Final = 3_600_000
"""Markers are assumed to be kept this long if the setting cannot be read. Kafka's default is seven days, and brokers
that kept offsets for less than an hour would lose those of every consumer that is stopped for maintenance."""
EXPIRY_SHARE: Final = 0.9
"""How much of the retention is relied on; the rest allows for clocks that differ."""


class MarkerError(RuntimeError):
    """It is not certain that writing would write each row exactly once; the text says why, and what to do."""


class Output(NamedTuple):
    """What is written, as its markers name it."""

    identity: str
    place: TopicPartition
    kept_ms: int
    """How long the batch marker is kept."""


class Run(NamedTuple):
    """One batch of one query. A batch write has only one."""

    query_id: str
    batch_id: int


@dataclass(frozen=True)
class BatchMarker:
    """The batch that was begun last."""

    run: Run
    start_id: str
    """Which start of the query began it: after a restart, a query has the same id but another one of these."""
    begun_ms: int
    task_count: int
    """How many tasks the last finished batch had; 0 before there is one."""


@dataclass(frozen=True)
class TaskMarker:
    """The batch that a task wrote last."""

    run: Run
    row_count: int
    checksum: int


class Decision(enum.Enum):
    WRITE = "write"
    """The last batch that the task wrote is an earlier one."""
    SKIP = "skip"
    """The rows are in the topic already."""
    UNSURE = "unsure"
    """There is no marker of this query: the task has not written yet, or is too late, or its marker has expired."""


def identity_of(options: SinkOptions, query_id: str) -> str:
    """The name of an output, which stays the same when its query is restarted."""
    return named_identity(options) or IDENTITY_PREFIX + query_id


def named_identity(options: SinkOptions) -> str | None:
    """The same, if it does not depend on the query's id; else None."""
    if options.producer.transactional_id is not None:
        return options.producer.transactional_id
    if options.checkpoint_location is not None:
        return identity_of_checkpoint(options.checkpoint_location)
    return None


def identity_of_checkpoint(location: str) -> str:
    """The identity of a query with its checkpoint at this location, however a local path is spelt."""
    path = absolute_location(location).rstrip("/") or "/"
    digest = hashlib.sha256(path.encode()).hexdigest()
    return IDENTITY_PREFIX + digest[:IDENTITY_DIGITS]


def batch_name(identity: str) -> str:
    """The group of the batch marker."""
    return f"{identity}-batch"


def task_name(identity: str, task: int) -> str:
    """The group of a task's marker, which is also the task's transactional id."""
    return f"{identity}-task-{task}"


def begin(
    found: BatchMarker | None, run: Run, start_id: str, identity: str, options: SinkOptions, now_ms: int
) -> BatchMarker:
    """The batch marker that must exist before a task of this batch writes; MarkerError if the task must not write."""
    if found is None:
        if run.batch_id > 0 and options.on_missing_marker is OnMissingMarker.FAIL:
            raise MarkerError(
                f"batch {run.batch_id} of query {run.query_id} is not its first, but the cluster has no marker of an "
                f"earlier batch (group {batch_name(identity)}): the marker was deleted, by itself or with the topic "
                "that it was committed for, or earlier batches were written with another identity or with "
                "delivery=at_least_once. If no row of this batch has been written yet, start once with option "
                "onMissingMarker=write"
            )
        return BatchMarker(run, start_id, now_ms, 0)
    if found.run.query_id != run.query_id:
        if options.on_lost_checkpoint is OnLostCheckpoint.FAIL:
            raise MarkerError(_lost_checkpoint(found, run, identity, options.checkpoint_location))
        return BatchMarker(run, start_id, now_ms, found.task_count)
    if found.run.batch_id > run.batch_id:
        raise MarkerError(
            f"batch {run.batch_id} of query {run.query_id} is to be written, but batch {found.run.batch_id} has "
            "already begun: another driver runs this query too, or its checkpoint was reset to an older state. Stop "
            "the other driver; or restore the newest checkpoint; or, to write everything again, begin with an empty "
            "checkpoint and option onLostCheckpoint=restart"
        )
    if found.run == run:
        return found
    return BatchMarker(run, start_id, now_ms, found.task_count)


def begin_write(found: BatchMarker | None, write_id: str, identity: str, now_ms: int) -> BatchMarker:
    """The batch marker that must exist before tasks of a batch write write; MarkerError if they must not."""
    if found is not None and not found.run.query_id.startswith(WRITE_PREFIX):
        raise MarkerError(
            f"streaming query {found.run.query_id} has written up to batch {found.run.batch_id} with the identity "
            f"{identity}, and would not find its markers after this write: give this write another "
            "kafka.transactional.id"
        )
    return BatchMarker(Run(write_id, 0), write_id, now_ms, 0)


def ended(begun: BatchMarker) -> BatchMarker:
    """The batch marker of a batch write that has ended, after which no task may write."""
    return BatchMarker(Run(begun.run.query_id, begun.run.batch_id + 1), begun.start_id, begun.begun_ms, 0)


def check_current(known: BatchMarker | None, found: BatchMarker | None, run: Run, identity: str) -> None:
    """Compares the batch marker with the one that was known before. MarkerError unless it is unchanged, or that of this
    batch by now."""
    found_run, known_run = found and found.run, known and known.run
    if found_run in (known_run, run):
        return
    by_now = (
        "its batch marker is gone"
        if found is None
        else f"batch {found.run.batch_id} of query {found.run.query_id} has begun, or the write has ended"
    )
    raise MarkerError(
        f"this attempt of a task of batch {run.batch_id} of query {run.query_id} is too late and has written nothing: "
        f"{by_now} (group {batch_name(identity)})"
    )


def is_superseded(run: Run, found: BatchMarker) -> bool:
    """Whether another query has taken over, or another driver of this query has begun a later batch."""
    return found.run.query_id != run.query_id or found.run.batch_id > run.batch_id


def decide(found: TaskMarker | None, run: Run) -> Decision:
    """What a task of this batch does that finds this marker of its own."""
    if found is None or found.run.query_id != run.query_id:
        return Decision.UNSURE
    if found.run == run:
        return Decision.SKIP
    if found.run.batch_id > run.batch_id:
        raise MarkerError(
            f"batch {run.batch_id} of query {run.query_id} is to be written, but this task has already written batch "
            f"{found.run.batch_id}: another driver runs this query too, or its checkpoint was reset to an older state"
        )
    return Decision.WRITE


def needs_retention(begun: BatchMarker, options: SinkOptions, now_ms: int) -> bool:
    """Whether the brokers' retention must be known to conclude that a missing marker never existed."""
    return now_ms - begun.begun_ms > FRESH_MS and options.on_missing_marker is OnMissingMarker.FAIL


def check_retention(begun: BatchMarker, retention_ms: int, now_ms: int) -> None:
    """MarkerError unless a marker of this batch would still exist, so that its absence proves that nothing was
    written."""
    age_ms = now_ms - begun.begun_ms
    if age_ms <= retention_ms * EXPIRY_SHARE:
        return
    raise MarkerError(
        f"batch {begun.run.batch_id} of query {begun.run.query_id} was begun {age_ms // 60_000} minutes ago, and this "
        f"task has no marker. It may have expired (the brokers keep markers for {retention_ms // 60_000} minutes, "
        "offsets.retention.minutes), so the rows may be in the topic already. Check whether they are; if not, start "
        "once with option onMissingMarker=write"
    )


def check_age(begun: BatchMarker, now_ms: int, why_unknown: str) -> None:
    """The same if the retention cannot be read: only a batch younger than any plausible retention is accepted."""
    age_ms = now_ms - begun.begun_ms
    if age_ms <= KEPT_SURELY_MS:
        return
    raise MarkerError(
        f"batch {begun.run.batch_id} of query {begun.run.query_id} was begun {age_ms // 60_000} minutes ago, this "
        f"task has no marker, and how long the brokers keep markers cannot be read: {why_unknown}. Allow this user to "
        "describe the brokers' configuration; or, if the rows of this batch are not in the topic, start once with "
        "option onMissingMarker=write"
    )


def compare_rows(found: TaskMarker, row_count: int, checksum: int, task: int) -> None:
    """Compares the rows of a task that is run again with what its marker says of them; MarkerError if they differ."""
    if (found.row_count, found.checksum) == (row_count, checksum):
        return
    difference = (
        f"{row_count} rows instead of {found.row_count} the first time"
        if found.row_count != row_count
        else f"{row_count} rows whose content differs from the first time"
    )
    raise MarkerError(
        f"task {task} of batch {found.run.batch_id} of query {found.run.query_id} was run again with {difference}: "
        "the plan does not give the same rows to the same task each time, so rows may be written twice or not at all. "
        "Remove what differs from run to run (random numbers, the current time, a changed number of partitions), or "
        "use delivery=at_least_once"
    )


def check_surplus(found: TaskMarker | None, run: Run, task: int, task_count: int) -> None:
    """MarkerError if a task beyond those of a finished batch has written to it: the batch had more tasks the first
    time."""
    if found is not None and found.run == run:
        raise MarkerError(
            f"task {task} of batch {run.batch_id} of query {run.query_id} has written {found.row_count} rows, but now "
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
            f"group {group} holds an offset that is not a marker, with metadata {metadata[:100]!r}: something else "
            "uses this group. Choose another name with option kafka.transactional.id"
        )
    return fields


def _lost_checkpoint(found: BatchMarker, run: Run, identity: str, location: str | None) -> str:
    where = "" if location is None else f" ({location})"
    return (
        f"query {found.run.query_id} has written up to batch {found.run.batch_id} with the identity {identity}, but "
        f"this is batch {run.batch_id} of query {run.query_id}: the checkpoint was lost{where}, or two queries share "
        "one identity. Restore the checkpoint; or give this query another kafka.transactional.id; or, if it may start "
        "over and write rows that the other query has written, start once with option onLostCheckpoint=restart"
    )
