"""Rows written as tasks of Spark do it, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from barnabas.client.pool import borrowed
from barnabas.spark.client_options import client_settings
from barnabas.spark.write.delivery import Outcome, find_batch, write_exactly_once
from barnabas.spark.write.exactly_once import Run
from barnabas.spark.write.sink_options import parse_sink
from barnabas.spark.write.write_plan import WritePlan

if TYPE_CHECKING:
    from tests.clients.adapter import Received
    from tests.peers import Peer

PARTITIONS = 3
QUERY = "8d7ba0e4"
RUN = Run(QUERY, 0)
START = "the only start of the query"


def plan(bootstrap: str, **options: str) -> WritePlan:
    given = {name.replace("_", "."): value for name, value in options.items()}
    parsed = parse_sink({"kafka.bootstrap.servers": bootstrap, **given})
    return WritePlan(parsed, client_settings(parsed.client))


def rows(start: int, end: int) -> pa.RecordBatch:
    numbers = range(start, end)
    return pa.record_batch({"key": [str(number % 50) for number in numbers], "value": [str(n) for n in numbers]})


def numbers(records: list[Received]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def write_once(node: Peer, topic: str, run: Run, batches: Any, task: int = 0, **options: str) -> Outcome:
    return write_by(plan(node.bootstrap, topic=topic, kafka_transactional_id=topic, **options), run, batches, task)


def write_by(written: WritePlan, run: Run, batches: Any, task: int = 0) -> Outcome:
    """As a task of a streaming query does it."""
    with borrowed(written.settings) as cluster:
        batch = find_batch(cluster, written, written.output(run.query_id), run, START)
        return write_exactly_once(cluster, written, batch, task, batches)
