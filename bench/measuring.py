"""A run from its cases to what they found: the warning that others compete, memory used once, rounds with a bar.

After Ctrl-C or SIGTERM what was finished still counts, and no broker outlives the run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.runner import Runner, Step, steps, touch_page_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from bench.case import Case, Plan
    from bench.nodes import N, Side
    from bench.results import Results

LOAD_AVERAGE_MAX = 0.5
FIRST_GUESS_SECONDS = 8.0
"""How long a step takes that has not run yet."""


def measure(
    selected: Sequence[Case[N]], sides: list[Side[N]], plan: Plan, rounds: int, work_dir: Path | None, console: Console
) -> Results:
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


def _run_with_progress(runner: Runner[N], todo: list[Step[N]], console: Console) -> None:
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


def _key(step: Step[N]) -> tuple[str, str]:
    return step.case.name, step.side.label
