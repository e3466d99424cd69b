"""How fast a log is compacted, and what its neighbours feel of it.

A log is filled while nothing in it may be compacted yet (`min.compaction.lag.ms`), and then it may. The time counts
from that change of the topic until the folder's `cleaner-offset-checkpoint`, which both brokers write in the same form,
says that everything before the active segment is clean. Both cleaners look for work ten times a second.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from barnabas.client.admin.configs import BROKER, TOPIC, Resource, alter_configs
from barnabas.client.client_settings import ClientSettings
from barnabas.client.cluster import Cluster
from bench import procfs, wire
from bench.case import CaseError, LifecycleCase, Row, run_load
from bench.loads.requests import RequestsLoad
from bench.loads.roundtrip import OpenLoopLoad
from bench.nodes import HOST
from bench.stats import AtLeast, AtMost, Measure
from bench.topics import Topic
from bench.upkeep.keyed_batches import KeyedLoad, batches

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from bench.case import Plan
    from bench.results import Figures
    from bench.upkeep.nodes import FolderNode

CHECKPOINT: Final = "cleaner-offset-checkpoint"
CLEAN_SECONDS_MAX: Final = 600.0
POLL_SECONDS: Final = 0.01
SEGMENT_BYTES: Final = 128 << 20
NEVER_MS: Final = str((1 << 63) - 1)
BACKOFF_MS: Final = "100"
REQUESTS_PER_SECOND: Final = 500.0
"""Of a neighbour: few, so that what they wait for is the cleaner and not each other."""
COMPACTED: Final = "bench-compacted"
SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": NEVER_MS,
}


def large_records(plan: Plan) -> KeyedLoad:
    return KeyedLoad(records=plan.compacted_bytes // 1034, keys=100_000, record_bytes=1024)


def small_records(plan: Plan) -> KeyedLoad:
    return KeyedLoad(records=plan.compacted_bytes // 110, keys=10_000_000, record_bytes=100)


def every(plan: Plan) -> list[LifecycleCase[FolderNode]]:
    at_least_as_fast = (AtLeast(Measure.RATIO, 1.0),)
    return [
        _rate_case("compact-1k", large_records(plan), at_least_as_fast),
        _rate_case("compact-100", small_records(plan), ()),
        _BESIDE_REQUESTS,
    ]


def _rate_case(name: str, load: KeyedLoad, targets: tuple[AtLeast, ...]) -> LifecycleCase[FolderNode]:
    def run(_plan: Plan, node: FolderNode) -> Figures:
        node.start()
        log_bytes = _fill(node, load)
        before = procfs.cpu_seconds(node.pid)
        seconds = _compact(node)
        used = procfs.cpu_seconds(node.pid) - before
        return {"rate": log_bytes / seconds, "cpu_per_million": used / load.records * 1e6, "seconds": seconds}

    size = "1 KiB" if load.record_bytes == 1024 else f"{load.record_bytes} B"
    label = f"compact {load.records:,} records of {size}, {load.keys:,} keys"
    return LifecycleCase(name, (Row(label, "MB/s", "rate", 1e-6, True, targets),), run)


def _beside_requests(plan: Plan, node: FolderNode) -> Figures:
    """Round trips on another topic, first alone and then for as long as a log is compacted."""
    node.start()
    _fill(node, large_records(plan))
    neighbour = Topic.create(node.bootstrap, 4)
    alone = _round_trips(node, neighbour, plan.seconds)
    took: list[float] = []
    cleaning = threading.Thread(target=lambda: took.append(_compact(node)), name="await-compaction")
    cleaning.start()
    beside = _round_trips(node, neighbour, plan.seconds)
    cleaning.join()
    if not took:
        raise CaseError(f"{COMPACTED} was not compacted")
    return {
        "alone_p99_ms": alone["p99_ms"],
        "beside_p99_ms": beside["p99_ms"],
        "times_as_long": beside["p99_ms"] / alone["p99_ms"],
    }


_BESIDE_REQUESTS: LifecycleCase[FolderNode] = LifecycleCase(
    "compact-beside-requests",
    (
        Row("round trip p99 before a log is compacted", "ms", "alone_p99_ms"),
        Row("round trip p99 while a log is compacted", "ms", "beside_p99_ms", targets=(AtMost(Measure.RATIO, 1.0),)),
        Row("the latter over the former", "times", "times_as_long", targets=(AtMost(Measure.VALUE, 1.5),)),
    ),
    _beside_requests,
)


def _round_trips(node: FolderNode, topic: Topic, seconds: float) -> Figures:
    requests = RequestsLoad(
        host=HOST,
        port=node.port,
        broker_pid=node.pid,
        topic=topic.name,
        partitions=topic.partitions,
        record_bytes=100,
        connections=4,
        in_flight=1,
        seconds=seconds,
    )
    return run_load("roundtrip-loaded", OpenLoopLoad(requests, REQUESTS_PER_SECOND))


def _fill(node: FolderNode, load: KeyedLoad) -> int:
    """How many bytes the log then has."""
    _alter(node, Resource(BROKER, ""), "log.cleaner.backoff.ms", BACKOFF_MS)
    topic = Topic.create(node.bootstrap, 1, COMPACTED, settings=SETTINGS)
    reply = wire.ProduceReply.of(COMPACTED)
    written = 0
    with wire.connect(HOST, node.port) as connection:
        for batch, _ in batches(load):
            error = reply.first_error(_exchange(connection, batch))
            if error:
                raise CaseError(f"a batch for {COMPACTED} was refused with error code {error}")
            written += len(batch)
    if (found := topic.record_count()) != load.records:
        raise CaseError(f"{COMPACTED} holds {found:,} records of {load.records:,}")
    return written


def _exchange(connection: socket.socket, batch: bytes) -> bytes:
    return wire.exchange(connection, wire.produce_frame(COMPACTED, [0], batch))


def _compact(node: FolderNode) -> float:
    """Seconds until everything before the active segment is clean."""
    log = node.data_dir / f"{COMPACTED}-0"
    goal = max(int(file.stem) for file in log.glob("*.log"))
    started = time.perf_counter()
    _alter(node, Resource(TOPIC, COMPACTED), "min.compaction.lag.ms", "0")
    while _clean_until(node.data_dir) < goal:
        if time.perf_counter() - started > CLEAN_SECONDS_MAX:
            raise CaseError(f"{COMPACTED} is not clean after {CLEAN_SECONDS_MAX:.0f} s")
        time.sleep(POLL_SECONDS)
    return time.perf_counter() - started


def _clean_until(data_dir: Path) -> int:
    """The first offset of the log that is not clean."""
    try:
        lines = (data_dir / CHECKPOINT).read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[2]) for line in lines if line.split()[:1] == [COMPACTED]), 0)


def _alter(node: FolderNode, resource: Resource, key: str, value: str) -> None:
    settings = ClientSettings.from_options({"bootstrap.servers": node.bootstrap})
    with contextlib.closing(Cluster(settings)) as cluster:
        alter_configs(cluster, resource, {key: value})
