"""What a task does: read a range of a partition and hand it to Spark as Arrow record batches.

    for rows in read_range(settings, OffsetRange("orders", 0, 1_000, 2_000)): …

The range was planned from what the partition held then. Records that are gone by now are data loss, which either fails
the task or is logged and skipped, as the user said. Offsets without a record are not: transaction markers take an
offset, and so do records that were compacted away.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.client.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets
from barnabas.client.pool import borrowed
from barnabas.protocol.errors import Error, KafkaError
from barnabas.spark.batches import Wanted
from barnabas.spark.decoding import BATCH_ROWS, COLUMNS, COLUMNS_WITH_HEADERS, Scratch, decode
from barnabas.spark.fetching import Fetcher, FetchSettings
from barnabas.spark.losses import ranges_gone, starts_missed
from barnabas.spark.planning import DataLoss, DataLossError, OffsetRange, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.client.settings import ClientSettings

    OnLoss = Callable[[Sequence[DataLoss]], None]

logger = logging.getLogger(__name__)

_GONE: Final = frozenset({Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID})
"""What is answered about a topic that was deleted."""
_NOT_THERE: Final = frozenset({Error.OFFSET_OUT_OF_RANGE, Error.OFFSET_NOT_AVAILABLE})


def read_range(
    settings: ClientSettings,
    offset_range: OffsetRange,
    *,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    isolation_level: int = READ_UNCOMMITTED,
    fail_on_data_loss: bool = True,
    fetch_settings: FetchSettings | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The records of a range in order, in batches of at most `batch_rows`.

    Without `columns` these are all columns of the source, the headers among them if they are to be included.
    DataLossError or a warning if records are gone; KafkaError if the cluster does not give them in time.
    """
    if columns is None:
        columns = COLUMNS_WITH_HEADERS if include_headers else COLUMNS
    on_loss = _fail if fail_on_data_loss else _warn
    with borrowed(settings) as cluster:
        wanted = Wanted(*offset_range, columns, batch_rows)
        fetcher = Fetcher(cluster, wanted, fetch_settings or FetchSettings(), isolation_level)
        try:
            yield from _read(cluster, fetcher, wanted, on_loss)
        finally:
            fetcher.abandon()


def _read(cluster: Cluster, fetcher: Fetcher, wanted: Wanted, on_loss: OnLoss) -> Iterator[pa.RecordBatch]:
    scratch = Scratch()
    position = wanted.start
    while position < wanted.end:
        try:
            answer = fetcher.take(position)
        except KafkaError as failure:
            position = _position_after(failure, cluster, wanted._replace(start=position), on_loss)
            continue
        if answer is None:
            return
        if answer.next_offset < wanted.end:
            fetcher.send(answer.next_offset)
        yield from decode(answer.batches, wanted._replace(start=position), scratch, answer.aborted)
        position = answer.next_offset


def _position_after(failure: KafkaError, cluster: Cluster, wanted: Wanted, on_loss: OnLoss) -> int:
    """Where to go on when the next offset cannot be had, if its loss is not an error. Other failures are raised."""
    place = (wanted.topic, wanted.partition)
    missing = OffsetRange(*place, wanted.start, wanted.end)
    if failure.error in _GONE:
        on_loss(ranges_gone([missing], present=()))
        return wanted.end
    if failure.error not in _NOT_THERE:
        raise failure
    first, behind = _offset_of(cluster, place, EARLIEST), _offset_of(cluster, place, LATEST)
    if first > wanted.start:
        on_loss(starts_missed([missing], {place: first}))
        return first
    if behind < wanted.end:
        expected = f"offsets {wanted.start} to {wanted.end - 1} were to be read"
        on_loss([DataLoss(place, f"{expected}, and the log now ends at offset {behind}: it lost its end")])
        return wanted.end
    raise failure


def _offset_of(cluster: Cluster, place: TopicPartition, which: int) -> int:
    found = list_offsets(cluster, {place: which})[place]
    assert found is not None  # only a time may be later than all records
    return found.offset


def _fail(losses: Sequence[DataLoss]) -> None:
    raise DataLossError(losses)


def _warn(losses: Sequence[DataLoss]) -> None:
    logger.warning("records may have been lost, and failOnDataLoss is false: %s", describe(losses))
