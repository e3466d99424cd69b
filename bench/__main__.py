"""`python -m bench`: the table. `python -m bench pipelines`: that of source and sink on Spark.

`python -m bench profile CASE`: where the broker spends its time in one case.
`python -m bench publish [FILE …]`: puts the figures of finished runs into the documentation.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from tools import apache_kafka

from bench import cases, profiling, report, results
from bench.case import QUICK, Plan
from bench.nodes import APACHE_KAFKA, BARNABAS, Side
from bench.runner import Runner, Step, steps, touch_page_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.case import Case
    from bench.results import Results

RESULTS = Path(__file__).with_name("results")
ROUNDS = 5
QUICK_ROUNDS = 1
LOAD_AVERAGE_MAX = 0.5
FIRST_GUESS_SECONDS = 8.0
"""How long a step takes that has not run yet."""


def main(arguments: Sequence[str]) -> int:
    console = Console()
    if arguments[:1] == ["profile"]:
        return profiling.main(arguments[1:], console)
    if arguments[:1] == ["pipelines"]:
        from bench.pipelines import table  # here, as it needs Spark

        return table.main(arguments[1:], console)
    if arguments[:1] == ["publish"]:
        from bench import publishing

        return publishing.main(arguments[1:], console)
    chosen = _parse(arguments)
    plan = QUICK if chosen.quick else Plan()
    every = cases.full_cases(plan) if chosen.full else cases.standard_cases(plan)
    if chosen.list:
        console.print("\n".join(case.name for case in every))
        return 0
    if unknown := set(chosen.only) - {case.name for case in every}:
        console.print(f"no case is called {', '.join(sorted(unknown))}: see `python -m bench --list`")
        return 2
    selected = [case for case in every if not chosen.only or case.name in chosen.only]
    rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS)
    found = _measure(selected, _sides(chosen, console), plan, rounds, chosen.work_dir, console)
    _report(selected, found, plan, console)
    return 1 if found.failures else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the full grid of factors instead of one at a time")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="these cases only; see --list")
    parser.add_argument("--list", action="store_true", help="the names of the cases, and nothing else")
    parser.add_argument("--rounds", type=int, help=f"rounds after the warm-up (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="short loads and one round: shows that it works, no more")
    sides = parser.add_mutually_exclusive_group()
    sides.add_argument("--barnabas-only", action="store_true", help="without Apache Kafka")
    sides.add_argument(
        "--noise-floor", action="store_true", help="Apache Kafka against itself: how far equals differ on this machine"
    )
    parser.add_argument("--work-dir", type=Path, help="where data folders go (default: the folder for temporary files)")
    return parser.parse_args(arguments)


def _sides(chosen: argparse.Namespace, console: Console) -> list[Side]:
    if chosen.barnabas_only:
        return [BARNABAS]
    if (reason := apache_kafka.missing()) is not None:
        console.print(f"Barnabas alone, as there is no Apache Kafka to compare with. {reason}", style="yellow")
        return [BARNABAS]
    if chosen.noise_floor:
        return [dataclasses.replace(APACHE_KAFKA, label=f"{APACHE_KAFKA.label} {letter}") for letter in "AB"]
    return [BARNABAS, APACHE_KAFKA]


def _measure(
    selected: Sequence[Case], sides: list[Side], plan: Plan, rounds: int, work_dir: Path | None, console: Console
) -> Results:
    """Runs everything; after Ctrl-C or SIGTERM what was finished still counts. No broker outlives this."""
    if (load := os.getloadavg()[0]) > LOAD_AVERAGE_MAX:
        console.print(f"load average {load:.1f}: other programs compete, and the figures show it", style="yellow")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=work_dir) as folder:
        runner = Runner(sides, plan, Path(folder))
        with contextlib.closing(runner):
            try:
                _touch_with_progress(Path(folder), console)
                _run_with_progress(runner, list(steps(selected, sides, rounds)), console)
            except KeyboardInterrupt:
                runner.results.failures.append("interrupted: the table holds the runs that were finished")
    return runner.results


def _touch_with_progress(folder: Path, console: Console) -> None:
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("using memory once, so that no round pays for its first use", total=1.0)
        for done in touch_page_cache(folder):
            progress.update(task, completed=done)
        progress.update(task, completed=1.0)


def _run_with_progress(runner: Runner, todo: list[Step], console: Console) -> None:
    """The bar counts seconds, not steps: a step is expected to take what it took the last time."""
    took: dict[tuple[str, str], float] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=None, left="")
        for number, step in enumerate(todo):
            left = sum(took.get(_key(each), FIRST_GUESS_SECONDS) for each in todo[number:])
            done = sum(took.get(_key(each), FIRST_GUESS_SECONDS) for each in todo[:number])
            what = f"round {step.round_number}" if step.round_number else "warm-up"
            progress.update(
                task,
                description=f"{what}: {step.case.name} on {step.side.label}",
                completed=done,
                total=done + left,
                left=f"about {left // 60:.0f}:{left % 60:02.0f} left",
            )
            started = time.monotonic()
            runner.run(step)
            took[_key(step)] = time.monotonic() - started


def _key(step: Step) -> tuple[str, str]:
    return step.case.name, step.side.label


def _report(selected: Sequence[Case], found: Results, plan: Plan, console: Console) -> None:
    for failure in found.failures:
        console.print(failure, style="red", markup=False)
    if not found.samples:
        return
    rounds = max(len(by_round) for sides in found.samples.values() for by_round in sides.values())
    about = report.About(
        name=report.stamp(),
        title=f"{' beside '.join(found.sides)}: medians of {rounds} interleaved {'round' if rounds == 1 else 'rounds'}",
        machine=results.machine(),
        plan=dataclasses.asdict(plan),
    )
    report.show(console, RESULTS, selected, found, about)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
