"""What is measured of pipelines: reading, writing, how long a small trigger takes, and what memory that needs."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from bench import stats
from bench.case import CaseError, Row
from bench.loads.meter import Meter
from bench.pipelines.case import PARTITIONS, Bench, Connector, Data, PipelineCase, Plan
from bench.pipelines.workers import PeakMemory
from bench.stats import AtLeast, AtMost, Measure
from bench.topics import fresh_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from bench.results import Figures
    from bench.stats import Target

VALUE_BYTES = 100
QUERY_SECONDS_MAX = 180.0


def every(plan: Plan) -> list[PipelineCase]:
    faster, as_fast = (AtLeast(Measure.RATIO, 1.2),), (AtLeast(Measure.RATIO, 1.0),)
    return [
        _source_case("source-100", Data(plan.small_rows), faster),
        _source_case("source-1024", Data(plan.large_rows, 1024), faster),
        *(_source_case(f"source-100-{codec}", Data(plan.small_rows, codec=codec), as_fast) for codec in _CODECS),
        *(_source_case(f"source-1024-{codec}", Data(plan.large_rows, 1024, codec), as_fast) for codec in _CODECS),
        _growth_case(plan),
        _memory_case(plan),
        _sink_case(plan),
        _exactly_once_case(plan),
        _trigger_case(plan),
    ]


_CODECS = ("lz4", "zstd")


def _source_case(name: str, data: Data, targets: tuple[Target, ...]) -> PipelineCase:
    def run(bench: Bench, connector: Connector) -> Figures:
        topic, rows = bench.topic_with(data)
        return _read_whole(bench, connector, topic, rows, data.record_bytes)

    size = "1 KiB" if data.record_bytes == 1024 else f"{data.record_bytes} B"
    codec = "" if data.codec == "none" else f", {data.codec}"
    row = Row(f"read {data.rows:,} rows of {size}{codec}", "k rows/s", "rate", 1e-3, has_cpu=True, targets=targets)
    return PipelineCase(name, (row,), run)


def _read_whole(bench: Bench, connector: Connector, topic: str, rows: int, record_bytes: int) -> Figures:
    """A batch query over all of a topic, whose answer is known."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    frame = bench.read(connector, topic).load()
    meter = Meter(os.getpid())
    [(count, length)] = frame.agg(F.count("*"), F.sum(F.length("value"))).collect()
    figures = meter.figures(rows)
    if (count, length) != (rows, rows * record_bytes):
        raise CaseError(f"{connector.label} found {count:,} rows with {length:,} bytes where there are {rows:,}")
    return figures


def _growth_case(plan: Plan) -> PipelineCase:
    def run(bench: Bench, connector: Connector) -> Figures:
        rates = []
        for wanted in (plan.short_topic_rows, plan.long_topic_rows):
            topic, rows = bench.topic_with(Data(wanted))
            rates.append(_read_whole(bench, connector, topic, rows, VALUE_BYTES)["rate"])
        return {"short_rate": rates[0], "long_rate": rates[1], "growth": rates[1] / rates[0]}

    longer = f"{plan.long_topic_rows:,} rows"
    rows = (
        Row(f"read {plan.short_topic_rows:,} rows", "k rows/s", "short_rate", 1e-3),
        Row(f"read {longer}", "k rows/s", "long_rate", 1e-3),
        Row(f"rate of {longer} by that of a tenth", "", "growth", targets=(AtLeast(Measure.VALUE, 1.0),)),
    )
    return PipelineCase("growth", rows, run)


def _memory_case(plan: Plan) -> PipelineCase:
    """The same workers read a short topic first: whatever a long one needs more than that would be a leak."""

    def run(bench: Bench, connector: Connector) -> Figures:
        peaks = []
        for wanted in (plan.short_topic_rows, plan.long_topic_rows):
            topic, rows = bench.topic_with(Data(wanted))
            with PeakMemory() as peak:
                _read_whole(bench, connector, topic, rows, VALUE_BYTES)
            peaks.append(peak.bytes)
        return {"bytes": peaks[1], "growth": peaks[1] / peaks[0]}

    longer = f"{plan.long_topic_rows:,} rows"
    rows = (
        Row(f"memory of a Python worker, {longer}", "MB", "bytes", 1e-6),
        Row(f"memory for {longer} by that for a tenth", "", "growth", targets=(AtMost(Measure.VALUE, 1.1),)),
    )
    return PipelineCase("memory", rows, run, ours_only=True)


def _sink_case(plan: Plan) -> PipelineCase:
    def run(bench: Bench, connector: Connector) -> Figures:
        return _write(bench, connector, {"delivery": "at_least_once"} if connector.format == "barnabas" else {})

    label = f"write {plan.sink_rows:,} rows of {VALUE_BYTES} B, at least once"
    row = Row(label, "k rows/s", "rate", 1e-3, has_cpu=True, targets=(AtLeast(Measure.RATIO, 1.0),))
    return PipelineCase("sink", (row,), run)


def _exactly_once_case(plan: Plan) -> PipelineCase:
    """Both deliveries one right after the other, as what is asked for is what the better one costs."""

    def run(bench: Bench, connector: Connector) -> Figures:
        loose = _write(bench, connector, {"delivery": "at_least_once"})
        exact = _write(bench, connector, {"delivery": "exactly_once"})
        return exact | {"cost": exact["seconds"] / loose["seconds"] - 1}

    label = f"write {plan.sink_rows:,} rows of {VALUE_BYTES} B, exactly once"
    rows = (
        Row(label, "k rows/s", "rate", 1e-3, has_cpu=True),
        Row("time that exactly once adds", "%", "cost", 100.0, targets=(AtMost(Measure.VALUE, 20.0),)),
    )
    return PipelineCase("sink-exactly-once", rows, run, ours_only=True)


def _write(bench: Bench, connector: Connector, options: Mapping[str, str]) -> Figures:
    rows = bench.plan.sink_rows
    with fresh_topic(bench.node.bootstrap, PARTITIONS) as topic:
        writer = bench.write(connector, _made_up(bench, rows), topic.name).options(**options)
        meter = Meter(os.getpid())
        writer.save()
        figures = meter.figures(rows)
        found = topic.record_count()
    # A transaction leaves a marker in each partition that it wrote to.
    if not rows <= found <= rows + PARTITIONS * PARTITIONS:
        raise CaseError(f"{connector.label} wrote {found:,} records of {rows:,} rows")
    return figures


def _made_up(bench: Bench, rows: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    text = F.col("id").cast("string")
    columns = [text.cast("binary").alias("key"), F.rpad(text, VALUE_BYTES, "x").cast("binary").alias("value")]
    return bench.spark.range(0, rows, numPartitions=PARTITIONS).select(*columns)


def _trigger_case(plan: Plan) -> PipelineCase:
    def run(bench: Bench, connector: Connector) -> Figures:
        triggers = plan.triggers + plan.warm_up_triggers
        topic, _ = bench.topic_with(Data(triggers * plan.rows_per_trigger))
        with fresh_topic(bench.node.bootstrap, PARTITIONS) as target:
            times = _trigger_times(bench, connector, topic, target.name)
        if len(times) < triggers:
            raise CaseError(f"{connector.label} took {len(times)} triggers where {triggers} were due")
        times = times[plan.warm_up_triggers :]
        return {"p50_ms": stats.quantile(times, 0.5), "p95_ms": stats.quantile(times, 0.95)}

    label = f"trigger of {plan.rows_per_trigger} rows, source to sink"
    targets = (AtMost(Measure.RATIO, 1.5), AtMost(Measure.VALUE, 400.0))
    rows = (Row(f"{label}, p50", "ms", "p50_ms", targets=targets), Row(f"{label}, p95", "ms", "p95_ms"))
    return PipelineCase("trigger", rows, run)


def _trigger_times(bench: Bench, connector: Connector, source: str, target: str) -> list[float]:
    """Milliseconds of each trigger that had rows, in a query with the defaults of its connector."""
    servers = {"kafka.bootstrap.servers": bench.node.bootstrap}
    frame = (
        bench.spark.readStream.format(connector.format)
        .options(**servers, subscribe=source, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", bench.plan.rows_per_trigger)
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format(connector.format)
        .options(**servers, topic=target, checkpointLocation=str(bench.folder / uuid.uuid4().hex))
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(int(QUERY_SECONDS_MAX)):
            raise CaseError(f"a query of {connector.label} took longer than {QUERY_SECONDS_MAX} s")
        return [float(each.durationMs["triggerExecution"]) for each in query.recentProgress if each.numInputRows > 0]
    finally:
        query.stop()
