"""Making `format("barnabas")` known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.requirements import check_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes `format("barnabas")` known to a session, and its streaming queries to their consumer groups.

    WorkerPythonError says what to set where the workers of a session on this machine run a Python without this package.
    """
    from barnabas.spark.data_source import BarnabasDataSource
    from barnabas.spark.read.group_progress import listen

    check_worker_python(spark)
    spark.dataSource.register(BarnabasDataSource)
    listen(spark)
