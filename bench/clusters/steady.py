"""Writing to topics with three replicas: how fast, what it costs all nodes together, and how long a round trip takes.

CPU is that of all nodes, counted until every replica has what was written. Round trips are one request at a time, to
the node that leads the partition.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

from bench.case import CaseError, Row, SteadyCase, run_load
from bench.clusters import questions
from bench.clusters.nodes import REPLICAS, Cluster, bootstrap, pids
from bench.loads.produce import ProduceLoad
from bench.loads.requests import RequestsLoad
from bench.nodes import HOST
from bench.stats import AtLeast, AtMost, Measure
from bench.topics import fresh_topic
from bench.wire import ACKS_ALL, ACKS_LEADER

if TYPE_CHECKING:
    from bench.case import Context
    from bench.results import Figures

PARTITIONS = 6
"""Each node leads two."""
MIN_ISR = {"min.insync.replicas": "2"}
PRODUCE_TARGETS = (AtLeast(Measure.RATIO, 1.0), AtMost(Measure.CPU_RATIO, 0.7))
ROUND_TRIP_TARGETS = (AtMost(Measure.RATIO, 1.0),)
NO_LIMIT = sys.maxsize


def every() -> list[SteadyCase[Cluster]]:
    return [_replicated_case(size, acks) for size, acks in itertools.product((100, 1024), ("all", "1"))]


def _replicated_case(record_bytes: int, acks: str) -> SteadyCase[Cluster]:
    def run(context: Context, cluster: Cluster) -> Figures:
        with fresh_topic(bootstrap(cluster), PARTITIONS, replicas=REPLICAS, settings=MIN_ISR) as topic:
            first, *others = pids(cluster)
            load = ProduceLoad(
                bootstrap=bootstrap(cluster),
                broker_pid=first,
                topic=topic.name,
                partitions=PARTITIONS,
                record_bytes=record_bytes,
                acks=acks,
                codec="none",
                seconds=context.plan.seconds,
                records_max=NO_LIMIT,
                peer_pids=tuple(others),
            )
            figures = run_load("produce", load)
            if (found := topic.record_count()) != figures["records_total"]:
                written = figures["records_total"]
                raise CaseError(f"{topic.name} holds {found:,} records, but {written:,.0f} were acknowledged")
        return figures | _round_trip(context, cluster, record_bytes, acks)

    size = "1 KiB" if record_bytes == 1024 else f"{record_bytes} B"
    label = f"{size}, acks {acks}, 3 replicas"
    unit, scale = ("MB/s", record_bytes / 1e6) if record_bytes >= 1024 else ("k records/s", 1e-3)
    rows = (
        Row(f"produce {label}", unit, "rate", scale, has_cpu=True, targets=PRODUCE_TARGETS),
        Row(f"round trip {label}, p50", "ms", "p50_ms"),
        Row(f"round trip {label}, p99", "ms", "p99_ms", targets=ROUND_TRIP_TARGETS),
    )
    return SteadyCase(f"replicated-{record_bytes}-{acks}", rows, run)


def _round_trip(context: Context, cluster: Cluster, record_bytes: int, acks: str) -> Figures:
    """On a topic of its own, whose replicas have nothing else to do."""
    with fresh_topic(bootstrap(cluster), 1, replicas=REPLICAS, settings=MIN_ISR) as topic:
        leader_id = questions.leader_of(cluster, topic.name, 0)
        load = RequestsLoad(
            host=HOST,
            port=cluster.nodes[leader_id].port,
            broker_pid=cluster.nodes[leader_id].pid,
            topic=topic.name,
            partitions=1,
            record_bytes=record_bytes,
            connections=1,
            in_flight=1,
            seconds=context.plan.seconds,
            acks=ACKS_ALL if acks == "all" else ACKS_LEADER,
        )
        figures = run_load("roundtrip-idle", load)
    return {name: figures[name] for name in ("p50_ms", "p99_ms")}
