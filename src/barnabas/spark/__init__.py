"""Kafka topics as Spark sources and sinks: `format("barnabas")`, batch and streaming.

spark = barnabas.spark.session()            # or: barnabas.spark.register(a session of your own)
spark.readStream.format("barnabas").option("subscribe", "clicks") …
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.requirements import WorkerPythonError, require_extra

require_extra()  # before anything that would fail for lack of it

from barnabas.spark.formats import dead_letters, from_topic, to_topic  # noqa: E402
from barnabas.spark.python_workers import ship  # noqa: E402
from barnabas.spark.registration import register  # noqa: E402
from barnabas.spark.session import session  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def forget_output(options: Mapping[str, str]) -> int:
    """Removes what the cluster keeps of a query that has written exactly once and will not come back.

    Takes the options of its sink: where the cluster is, and its `checkpointLocation` or `kafka.transactional.id`.
    Returns how many groups there were. If the query does come back, it is refused for lack of them.
    """
    from barnabas.spark.write import marker_store

    return marker_store.forget_output(options)
