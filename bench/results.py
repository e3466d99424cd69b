"""What a run of the benchmark found, from the raw figures to the rows of its table."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tools import apache_kafka

from bench.stats import AtLeast, Measure, Ratio, median, ratio_of_medians

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.case import Row
    from bench.stats import Target

Figures = dict[str, float]


@dataclass(slots=True)
class Results:
    """`samples[case][side][round]` are the figures of one run; what failed is a line in `failures` instead."""

    sides: tuple[str, ...]
    samples: dict[str, dict[str, dict[int, Figures]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, case: str, side: str, round_number: int, figures: Figures) -> None:
        self.samples.setdefault(case, {}).setdefault(side, {})[round_number] = figures

    def column(self, case: str, side: str, figure: str, scale: float = 1.0) -> dict[int, float]:
        """One figure of a case on a side, by round."""
        rounds = self.samples.get(case, {}).get(side, {})
        return {number: figures[figure] * scale for number, figures in rounds.items()}


@dataclass(frozen=True, slots=True)
class Verdict:
    target: Target
    figure: float | None

    @property
    def is_met(self) -> bool:
        return self.figure is not None and self.target.is_met_by(self.figure)

    def text(self) -> str:
        subject = {Measure.RATIO: "", Measure.CPU_RATIO: "CPU ", Measure.VALUE: "value "}[self.target.measure]
        sign = "≥" if isinstance(self.target, AtLeast) else "≤"
        return f"{subject}{sign} {self.target.limit:g} {'✓' if self.is_met else '✗'}"


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table: medians of each side, and how the first side compares with the second."""

    label: str
    unit: str
    medians: tuple[float | None, ...]
    ratio: Ratio | None
    cpu_medians: tuple[float | None, ...]
    cpu_ratio: Ratio | None
    verdicts: tuple[Verdict, ...]


class Tabled(Protocol):
    """Any case: what its figures are kept under, and the rows that they become."""

    @property
    def name(self) -> str: ...
    @property
    def rows(self) -> tuple[Row, ...]: ...


def lines_of(cases: Sequence[Tabled], results: Results) -> list[Line]:
    return [_line(case.name, row, results) for case in cases for row in case.rows if case.name in results.samples]


def _line(case: str, row: Row, results: Results) -> Line:
    columns = [results.column(case, side, row.figure, row.scale) for side in results.sides]
    cpu = [results.column(case, side, "cpu_per_million") if row.has_cpu else {} for side in results.sides]
    ratio = ratio_of_medians(columns[0], columns[1]) if len(columns) > 1 else None
    cpu_ratio = ratio_of_medians(cpu[0], cpu[1]) if len(cpu) > 1 else None
    found = {
        Measure.RATIO: ratio.median if ratio else None,
        Measure.CPU_RATIO: cpu_ratio.median if cpu_ratio else None,
        Measure.VALUE: median(columns[0]),
    }
    return Line(
        row.label,
        row.unit,
        tuple(map(median, columns)),
        ratio,
        tuple(map(median, cpu)),
        cpu_ratio,
        # Without another side there is nothing to compare: such a target is left out, not missed.
        tuple(
            Verdict(target, found[target.measure])
            for target in row.targets
            if len(columns) > 1 or target.measure is Measure.VALUE
        ),
    )


def machine() -> Mapping[str, str]:
    """What the figures were measured on, as a reader needs it to place them."""
    return {
        "processor": f"{_first('/proc/cpuinfo', 'model name')}, {_processors()} logical processors",
        "memory": f"{int(_first('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Barnabas": metadata.version("barnabas"),
        "Apache Kafka": apache_kafka.VERSION,
        "confluent-kafka": metadata.version("confluent-kafka"),
    }


def _processors() -> int:
    return sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())


def _first(file: str, key: str) -> str:
    for line in Path(file).read_text().splitlines():
        if line.startswith(key):
            return line.partition(":")[2].strip()
    return "unknown"
