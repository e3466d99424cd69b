"""Streaming queries for tests: the values that they read end up in a list, batch by batch."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.peers import Reachable


class Batches:
    """What a query has read. Its batches are kept, the empty ones left out."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        found = rows.selectExpr("cast(value as string)", "partition", "offset").collect()
        if found:
            self.batches.append([row[0] for row in sorted(found, key=lambda row: (row[1], row[2]))])

    @property
    def values(self) -> list[str]:
        return [value for batch in self.batches for value in batch]


def source(spark: SparkSession, node: Reachable, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": node.bootstrap, **options}
    return spark.readStream.format("barnabas").options(**given).load()


@contextlib.contextmanager
def running(
    rows: DataFrame, into: Callable[[DataFrame, int], None], checkpoint: Path, **trigger: Any
) -> Iterator[StreamingQuery]:
    """A query for as long as the block lasts."""
    writer = rows.writeStream.foreachBatch(into).option("checkpointLocation", str(checkpoint))
    query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield query
    finally:
        query.stop()


def run_to_end(rows: DataFrame, into: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    """Reads what is available now."""
    with running(rows, into, checkpoint, availableNow=True) as query:
        query.awaitTermination()
    return query
