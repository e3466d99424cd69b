"""The table, for a terminal and for a page, its picture, and the raw samples as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench import drawing, stored
from bench.results import lines_of
from bench.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.results import Line, Results, Tabled
    from bench.stats import Ratio

TABLE_WIDTH_MIN = 200
"""A narrower terminal wraps lines; cutting them would lose figures."""

CPU_NOTE = "CPU: seconds of the broker per million records or requests."
RATIO_NOTE = "Ratios are of medians over rounds, {first} over {second}; in parentheses the extremes over single rounds."


@dataclass(frozen=True, slots=True)
class About:
    """What was run, where, and how much of it."""

    table: str
    """What the table is called, where it is kept and published."""
    title: str
    machine: Mapping[str, str]
    plan: Mapping[str, object]
    cpu_note: str = CPU_NOTE


def file_name(about: About) -> str:
    """What the files of a run are called, whose endings differ: when it ended, and of which table it is."""
    return f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{about.table}"


def show(console: Console, folder: Path, cases: Sequence[Tabled], results: Results, about: About) -> None:
    """Prints the table and what of it is met, and keeps table, picture and samples in the folder."""
    lines, notes = lines_of(cases, results), _notes(results.sides, about.cpu_note)
    shown = table(about.title, lines, results.sides, notes)
    Console(width=max(console.width, TABLE_WIDTH_MIN)).print(shown)
    console.print(summary(lines), style="bold")
    today = f"{datetime.now().astimezone():%Y-%m-%d}"
    run = StoredRun(about.table, about.title, today, about.machine, results.sides, notes, tuple(lines))
    data, text, picture = save(folder, cases, results, about, run)
    console.print(f"samples: {data}\ntable:   {text}", soft_wrap=True)
    if picture is not None:
        console.print(f"picture: {picture}", soft_wrap=True)


def table(title: str, lines: Sequence[Line], sides: Sequence[str], notes: str) -> Table:
    shown = Table(title=title, caption=notes, box=box.SIMPLE)
    for column, heading in enumerate(_headings(sides)):
        shown.add_column(heading, justify="left" if column < 2 else "right", no_wrap=True)
    for line in lines:
        *cells, targets = _cells(line, sides)
        is_met = all(verdict.is_met for verdict in line.verdicts)
        shown.add_row(*cells, Text(targets, style="green" if is_met else "red"))
    return shown


def markdown(run: StoredRun) -> str:
    return f"{run.title}\n\n{rows(run)}\n\n{run.notes}\nMachine: {machine(run)}.\n"


def rows(run: StoredRun) -> str:
    """The table by itself."""
    headings = _headings(run.sides)
    cells = [headings, ["---", *["---:"] * (len(headings) - 1)], *(_cells(line, run.sides) for line in run.lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def machine(run: StoredRun) -> str:
    return ", ".join(f"{name} {value}" for name, value in run.machine.items())


def save(
    folder: Path, cases: Sequence[Tabled], results: Results, about: About, run: StoredRun
) -> tuple[Path, Path, Path | None]:
    """Writes table, picture and every sample, so that a later reader can ask what this table does not show."""
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name(about)
    data, text, picture = (folder / f"{name}.{kind}" for kind in ("json", "md", "svg"))
    labels = {case.name: [row.label for row in case.rows] for case in cases}
    stored.save(run, data, plan=about.plan, labels=labels, samples=results.samples, failures=results.failures)
    text.write_text(markdown(run))
    if not drawing.comparable(run.lines):
        return data, text, None
    drawing.draw([drawing.Panel(" beside ".join(run.sides), run.sides, run.lines)], picture)
    return data, text, picture


def summary(lines: Sequence[Line]) -> str:
    verdicts = [verdict for line in lines for verdict in line.verdicts]
    return f"{sum(verdict.is_met for verdict in verdicts)} of {len(verdicts)} targets met"


def _headings(sides: Sequence[str]) -> list[str]:
    if len(sides) == 1:
        return ["", "unit", sides[0], "CPU", "target"]
    return ["", "unit", *sides, "ratio", *(f"CPU {side}" for side in sides), "CPU ratio", "target"]


def _cells(line: Line, sides: Sequence[str]) -> list[str]:
    medians, cpu = list(map(number, line.medians)), list(map(number, line.cpu_medians))
    targets = ", ".join(verdict.text() for verdict in line.verdicts)
    if len(sides) == 1:
        return [line.label, line.unit, *medians, *cpu, targets]
    return [line.label, line.unit, *medians, _ratio(line.ratio), *cpu, _ratio(line.cpu_ratio), targets]


def _notes(sides: Sequence[str], cpu_note: str) -> str:
    if len(sides) == 1:
        return cpu_note
    return f"{RATIO_NOTE.format(first=sides[0], second=sides[1])} {cpu_note}"


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def number(value: float | None) -> str:
    """Three digits that matter, and no more."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
