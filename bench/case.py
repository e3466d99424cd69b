"""What a case of the benchmark is, how large its loads are, and how a load runs.

A steady case runs on a broker that has been up and warm for a while. A lifecycle starts, loads, kills and restarts
brokers of its own. Both give figures by name; a row of the table picks one, with the CPU figure beside it. What a case
runs on may also be a cluster of several nodes (`bench.clusters`).
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from bench.nodes import N

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import DataclassInstance

    from bench.results import Figures
    from bench.stats import Target

ROOT = Path(__file__).resolve().parents[1]
LOAD_SECONDS_MAX = 180.0
MEBIBYTE = 1 << 20


class CaseError(RuntimeError):
    """A case did not do the work that its figures would claim."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how large the loads are."""

    seconds: float = 2.0
    warm_up_seconds: float = 2.0
    """The same for the round that is not counted."""
    consume_bytes: int = 384 * MEBIBYTE
    restart_bytes: int = 1024 * MEBIBYTE
    idle_seconds: float = 2.0
    members: int = 1_000
    groups: int = 10_000
    compacted_bytes: int = 2048 * MEBIBYTE
    node_partitions: int = 10_000
    connections: int = 5_000
    cluster_partitions: int = 3_000
    cluster_idle_seconds: float = 10.0


QUICK = Plan(
    seconds=0.5,
    warm_up_seconds=0.5,
    consume_bytes=32 * MEBIBYTE,
    restart_bytes=64 * MEBIBYTE,
    idle_seconds=0.5,
    members=40,
    groups=200,
    compacted_bytes=300 * MEBIBYTE,
    node_partitions=100,
    connections=50,
    cluster_partitions=30,
    cluster_idle_seconds=2.0,
)


@dataclass(frozen=True, slots=True)
class Context:
    plan: Plan
    loaded_rate_per_second: float
    """Half of what Kafka answered at most, for the round trips under load."""


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    unit: str
    figure: str
    scale: float = 1.0
    """Multiplies the figure into the row's unit."""
    has_cpu: bool = False
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class SteadyCase(Generic[N]):
    name: str
    rows: tuple[Row, ...]
    run: Callable[[Context, N], Figures]
    kills_nodes: bool = False
    """Such cases come after all rounds of the others, as a node that was started again is not warm any more."""


@dataclass(frozen=True, slots=True)
class LifecycleCase(Generic[N]):
    name: str
    rows: tuple[Row, ...]
    run: Callable[[Plan, N], Figures]


Case = SteadyCase[N] | LifecycleCase[N]


def run_load(name: str, load: DataclassInstance) -> Figures:
    """Runs a load in a process of its own, in a session of its own, so that Ctrl-C is for the harness to handle."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.loads", name],
        input=json.dumps(dataclasses.asdict(load)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LOAD_SECONDS_MAX + 60,
        start_new_session=True,
        check=False,
    )
    if done.returncode != 0:
        raise CaseError(f"the load {name} on {load} failed:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return {key: float(value) for key, value in figures.items()}
