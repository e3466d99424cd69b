"""The table, for a terminal and for a page, and the raw samples as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.case import Case
    from bench.results import Line, Results
    from bench.stats import Ratio

TABLE_WIDTH_MIN = 200
"""A narrower terminal wraps lines; cutting them would lose figures."""

CPU_NOTE = "CPU: seconds of the broker per million records or requests."
RATIO_NOTE = "Ratios are of medians over rounds, {first} over {second}; in parentheses the extremes over single rounds."


def table(title: str, lines: Sequence[Line], sides: Sequence[str]) -> Table:
    shown = Table(title=title, caption=_notes(sides), box=box.SIMPLE)
    for column, heading in enumerate(_headings(sides)):
        shown.add_column(heading, justify="left" if column < 2 else "right", no_wrap=True)
    for line in lines:
        *cells, targets = _cells(line, sides)
        is_met = all(verdict.is_met for verdict in line.verdicts)
        shown.add_row(*cells, Text(targets, style="green" if is_met else "red"))
    return shown


def markdown(title: str, lines: Sequence[Line], sides: Sequence[str], machine: Mapping[str, str]) -> str:
    headings = _headings(sides)
    rows = [headings, ["---", *["---:"] * (len(headings) - 1)], *(_cells(line, sides) for line in lines)]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    where = ", ".join(f"{name} {value}" for name, value in machine.items())
    return f"{title}\n\n{text}\n\n{_notes(sides)}\nMachine: {where}.\n"


def save(
    folder: Path, stamp: str, cases: Sequence[Case], results: Results, about: Mapping[str, object], page: str
) -> tuple[Path, Path]:
    """Writes the page and every sample, so that a later reader can ask what this table does not show."""
    folder.mkdir(parents=True, exist_ok=True)
    data, text = folder / f"{stamp}.json", folder / f"{stamp}.md"
    said = {
        **about,
        "sides": results.sides,
        "labels": {case.name: [row.label for row in case.rows] for case in cases},
        "samples": results.samples,
        "failures": results.failures,
    }
    data.write_text(json.dumps(said, indent=1))
    text.write_text(page)
    return data, text


def summary(lines: Sequence[Line]) -> str:
    verdicts = [verdict for line in lines for verdict in line.verdicts]
    return f"{sum(verdict.is_met for verdict in verdicts)} of {len(verdicts)} targets met"


def _headings(sides: Sequence[str]) -> list[str]:
    if len(sides) == 1:
        return ["", "unit", sides[0], "CPU", "target"]
    return ["", "unit", *sides, "ratio", *(f"CPU {side}" for side in sides), "CPU ratio", "target"]


def _cells(line: Line, sides: Sequence[str]) -> list[str]:
    medians, cpu = list(map(_number, line.medians)), list(map(_number, line.cpu_medians))
    targets = ", ".join(verdict.text() for verdict in line.verdicts)
    if len(sides) == 1:
        return [line.label, line.unit, *medians, *cpu, targets]
    return [line.label, line.unit, *medians, _ratio(line.ratio), *cpu, _ratio(line.cpu_ratio), targets]


def _notes(sides: Sequence[str]) -> str:
    if len(sides) == 1:
        return CPU_NOTE
    return f"{RATIO_NOTE.format(first=sides[0], second=sides[1])} {CPU_NOTE}"


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def _number(value: float | None) -> str:
    """Three digits that matter, and no more."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
