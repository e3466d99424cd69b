"""Where Barnabas spends its time in one case, of a node or of a cluster: `python -m bench profile CASE`.

With cProfile (the default) each node runs under the profiler and is slower by it, but every function is counted. With
perf it runs at full speed and is sampled from outside, native code included; Python 3.12 and newer also name Python
functions there. The nodes of a cluster are added up.
"""

from __future__ import annotations

import argparse
import contextlib
import pstats
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.testing.cluster_processes import Cluster
from barnabas.testing.node_process import Node
from bench import cases
from bench.case import Context, Plan, SteadyCase
from bench.clusters import cases as cluster_cases
from bench.clusters.nodes import NODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    AnyCase = SteadyCase[Any]

RATE_PER_SECOND = 10_000.0
FUNCTIONS_SHOWN = 40
SAMPLES_PER_SECOND = 999


@dataclass(frozen=True, slots=True)
class Profiled:
    """A case that was run, and the file that the profiler left."""

    figures: dict[str, float]
    files: tuple[Path, ...]


class _NodeUnderInterpreterOptions(Node):
    """A node whose Python is started with options of its own before `-m barnabas`."""

    def __init__(self, data_dir: Path, options: Sequence[str], *, port: int = 0, config: Path | None = None) -> None:
        super().__init__(data_dir, port=port, config_file=config)
        self._options = tuple(options)

    def _command(self) -> list[str]:
        interpreter, *rest = super()._command()
        return [interpreter, *self._options, *rest]


def main(arguments: Sequence[str], console: Console) -> int:
    every = [*cases.full_cases(Plan()), *cluster_cases.every(Plan())]
    by_name = {case.name: case for case in every if isinstance(case, SteadyCase) and not case.kills_nodes}
    parser = argparse.ArgumentParser(prog="python -m bench profile", description=__doc__)
    parser.add_argument(
        "case",
        choices=sorted(by_name),
        metavar="CASE",
        help="a steady case of a node or a cluster; see --list",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the load")
    parser.add_argument("--rate", type=float, default=RATE_PER_SECOND, help="requests/s of the loaded round trip")
    parser.add_argument("--with", dest="profiler", choices=["cprofile", "perf"], default="cprofile")
    parser.add_argument("--output", type=Path, help="keep the profile in this file")
    chosen = parser.parse_args(arguments)
    case = by_name[chosen.case]
    context = Context(Plan(seconds=chosen.seconds), chosen.rate)
    with tempfile.TemporaryDirectory(prefix="barnabas-profile-") as folder:
        profile = _with_cprofile if chosen.profiler == "cprofile" else _with_perf
        done = profile(case, context, Path(folder))
        for name, value in done.figures.items():
            console.print(f"{name:24} {value:,.3f}", highlight=False)
        _show(chosen.profiler, done.files)
        if chosen.output is not None:
            _keep(chosen.profiler, done.files, chosen.output)
    return 0


@contextlib.contextmanager
def _started(case: AnyCase, folder: Path, options: Callable[[int], Sequence[str]]) -> Iterator[tuple[Any, list[Node]]]:
    """What the case runs on, a node or a cluster, and its nodes. `options` are those of the interpreter, by node."""
    if case.name not in {each.name for each in cluster_cases.every(Plan())}:
        with _NodeUnderInterpreterOptions(folder / "data", options(1)) as alone:
            yield alone, [alone]
        return
    cluster = Cluster(folder, nodes=NODES)
    for number, node in cluster.nodes.items():
        config = cluster.config_file(number)
        cluster.nodes[number] = _NodeUnderInterpreterOptions(
            node.data_dir, options(number), port=node.port, config=config
        )
    with cluster:
        yield cluster, list(cluster.nodes.values())


def _with_cprofile(case: AnyCase, context: Context, folder: Path) -> Profiled:
    """The profile covers the thread of the event loop from start to stop; the load outweighs the rest."""

    def file(number: int) -> Path:
        return folder / f"profile-{number}"

    with _started(case, folder, lambda number: ["-m", "cProfile", "-o", str(file(number))]) as (subject, nodes):
        figures = case.run(context, subject)
    return Profiled(figures, tuple(file(number) for number in range(1, len(nodes) + 1)))


def _with_perf(case: AnyCase, context: Context, folder: Path) -> Profiled:
    if shutil.which("perf") is None:
        raise SystemExit("perf is not on PATH: install linux-perf, or use --with cprofile")
    file = folder / "profile"
    options = ["-X", "perf"] if sys.version_info >= (3, 12) else []
    record = [
        "perf",
        "record",
        "--quiet",
        "--call-graph",
        "fp",
        "--freq",
        str(SAMPLES_PER_SECOND),
        "--output",
        str(file),
    ]
    with _started(case, folder, lambda _: options) as (subject, nodes):
        pids = ",".join(str(node.pid) for node in nodes)
        sampler = subprocess.Popen([*record, "--pid", pids], start_new_session=True)
        try:
            figures = case.run(context, subject)
        finally:
            sampler.send_signal(signal.SIGINT)
            sampler.wait()
    return Profiled(figures, (file,))


def _show(profiler: str, files: Sequence[Path]) -> None:
    if profiler == "cprofile":
        pstats.Stats(*map(str, files)).sort_stats("tottime").print_stats(FUNCTIONS_SHOWN)
        return
    report = ["perf", "report", "--stdio", "--no-children", "--call-graph", "none", "--percent-limit", "0.5"]
    subprocess.run([*report, "--input", str(files[0])], check=True)


def _keep(profiler: str, files: Sequence[Path], output: Path) -> None:
    if profiler == "cprofile":
        pstats.Stats(*map(str, files)).dump_stats(output)
    else:
        shutil.copyfile(files[0], output)
