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
    """Each row once, in a folder for each day of the column `time`, within one for each value of `partition_by`.

    The checkpoint is in the folder too, where readers of Parquet do not look: by it Spark knows which rows are in the
    files, and with another one it takes its first batches for those that the files already have.
    """
    days = rows.withColumn("day", F.to_date(time))
    files = days.writeStream.format("parquet").partitionBy(*partition_by, "day")
    return files.option("path", folder).option("checkpointLocation", f"{folder}/_checkpoint")
