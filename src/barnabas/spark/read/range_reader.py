"""What a task of a read does: read a range of a partition and pass it to Spark as Arrow record batches.

    for rows in read_range(settings, OffsetRange("orders", 0, 1_000, 2_000)): …

The range was planned from what the partition held at that time. Records that are gone by now are data loss, which
either fails the task or is logged and skipped, as `failOnDataLoss` says. An offset that never had a record, or lost it
to compaction, is not data loss: transaction markers take offsets too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.client.offset_queries import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets, local_start
from barnabas.client.pool import borrowed
from barnabas.protocol.errors import Error, KafkaError
from barnabas.spark.columnar.fetched_batches import Wanted
from barnabas.spark.columnar.record_decoding import BATCH_ROWS, COLUMNS, COLUMNS_WITH_HEADERS, Scratch, decode
from barnabas.spark.read.data_loss import DataLoss, ranges_gone, report, starts_missed
from barnabas.spark.read.fetch_settings import FetchSettings
from barnabas.spark.read.fetcher import Fetcher
from barnabas.spark.read.offset_ranges import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from barnabas.client.client_settings import ClientSettings
    from barnabas.client.cluster import Cluster, TopicPartition

_GONE: Final = frozenset({Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID})
"""The errors for a topic that was deleted."""
_NOT_THERE: Final = frozenset({Error.OFFSET_OUT_OF_RANGE, Error.OFFSET_NOT_AVAILABLE})


def read_range(
    settings: ClientSettings,
    offset_range: OffsetRange,
    *,
    include_headers: bool = False,
    isolation_level: int = READ_UNCOMMITTED,
    fail_on_data_loss: bool = True,
    fetch_settings: FetchSettings | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order.

    DataLossError or a warning if records are gone, or exist but do not arrive in time; KafkaError if the cluster cannot
    deliver them for another reason.
    """
    columns = COLUMNS_WITH_HEADERS if include_headers else COLUMNS
    with borrowed(settings) as cluster:
        wanted = Wanted(*offset_range, columns, BATCH_ROWS)
        fetcher = Fetcher(cluster, wanted, fetch_settings or FetchSettings(), isolation_level)
        try:
            yield from _read(cluster, fetcher, wanted, fail_on_data_loss)
        finally:
            fetcher.abandon()


def _read(cluster: Cluster, fetcher: Fetcher, wanted: Wanted, fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    scratch = Scratch()
    position = wanted.start
    while position < wanted.end:
        try:
            answer = fetcher.take(position)
        except KafkaError as failure:
            loss, position = _loss_by(failure, cluster, wanted._replace(start=position))
            report([loss], fail_on_data_loss)
            continue
        if answer is None:
            return
        if answer.next_offset < wanted.end:
            fetcher.send(answer.next_offset)
        yield from decode(answer.batches, wanted._replace(start=position), scratch, answer.aborted)
        position = answer.next_offset


def _loss_by(failure: KafkaError, cluster: Cluster, wanted: Wanted) -> tuple[DataLoss, int]:
    """What is lost because the next offset cannot be read, and where to continue. Other failures are raised."""
    place = (wanted.topic, wanted.partition)
    missing = OffsetRange(*place, wanted.start, wanted.end)
    if failure.error in _GONE:
        (loss,) = ranges_gone([missing], present=())
        return loss, wanted.end
    if failure.error not in _NOT_THERE:
        raise failure
    first, behind = _offset_of(cluster, place, EARLIEST), _offset_of(cluster, place, LATEST)
    if first > wanted.start:
        (loss,) = starts_missed([missing], {place: first})
        return loss, first
    if behind < wanted.end:
        expected = f"offsets {wanted.start} to {wanted.end - 1} were to be read"
        return DataLoss(place, f"{expected}, but the log now ends at offset {behind}: it was truncated"), wanted.end
    if failure.error is Error.OFFSET_NOT_AVAILABLE:
        return _withheld(failure, cluster, wanted)
    raise failure


def _withheld(failure: KafkaError, cluster: Cluster, wanted: Wanted) -> tuple[DataLoss, int]:
    """Offsets that the log has but that do not arrive, for instance because remote storage is down. The read continues
    after them."""
    place = (wanted.topic, wanted.partition)
    local = local_start(cluster, place)
    end = local if wanted.start < local < wanted.end else wanted.end
    expected = f"offsets {wanted.start} to {end - 1} were to be read"
    return DataLoss(place, f"{expected} and are in the log, but do not arrive: {failure.message}"), end


def _offset_of(cluster: Cluster, place: TopicPartition, which: int) -> int:
    found = list_offsets(cluster, {place: which})[place]
    assert found is not None  # only a timestamp can be later than all records
    return found.offset
