"""`python -m bench publish [FILE …]`: the figures of the documentation, from files of finished runs.

`--newest` takes the last run of each table instead of naming files.

A file from `bench/results/` replaces the published run of its kind in `bench/published/`. Then everything that shows
figures is made again from what is published: the tables of docs/performance.md, the five lines in the README, and the
pictures of both. Without a file, only the second step is done.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import drawing, report, stored
from bench.drawing import Panel
from bench.family import RESULTS
from bench.stored import PUBLISHED, StoredRun, StoredRunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from bench.results import Line

ROOT: Final = Path(__file__).resolve().parents[1]
README, PAGE = Path("README.md"), Path("docs/performance.md")
PICTURE, SUMMARY_PICTURE = Path("docs/performance.svg"), Path("docs/performance-summary.svg")

SIDES: Final = {
    "brokers": ("Barnabas", "Kafka"),
    "upkeep": ("Barnabas", "Kafka"),
    "clusters": ("3 × Barnabas", "3 × Kafka"),
    "pipelines": ("Barnabas", "Spark's connector"),
}
"""What each table compares; runs that compare something else are not for publication."""

TITLES: Final = {
    "brokers": "The broker beside Apache Kafka",
    "clusters": "Three nodes beside three of Apache Kafka's",
    "pipelines": "Pipelines beside Spark's Kafka connector",
}

SUMMARY: Final = (
    "start to first acknowledged record",
    "memory idle",
    "restart after SIGKILL, 1,024 MiB unflushed",
    "produce 100 B, acks 1, none, 4 partitions",
    "produce 1 KiB, acks 1, none, 4 partitions",
    "consume 1 KiB, none, 4 partitions",
    "consume 100 B, none, 4 partitions",
    "one-record requests, 8 × 5 in flight",
    "round trip idle, p99",
    "transactions of 1 record, 3 partitions",
    "rolling restart of 1,000 members, KIP-848",
    "start of 3 nodes to a record on all of them",
    "produce 100 B, acks all, 3 replicas",
    "round trip 100 B, acks all, 3 replicas, p99",
    "leader killed: fenced to writable",
    "memory of all nodes, 3,000 partitions × 3",
    "read 4,000,000 rows of 100 B",
    "read 1,000,000 rows of 1 KiB",
    "write 4,000,000 rows of 100 B, at least once",
    "trigger of 100 rows, source to sink, p50",
)
"""What the README's picture shows: the usual case of each kind, whoever is ahead in it."""

FIGURES: Final = {
    "start to first acknowledged record": "Start to first acknowledged record",
    "memory idle": "Memory, idle",
    "produce 100 B, acks 1, none, 4 partitions": "Produce, records of 100 B",
    "consume 1 KiB, none, 4 partitions": "Consume, records of 1 KiB",
    "transactions of 1 record, 3 partitions": "Transactions of one record",
}
"""The five lines of the README, and what they are called there."""


def main(arguments: Sequence[str], console: Console) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench publish", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="from bench/results/, ending in .json")
    parser.add_argument("--newest", action="store_true", help="the last run of each table in bench/results/, too")
    chosen = parser.parse_args(arguments)
    try:
        for file in [*chosen.files, *(newest_runs(RESULTS) if chosen.newest else ())]:
            adopt(stored.load(file), file)
        show(published(), ROOT)
    except StoredRunError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    return 0


def adopt(run: StoredRun, file: Path) -> None:
    """Publishes a run, without its samples."""
    if run.sides != SIDES.get(run.table):
        pairs = "; ".join(f"{table}: {' beside '.join(sides)}" for table, sides in SIDES.items())
        raise StoredRunError(
            f"{file} is of {run.table}: {' beside '.join(run.sides)}, and only these are published: {pairs}"
        )
    target = PUBLISHED / f"{run.table}.json"
    known = stored.load(target).lines if target.exists() else ()
    if lost := {line.label for line in known} - {line.label for line in run.lines}:
        raise StoredRunError(
            f"{file} lacks rows that are published: {', '.join(sorted(lost))}. Publish a whole run, "
            f"or first remove them from {target}"
        )
    stored.save(run, target)


def newest_runs(folder: Path) -> list[Path]:
    """The last run of each table; the names of files begin with when a run ended."""
    found = (max(folder.glob(f"[0-9]*-{table}.json"), default=None) for table in SIDES)
    return [file for file in found if file is not None]


def published() -> dict[str, StoredRun]:
    return {kind: stored.load(PUBLISHED / f"{kind}.json") for kind in TITLES}


def show(runs: Mapping[str, StoredRun], root: Path) -> None:
    """Makes everything in this tree that shows figures."""
    for path, text in pages(runs, root).items():
        (root / path).write_text(text)
    for path, chosen in pictures(runs).items():
        drawing.draw(chosen, root / path)


def pages(runs: Mapping[str, StoredRun], root: Path) -> dict[Path, str]:
    """The pages with figures, as they should be."""
    page, readme = (root / PAGE).read_text(), (root / README).read_text()
    for kind, run in runs.items():
        page = _between(page, kind, f"{report.rows(run)}\n\nMeasured on {run.measured_on}. {_about(run)}")
    return {PAGE: page, README: _between(readme, "figures", figures(runs["brokers"]))}


def pictures(runs: Mapping[str, StoredRun]) -> dict[Path, list[Panel]]:
    def panels(labels: Sequence[str] | None) -> list[Panel]:
        return [
            Panel(TITLES[kind], run.sides, [line for line in run.lines if labels is None or line.label in labels])
            for kind, run in runs.items()
        ]

    return {PICTURE: panels(None), SUMMARY_PICTURE: panels(SUMMARY)}


def figures(run: StoredRun) -> str:
    """A few rows of the table, with less in each."""
    lines = {line.label: line for line in run.lines}
    if missing := FIGURES.keys() - lines.keys():
        raise StoredRunError(f"no published row is called {', '.join(sorted(missing))}, which the README shows")
    shown = "\n".join(f"| {name} | {_cells(lines[label])} |" for label, name in FIGURES.items())
    return f"| | Barnabas | Apache Kafka |\n|---|---:|---:|\n{shown}"


def _cells(line: Line) -> str:
    return " | ".join(f"{report.number(value)} {line.unit}" for value in line.medians)


def _about(run: StoredRun) -> str:
    return f"{run.notes} Machine: {report.machine(run)}."


def _between(page: str, name: str, text: str) -> str:
    """The page with this text between the comments of that name."""
    pattern = rf"(<!-- {name}: made by `python -m bench publish` -->\n).*?(<!-- end of {name} -->)"
    made, count = re.subn(pattern, lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page, flags=re.DOTALL)
    if count != 1:
        raise StoredRunError(f"the page has {count} places for {name}, where it should have one")
    return made
