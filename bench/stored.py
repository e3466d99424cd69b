"""A finished run as a file: the rows of its table, from which it can be shown and drawn again without running it.

The files in `bench/published/` hold no more than that. Those of single runs, in `bench/results/`, have the samples
that the rows were made of beside them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.results import Line, Verdict
from bench.stats import AtLeast, AtMost, Measure, Ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.stats import Target

PUBLISHED = Path(__file__).with_name("published")


class StoredRunError(ValueError):
    """A file is not that of a run, or not of one that can be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    table: str
    """What the table is called; each has its place in the documentation."""
    title: str
    measured_on: str
    """The day, as YYYY-MM-DD."""
    machine: Mapping[str, str]
    sides: tuple[str, ...]
    notes: str
    """How ratios and CPU figures are to be read."""
    lines: tuple[Line, ...]


def load(path: Path) -> StoredRun:
    try:
        said = json.loads(path.read_text())
        return StoredRun(
            said["table"],
            said["title"],
            said["measured_on"],
            said["machine"],
            tuple(said["sides"]),
            said["notes"],
            tuple(_line(each) for each in said["lines"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoredRunError(f"{path} is not the file of a run of this benchmark: {error!r}") from error


def save(run: StoredRun, path: Path, **further: object) -> None:
    """Writes a run, and what else is worth keeping of it."""
    rows = [_stored(line) for line in run.lines]
    said = {**asdict(run), "lines": rows, **further}
    path.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")


def _stored(line: Line) -> dict[str, object]:
    return {
        "label": line.label,
        "unit": line.unit,
        "medians": line.medians,
        "ratio": asdict(line.ratio) if line.ratio else None,
        "cpu_medians": line.cpu_medians,
        "cpu_ratio": asdict(line.cpu_ratio) if line.cpu_ratio else None,
        "targets": [_stored_target(verdict) for verdict in line.verdicts],
    }


def _stored_target(verdict: Verdict) -> dict[str, object]:
    limit = "at_least" if isinstance(verdict.target, AtLeast) else "at_most"
    return {"measure": verdict.target.measure.value, limit: verdict.target.limit, "figure": verdict.figure}


def _line(said: Mapping[str, Any]) -> Line:
    return Line(
        said["label"],
        said["unit"],
        tuple(said["medians"]),
        Ratio(**said["ratio"]) if said["ratio"] else None,
        tuple(said["cpu_medians"]),
        Ratio(**said["cpu_ratio"]) if said["cpu_ratio"] else None,
        tuple(Verdict(_target(each), each["figure"]) for each in said["targets"]),
    )


def _target(said: Mapping[str, Any]) -> Target:
    measure = Measure(said["measure"])
    return AtLeast(measure, said["at_least"]) if "at_least" in said else AtMost(measure, said["at_most"])
