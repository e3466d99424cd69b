"""A run by itself, of any length: `python -m tests.chaos.cluster --nodes 5 --seconds 300 --seed 7`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.chaos.cluster.faults import KINDS
from tests.chaos.cluster.report import save, show
from tests.chaos.cluster.run import RunOptions, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, choices=(3, 5))
    parser.add_argument("--seconds", type=float, default=120.0, help="for how long faults begin")
    parser.add_argument("--seed", type=int, default=None, help="which faults come, and when; any if none is given")
    parser.add_argument("--fault", action="append", choices=list(KINDS), default=[], help="only faults of these kinds")
    parser.add_argument("--pipeline", action="store_true", help="with a Spark pipeline")
    parser.add_argument("--folder", type=Path, help="for the logs and the report; a new one if none is given")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="barnabas-chaos-"))
    console = Console(soft_wrap=True)
    wanted = RunOptions(options.nodes, seed, options.seconds, options.fault, has_pipeline=options.pipeline)
    report = run(folder, wanted, lambda line: console.print(line, markup=False, highlight=False))
    save(report, folder)
    show(report, console)
    console.print(f"logs and report: {folder}")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
