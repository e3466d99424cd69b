"""What a task of a write does: its rows go in chunks, as record batches, to the leaders of their partitions.

`write_at_least_once` does just that. `write_exactly_once` wraps it in a transaction and a marker: it compares the
marker that it finds with its own batch first, and writes nothing if its rows are in the topic already.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.client.pool import borrowed
from barnabas.protocol.errors import KafkaError
from barnabas.spark.columnar.record_encoding import Author, Limits, encode
from barnabas.spark.columnar.sink_rows import Rows, read_rows
from barnabas.spark.write import exactly_once, marker_store, sink_transactions, write_plan
from barnabas.spark.write.checksums import MASK, checksum
from barnabas.spark.write.exactly_once import BatchMarker, Decision, Run, TaskMarker
from barnabas.spark.write.partitioner import Sticky, assign
from barnabas.spark.write.producer import Producer
from barnabas.spark.write.write_plan import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.client.client_settings import ClientSettings
    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.spark.write.exactly_once import Output
    from barnabas.spark.write.sink_options import ProducerOptions
    from barnabas.spark.write.sink_transactions import Protocol
    from barnabas.spark.write.write_plan import WritePlan

CHUNK_BYTES: Final = 4 * 1024 * 1024
CHUNK_ROWS: Final = 64 * 1024
"""How much is encoded at a time: enough to fill batches for several partitions, and a small amount of memory."""

ABORT_TIMEOUT_MS: Final = 5_000
"""Aborting only spares readers a wait: the next producer with this transactional id does it anyway."""


class Outcome(NamedTuple):
    row_count: int
    was_written_before: bool


class Tally:
    """The number of rows, and a checksum of them that does not depend on their order."""

    def __init__(self) -> None:
        self.row_count = 0
        self.checksum = 0

    def add(self, rows: Rows) -> None:
        self.row_count += len(rows)
        self.checksum = (self.checksum + checksum(rows)) & MASK


def write_at_least_once(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> Outcome:
    """Writes rows, all of which are in the log when this returns. What an earlier attempt has written stays there."""
    with borrowed(plan.settings) as cluster:
        author, sequences = _borrow_author(cluster, plan)
        producer = Producer(cluster, author, plan.options.producer, sequences=sequences)
        writer = _Writer(plan, producer)
        row_count = 0
        for rows in _rows_of(plan, batches):
            writer.write(rows)
            row_count += len(rows)
        producer.flush()
        _keep_author(plan, author, sequences)
        return Outcome(row_count, was_written_before=False)


def find_batch(cluster: Cluster, plan: WritePlan, output: Output, run: Run, start_id: str) -> Batch:
    """The batch of a streaming query as a task finds it; MarkerError if it must not be written."""
    found = marker_store.read_batch(cluster, output)
    begun = exactly_once.begin(found, run, start_id, output.identity, plan.options, write_plan.now_ms())
    return Batch(output, start_id, found, begun)


def write_exactly_once(
    cluster: Cluster, plan: WritePlan, batch: Batch, task: int, batches: Iterable[pa.RecordBatch]
) -> Outcome:
    """Writes the rows of a task and its marker in one transaction, unless an earlier attempt has done so."""
    output, run = batch.output, batch.begun.run
    chunks = _rows_of(plan, batches)
    first = next(chunks, None)
    if first is None:
        # Nothing to write needs no transaction. But if there were rows the first time, the plan has changed.
        _note_first(cluster, batch)
        return _compare(marker_store.read_task(cluster, output, task), run, task, iter(()))
    name = exactly_once.task_name(output.identity, task)
    author = sink_transactions.begin(cluster, name, plan.options.producer.transaction_timeout_ms)
    found = marker_store.read_task(cluster, output, task)
    decision = exactly_once.decide(found, run)
    if decision is Decision.SKIP:
        return _compare(found, run, task, _with_first(first, chunks))
    if decision is Decision.UNSURE:
        batch = _look_again(cluster, batch)
    if found is None and batch.can_have_expired:
        _check_expiry(cluster, plan, batch.begun, name)
    if batch.begun != batch.found:
        marker_store.write_batch(cluster, output, batch.begun)
    protocol = sink_transactions.protocol_of(cluster)
    try:
        tally = _produce(cluster, plan, author, protocol, _with_first(first, chunks))
        marker = TaskMarker(run, tally.row_count, tally.checksum)
        marker_store.write_task(cluster, author, protocol, output, marker)
        sink_transactions.commit(cluster, author, protocol)
    except BaseException:
        _abort(cluster, author, protocol)
        raise
    return Outcome(tally.row_count, was_written_before=False)


def _look_again(cluster: Cluster, batch: Batch) -> Batch:
    """The batch as it is now that other attempts of this task are fenced; MarkerError if the batch is over.

    Needed only if the task has no marker. A marker of an earlier batch proves that the task has not written this one,
    so no later one can have begun.
    """
    found = marker_store.read_batch(cluster, batch.output)
    exactly_once.check_current(batch.found, found, batch.begun.run, batch.output.identity)
    begun = found if found is not None and found.run == batch.begun.run else batch.begun
    return batch._replace(found=found, begun=begun)


def _note_first(cluster: Cluster, batch: Batch) -> None:
    """Records the first batch of a query even if this task has no rows for it: a later batch is refused if there is no
    marker of any batch before it.

    Other batches need not be recorded while they have no rows. Other attempts of this task are not fenced here, so the
    batch is looked up again right before.
    """
    if batch.found is None or batch.found.run.query_id != batch.begun.run.query_id:
        batch = _look_again(cluster, batch)
        if batch.begun != batch.found:
            marker_store.write_batch(cluster, batch.output, batch.begun)


def _check_expiry(cluster: Cluster, plan: WritePlan, begun: BatchMarker, group: str) -> None:
    """MarkerError if the missing marker may have existed and expired."""
    now_ms = write_plan.now_ms()
    if not exactly_once.needs_retention(begun, plan.options, now_ms):
        return
    try:
        kept_ms = marker_store.retention_ms(cluster, group)
    except KafkaError as failure:
        exactly_once.check_age(begun, now_ms, str(failure))
    else:
        exactly_once.check_retention(begun, kept_ms, now_ms)


class _Writer:
    """Sends rows to their partitions."""

    def __init__(self, plan: WritePlan, producer: Producer) -> None:
        self._topic = plan.options.topic
        self._limits = _limits(plan.options.producer)
        self._producer = producer
        self._sticky: dict[str, Sticky] = {}

    def write(self, rows: Rows) -> None:
        for topic, of_topic in _by_topic(rows, self._topic):
            partitions = self._producer.partitions_of(topic)
            sticky = self._sticky.get(topic)
            if sticky is None:
                start = random.randrange(partitions.partition_count)
                sticky = self._sticky[topic] = Sticky(self._limits.batch_bytes, start)
            assigned = assign(of_topic, partitions, sticky)
            self._producer.write(topic, encode(of_topic, assigned, self._limits))


def _produce(cluster: Cluster, plan: WritePlan, author: Author, protocol: Protocol, chunks: Iterator[Rows]) -> Tally:
    producer = Producer(cluster, author, plan.options.producer, protocol=protocol)
    writer, tally = _Writer(plan, producer), Tally()
    for rows in chunks:
        writer.write(rows)
        tally.add(rows)
    producer.flush()
    return tally


def _compare(found: TaskMarker | None, run: Run, task: int, chunks: Iterator[Rows]) -> Outcome:
    """Goes through the rows of a task without writing them, and compares them with those that its marker describes."""
    tally = Tally()
    for rows in chunks:
        tally.add(rows)
    if found is None or found.run != run:
        return Outcome(tally.row_count, was_written_before=False)
    exactly_once.compare_rows(found, tally.row_count, tally.checksum, task)
    return Outcome(tally.row_count, was_written_before=True)


def _abort(cluster: Cluster, author: Author, protocol: Protocol) -> None:
    cluster.close_busy()
    try:
        sink_transactions.abort(cluster, author, protocol, timeout_ms=ABORT_TIMEOUT_MS)
    except KafkaError:
        # The failure that led here is the one to report. The next attempt begins by aborting what was left open.
        return


def _rows_of(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
    for chunk in _chunks(batches):
        rows = read_rows(chunk, topic=plan.options.topic, now_ms=write_plan.now_ms())
        yield rows if plan.options.include_headers else rows._replace(headers=None)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of a suitable size, none of which is empty."""
    collected: list[pa.RecordBatch] = []
    row_count = size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        collected.append(batch)
        row_count += batch.num_rows
        size_bytes += batch.nbytes
        if row_count >= CHUNK_ROWS or size_bytes >= CHUNK_BYTES:
            yield from _split(_together(collected), size_bytes)
            collected, row_count, size_bytes = [], 0, 0
    if collected:
        yield _together(collected)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _split(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    rows_each = max(1, min(CHUNK_ROWS, batch.num_rows * 2 * CHUNK_BYTES // max(size_bytes, 1)))
    for start in range(0, batch.num_rows, rows_each):
        yield batch.slice(start, rows_each)


def _limits(producer: ProducerOptions) -> Limits:
    batch_bytes = min(producer.batch_bytes, producer.request_bytes_max)
    return Limits(batch_bytes, producer.request_bytes_max, producer.codec, producer.level)


def _by_topic(rows: Rows, topic: str | None) -> Iterator[tuple[str, Rows]]:
    if rows.topics is None:
        assert topic is not None, "it was checked that rows have a topic of their own or that of the option"
        yield topic, rows
        return
    encoded = rows.topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(names):
        yield name, rows if len(names) == 1 else rows.take(np.flatnonzero(codes == code))


def _with_first(first: Rows, rest: Iterator[Rows]) -> Iterator[Rows]:
    yield first
    yield from rest


class _IdleAuthor(NamedTuple):
    process_id: int
    author: Author
    sequences: dict[TopicPartition, int]


_idle_authors: dict[ClientSettings, _IdleAuthor] = {}
"""Producer ids whose batches are all in the log, for the next task of this process: brokers remember each id for a day,
and a stream of small batches would make them remember thousands."""
IDLE_AUTHORS_MAX: Final = 8


def _borrow_author(cluster: Cluster, plan: WritePlan) -> tuple[Author, dict[TopicPartition, int]]:
    if not plan.options.producer.is_idempotent:
        return Author(), {}
    idle = _idle_authors.pop(plan.settings, None)
    if idle is not None and idle.process_id == os.getpid():
        return idle.author, idle.sequences
    return sink_transactions.new_producer(cluster), {}


def _keep_author(plan: WritePlan, author: Author, sequences: dict[TopicPartition, int]) -> None:
    if author.is_idempotent:
        while len(_idle_authors) >= IDLE_AUTHORS_MAX:
            _idle_authors.pop(next(iter(_idle_authors)))
        _idle_authors[plan.settings] = _IdleAuthor(os.getpid(), author, sequences)
