"""Streams into Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def write_parquet(
    rows: DataFrame, folder: str, *, time: str = "time", partition_by: Sequence[str] = ()
) -> DataStreamWriter:
    """Writes each row once, into a folder per day of the column `time`, inside one per value of `partition_by`.

    The checkpoint is in the same folder, under a name that readers of Parquet ignore. It tells Spark which rows are in
    the files; with another checkpoint, Spark would take its first batches for ones that the files already contain.
    """
    days = rows.withColumn("day", F.to_date(time))
    files = days.writeStream.format("parquet").partitionBy(*partition_by, "day")
    return files.option("path", folder).option("checkpointLocation", f"{folder}/_checkpoint")
