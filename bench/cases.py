"""What is measured: a base case and one factor varied at a time, with what each row is to reach.

Groups and transactions have a module of their own, `coordinator_cases`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import coordinator_cases, procfs, wire
from bench.case import LOAD_SECONDS_MAX, MEBIBYTE, CaseError, LifecycleCase, Plan, Row, SteadyCase, run_load
from bench.family import Family
from bench.loads.consume import ConsumeLoad
from bench.loads.produce import ProduceLoad
from bench.loads.requests import RequestsLoad
from bench.loads.roundtrip import OpenLoopLoad
from bench.loads.session_fetches import SessionLoad
from bench.nodes import APACHE_KAFKA, BARNABAS, HOST
from bench.report import CPU_NOTE
from bench.stats import AtLeast, AtMost, Measure
from bench.topics import Topic, fresh_topic, standing_topic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from bench.case import Case, Context
    from bench.nodes import Node
    from bench.results import Figures
    from bench.stats import Target

FIRST_RECORD_SECONDS_MAX = 90.0
NO_LIMIT = sys.maxsize
MANY_PARTITIONS = 1000
GATHERED_PARTITIONS = 50


PRODUCE_TARGETS = (AtLeast(Measure.RATIO, 1.1), AtMost(Measure.CPU_RATIO, 0.9))
CONSUME_TARGETS = (AtLeast(Measure.RATIO, 1.0), AtMost(Measure.CPU_RATIO, 1.0))
REQUEST_TARGETS = (AtLeast(Measure.RATIO, 1.5), AtMost(Measure.CPU_RATIO, 0.5))
ROUND_TRIP_TARGETS = (AtMost(Measure.RATIO, 0.8),)


@dataclass(frozen=True, slots=True)
class Factors:
    """What a produce or consume case may vary; the defaults are the base case."""

    record_bytes: int = 100
    acks: str = "1"
    codec: str = "none"
    partitions: int = 4

    def label(self) -> str:
        size = "1 KiB" if self.record_bytes == 1024 else f"{self.record_bytes} B"
        plural = "" if self.partitions == 1 else "s"
        return f"{size}, acks {self.acks}, {self.codec}, {self.partitions:,} partition{plural}"

    def slug(self) -> str:
        return f"{self.record_bytes}-{self.acks}-{self.codec}-{self.partitions}"


BASE = Factors()
PRODUCE_VARIATIONS = (
    BASE,
    dataclasses.replace(BASE, record_bytes=1024),
    dataclasses.replace(BASE, acks="all"),
    dataclasses.replace(BASE, codec="lz4"),
    dataclasses.replace(BASE, codec="zstd"),
    dataclasses.replace(BASE, partitions=1),
    dataclasses.replace(BASE, partitions=16),
    dataclasses.replace(BASE, partitions=MANY_PARTITIONS),
)
CONSUME_VARIATIONS = (dataclasses.replace(BASE, record_bytes=1024), BASE)

PRODUCE_GRID = tuple(
    Factors(*each)
    for each in itertools.product(
        (100, 1024), ("1", "all"), ("none", "gzip", "snappy", "lz4", "zstd"), (1, 4, 16, MANY_PARTITIONS)
    )
)
CONSUME_GRID = tuple(
    Factors(record_bytes=size, codec=codec, partitions=partitions)
    for size, codec, partitions in itertools.product((1024, 100), ("none", "lz4", "zstd"), (1, 4, 16))
)


def standard_cases(plan: Plan) -> list[Case[Node]]:
    return _cases(plan, PRODUCE_VARIATIONS, CONSUME_VARIATIONS)


def full_cases(plan: Plan) -> list[Case[Node]]:
    return _cases(plan, PRODUCE_GRID, CONSUME_GRID)


def _cases(plan: Plan, produced: Sequence[Factors], consumed: Sequence[Factors]) -> list[Case[Node]]:
    """Requests come before round trips, which need Kafka's rate; many partitions last, as they then stay."""
    few = [_produce_case(each) for each in produced if each.partitions < MANY_PARTITIONS]
    many = [_produce_case(each) for each in produced if each.partitions >= MANY_PARTITIONS]
    consumes = [_consume_case(each) for each in consumed]
    return [
        _lifecycle_case(plan),
        *few,
        *consumes,
        _REQUESTS,
        _GATHERED_REQUESTS,
        _ROUND_TRIP_IDLE,
        _ROUND_TRIP_LOADED,
        *coordinator_cases.every(plan),
        *many,
        _SESSION_FETCHES,
    ]


def _produce_case(factors: Factors) -> SteadyCase[Node]:
    def run(context: Context, node: Node) -> Figures:
        with _topic_for(node, factors.partitions) as topic:
            before = topic.record_count()
            figures = produce(node, topic.name, factors, context.plan.seconds, NO_LIMIT)
            _expect_records(topic, before + figures["records_total"])
        return figures

    row = _throughput_row(f"produce {factors.label()}", factors.record_bytes, PRODUCE_TARGETS)
    return SteadyCase(f"produce-{factors.slug()}", (row,), run)


def _topic_for(node: Node, partitions: int) -> AbstractContextManager[Topic]:
    """Kafka is busy with the files of a thousand deleted partitions a minute later, in the middle of another run."""
    if partitions < MANY_PARTITIONS:
        return fresh_topic(node.bootstrap, partitions)
    return contextlib.nullcontext(standing_topic(node.bootstrap, partitions))


def _consume_case(factors: Factors) -> SteadyCase[Node]:
    def run(context: Context, node: Node) -> Figures:
        records_max = context.plan.consume_bytes // factors.record_bytes
        with fresh_topic(node.bootstrap, factors.partitions) as topic:
            filled = produce(node, topic.name, factors, LOAD_SECONDS_MAX, records_max)
            # Pages on their way to the disk would slow the reading of them.
            os.sync()
            load = ConsumeLoad(
                node.bootstrap,
                node.pid,
                topic.name,
                factors.partitions,
                int(filled["records_total"]),
                context.plan.seconds,
            )
            return run_load("consume", load)

    label = f"consume {factors.label().replace(f'acks {factors.acks}, ', '')}"
    return SteadyCase(
        f"consume-{factors.slug()}", (_throughput_row(label, factors.record_bytes, CONSUME_TARGETS),), run
    )


def _throughput_row(label: str, record_bytes: int, targets: tuple[Target, ...]) -> Row:
    """Small records are counted, large ones weighed, as people compare them."""
    if record_bytes >= 1024:
        return Row(label, "MB/s", "rate", scale=record_bytes / 1e6, has_cpu=True, targets=targets)
    return Row(label, "k records/s", "rate", scale=1e-3, has_cpu=True, targets=targets)


def _requests(context: Context, node: Node) -> Figures:
    with fresh_topic(node.bootstrap, BASE.partitions) as topic:
        figures = run_load("requests", _requests_load(context, node, topic))
        _expect_records(topic, figures["units"])
    return figures


def _round_trip_idle(context: Context, node: Node) -> Figures:
    with fresh_topic(node.bootstrap, BASE.partitions) as topic:
        return run_load("roundtrip-idle", _requests_load(context, node, topic))


def _round_trip_loaded(context: Context, node: Node) -> Figures:
    with fresh_topic(node.bootstrap, BASE.partitions) as topic:
        load = OpenLoopLoad(_requests_load(context, node, topic), context.loaded_rate_per_second)
        return run_load("roundtrip-loaded", load)


def _gathered_requests(context: Context, node: Node) -> Figures:
    with fresh_topic(node.bootstrap, GATHERED_PARTITIONS) as topic:
        load = dataclasses.replace(_requests_load(context, node, topic), connections=4, batches=GATHERED_PARTITIONS)
        figures = run_load("requests", load)
        _expect_records(topic, figures["units"])
    return figures


def _session_fetches(context: Context, node: Node) -> Figures:
    topic = standing_topic(node.bootstrap, MANY_PARTITIONS)
    load = SessionLoad(HOST, node.port, node.pid, topic.name, topic.id(), MANY_PARTITIONS, context.plan.seconds)
    return run_load("session-fetches", load)


def _requests_load(context: Context, node: Node, topic: Topic) -> RequestsLoad:
    return RequestsLoad(
        host=HOST,
        port=node.port,
        broker_pid=node.pid,
        topic=topic.name,
        partitions=topic.partitions,
        record_bytes=BASE.record_bytes,
        connections=8,
        in_flight=5,
        seconds=context.plan.seconds,
    )


_REQUESTS = SteadyCase(
    "requests",
    (Row("one-record requests, 8 × 5 in flight", "k requests/s", "rate", 1e-3, True, REQUEST_TARGETS),),
    _requests,
)
_GATHERED_REQUESTS = SteadyCase(
    "requests-gathered",
    (
        Row(
            f"Produce of {GATHERED_PARTITIONS} partitions, 4 × 5 in flight",
            "k batches/s",
            "rate",
            1e-3,
            True,
            (AtLeast(Measure.RATIO, 1.1),),
        ),
    ),
    _gathered_requests,
)
_SESSION_FETCHES = SteadyCase(
    "session-fetches",
    (Row(f"fetches in a session of {MANY_PARTITIONS:,} partitions", "k fetches/s", "rate", 1e-3, True),),
    _session_fetches,
)
_ROUND_TRIP_IDLE = SteadyCase(
    "roundtrip-idle",
    (
        Row("round trip idle, p50", "ms", "p50_ms", has_cpu=True, targets=ROUND_TRIP_TARGETS),
        Row("round trip idle, p99", "ms", "p99_ms", targets=ROUND_TRIP_TARGETS),
    ),
    _round_trip_idle,
)
_ROUND_TRIP_LOADED = SteadyCase(
    "roundtrip-loaded",
    (
        Row("round trip at half of Kafka's most, p50", "ms", "p50_ms", has_cpu=True, targets=ROUND_TRIP_TARGETS),
        Row("round trip at half of Kafka's most, p99", "ms", "p99_ms", targets=ROUND_TRIP_TARGETS),
    ),
    _round_trip_loaded,
)


def _lifecycle(plan: Plan, node: Node) -> Figures:
    """One life of a broker: start, idle, load, SIGKILL, start again with everything unflushed to recover."""
    figures = {"start_seconds": _seconds_to_first_record(node, "bench-first")}
    time.sleep(plan.idle_seconds)
    figures["idle_bytes"] = procfs.resident_bytes(node.pid)

    factors = dataclasses.replace(BASE, record_bytes=1024)
    topic = Topic.create(node.bootstrap, factors.partitions)
    loaded = produce(node, topic.name, factors, LOAD_SECONDS_MAX, plan.restart_bytes // factors.record_bytes)
    figures["loaded_bytes"] = procfs.resident_bytes(node.pid)
    _expect_records(topic, loaded["records_total"])

    node.kill()
    figures["restart_seconds"] = _seconds_to_first_record(node, topic.name)
    _expect_records(topic.seen_from(node.bootstrap), loaded["records_total"] + 1)
    node.stop()
    return figures


def _seconds_to_first_record(node: Node, topic: str) -> float:
    started = time.perf_counter()
    node.start()
    wire.first_acknowledged(HOST, node.port, topic, FIRST_RECORD_SECONDS_MAX)
    return time.perf_counter() - started


def _lifecycle_case(plan: Plan) -> LifecycleCase[Node]:
    load = f"{plan.restart_bytes / MEBIBYTE:,.0f} MiB"
    start_targets = (AtMost(Measure.RATIO, 0.1), AtMost(Measure.VALUE, 0.5))
    rows = (
        Row("start to first acknowledged record", "s", "start_seconds", targets=start_targets),
        Row("memory idle", "MB", "idle_bytes", scale=1e-6, targets=(AtMost(Measure.RATIO, 0.2),)),
        Row(f"memory after {load} produced", "MB", "loaded_bytes", scale=1e-6),
        Row(f"restart after SIGKILL, {load} unflushed", "s", "restart_seconds", targets=(AtMost(Measure.VALUE, 2.0),)),
    )
    return LifecycleCase("lifecycle", rows, _lifecycle)


def produce(node: Node, topic: str, factors: Factors, seconds: float, records_max: int) -> Figures:
    return run_load(
        "produce",
        ProduceLoad(
            bootstrap=node.bootstrap,
            broker_pid=node.pid,
            topic=topic,
            partitions=factors.partitions,
            record_bytes=factors.record_bytes,
            acks=factors.acks,
            codec=factors.codec,
            seconds=seconds,
            records_max=records_max,
        ),
    )


def _expect_records(topic: Topic, expected: float) -> None:
    """A broker that acknowledges and drops would win every comparison."""
    if (found := topic.record_count()) != expected:
        raise CaseError(f"{topic.name} holds {found:,} records, but {expected:,.0f} were acknowledged")


BROKERS = Family(
    command="python -m bench",
    ours=BARNABAS,
    theirs=APACHE_KAFKA,
    standard_cases=standard_cases,
    full_cases=full_cases,
    plan=Plan(),
    rounds=5,
    table="brokers",
    cpu_note=CPU_NOTE,
)
