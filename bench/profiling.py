"""Where a Barnabas node spends its time in one case: `python -m bench profile CASE`.

With cProfile (the default) the node runs under the profiler and is slower by it, but every function is counted. With
perf it runs at full speed and is sampled from outside, native code included; Python 3.12 and newer also name Python
functions there.
"""

from __future__ import annotations

import argparse
import pstats
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.testing.node_process import Node
from bench import cases
from bench.case import Context, Plan, SteadyCase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

RATE_PER_SECOND = 10_000.0
FUNCTIONS_SHOWN = 40
SAMPLES_PER_SECOND = 999


@dataclass(frozen=True, slots=True)
class Profiled:
    """A case that was run, and the file that the profiler left."""

    figures: dict[str, float]
    file: Path


class _NodeUnderInterpreterOptions(Node):
    """A node whose Python is started with options of its own before `-m barnabas`."""

    def __init__(self, data_dir: Path, options: Sequence[str]) -> None:
        super().__init__(data_dir)
        self._options = tuple(options)

    def _command(self) -> list[str]:
        interpreter, *rest = super()._command()
        return [interpreter, *self._options, *rest]


def main(arguments: Sequence[str], console: Console) -> int:
    by_name = {case.name: case for case in cases.full_cases(Plan()) if isinstance(case, SteadyCase)}
    parser = argparse.ArgumentParser(prog="python -m bench profile", description=__doc__)
    parser.add_argument(
        "case", choices=sorted(by_name), metavar="CASE", help="a steady case; see python -m bench --list"
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
        _show(chosen.profiler, done.file)
        if chosen.output is not None:
            shutil.copyfile(done.file, chosen.output)
    return 0


def _with_cprofile(case: SteadyCase, context: Context, folder: Path) -> Profiled:
    """The profile covers the thread of the event loop from start to stop; the load outweighs the rest."""
    file = folder / "profile"
    with _NodeUnderInterpreterOptions(folder / "data", ["-m", "cProfile", "-o", str(file)]) as node:
        figures = case.run(context, node)
    return Profiled(figures, file)


def _with_perf(case: SteadyCase, context: Context, folder: Path) -> Profiled:
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
    with _NodeUnderInterpreterOptions(folder / "data", options) as node:
        sampler = subprocess.Popen([*record, "--pid", str(node.pid)], start_new_session=True)
        try:
            figures = case.run(context, node)
        finally:
            sampler.send_signal(signal.SIGINT)
            sampler.wait()
    return Profiled(figures, file)


def _show(profiler: str, file: Path) -> None:
    if profiler == "cprofile":
        pstats.Stats(str(file)).sort_stats("tottime").print_stats(FUNCTIONS_SHOWN)
        return
    report = ["perf", "report", "--stdio", "--no-children", "--call-graph", "none", "--percent-limit", "0.5"]
    subprocess.run([*report, "--input", str(file)], check=True)
