"""Kafka topics as Spark sources and sinks: `format("barnabas")`, batch and streaming.

spark = barnabas.spark.session()            # or: barnabas.spark.register(a session of your own)
spark.readStream.format("barnabas").option("subscribe", "clicks") …
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.requirements import WorkerPythonError, check_worker_python, require_extra

require_extra()  # before anything that would fail for lack of it

from barnabas.spark.formats import dead_letters, from_topic, to_topic  # noqa: E402
from barnabas.spark.python_workers import ship  # noqa: E402
from barnabas.spark.session import session  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = [
    "WorkerPythonError",
    "dead_letters",
    "forget_output",
    "from_topic",
    "register",
    "session",
    "ship",
    "to_topic",
]


def register(spark: SparkSession) -> None:
    """Makes `format("barnabas")` known to a session, and its streaming queries to their consumer groups.

    WorkerPythonError says what to set where the workers of a session on this machine run a Python without this package.
    """
    from barnabas.spark.data_source import BarnabasDataSource
    from barnabas.spark.read.group_progress import listen

    check_worker_python(spark)
    spark.dataSource.register(BarnabasDataSource)
    listen(spark)


def forget_output(options: Mapping[str, str]) -> int:
    """Removes what the cluster keeps of a query that has written exactly once and will not come back.

    Takes the options of its sink: where the cluster is, and its `checkpointLocation` or `kafka.transactional.id`.
    Returns how many groups there were. If the query does come back, it is refused for lack of them.
    """
    from barnabas.spark.write import marker_store

    return marker_store.forget_output(options)
