"""The report of a run: how available the cluster was, how long it took to recover, and what was wrong, if anything.

On the console, as a page (Markdown), as data (JSON) and as a picture of the acknowledgements over time.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.chaos.cluster import measures
from tests.chaos.cluster.measures import GAP_S, Effect, Gap, Happened, KindSummary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.cluster.traffic import Acknowledgements

KIND_HEADINGS = (
    "fault",
    "times",
    "held",
    "gap of a partition",
    "worst",
    "of all, worst",
    "in sync again",
    "worst",
)
KIND_NOTE = (
    "Medians unless it says worst. Gap: the longest time around a fault in which a partition, or all of them, "
    "acknowledged nothing. In sync again: after the end of the fault."
)
TABLE_WIDTH_MIN = 120


@dataclass(slots=True)
class Report:
    nodes: int
    seed: int
    acknowledged: list[Acknowledgements] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    began_at: float = 0.0
    ended_at: float = 0.0
    fed: int = 0
    processed: dict[str, int] = field(default_factory=dict)
    pipeline_restarts: int | None = None
    violations: list[str] = field(default_factory=list)

    @property
    def length_s(self) -> float:
        return self.ended_at - self.began_at

    def times(self) -> list[list[float]]:
        """When acknowledgements came for each partition, since the beginning."""
        return [
            [at - self.began_at for at in sorted(each.at) if self.began_at <= at <= self.ended_at]
            for each in self.acknowledged
        ]

    def merged_times(self) -> list[float]:
        return sorted(at for times in self.times() for at in times)

    def effects(self) -> list[Effect]:
        times, merged = self.times(), self.merged_times()
        return [measures.effect(each, times, merged) for each in self.happened]

    def partition_gaps(self) -> list[Gap]:
        return [gap for index, times in enumerate(self.times()) for gap in measures.gaps(times, index, self.length_s)]

    def whole_gaps(self) -> list[Gap]:
        return measures.gaps(self.merged_times(), None, self.length_s)

    def title(self) -> str:
        return f"{self.nodes} nodes, seed {self.seed}: {len(self.happened)} faults in {self.length_s:.0f} s"

    def summary(self) -> list[str]:
        """The figures of the whole run, in sentences."""
        acknowledged = sum(len(times) for times in self.times())
        of_partitions = self.partition_gaps()
        silent = self.whole_gaps()
        partition_s = max(self.length_s * len(self.acknowledged), 1e-9)
        available = 1 - sum(gap.length_s for gap in of_partitions) / partition_s
        lines = [
            f"{acknowledged:,} records were acknowledged, {acknowledged / max(self.length_s, 1e-9):.0f} per second.",
            (
                f"Partitions had {len(of_partitions)} gaps of more than {GAP_S:g} s between acknowledgements, the "
                f"longest of {max((gap.length_s for gap in of_partitions), default=0.0):.1f} s; they were available "
                f"for {available:.2%} of the time."
            ),
            (
                f"No partition acknowledged anything for more than {GAP_S:g} s on {len(silent)} occasions, for "
                f"{sum(gap.length_s for gap in silent):.1f} s in all."
            ),
            f"Each partition of the source got {self.fed:,} records; loops say they committed "
            + ", ".join(f"{count:,} ({name})" for name, count in self.processed.items())
            + ".",
        ]
        if self.pipeline_restarts is not None:
            lines.append(f"The Spark pipeline ended by itself and was started again {self.pipeline_restarts} times.")
        lines.append(self.verdict())
        return lines

    def verdict(self) -> str:
        if self.violations:
            return f"WRONG: {len(self.violations)} violations."
        return "Nothing acknowledged was lost, nothing doubled, the order kept; replicas are equal."


def show(report: Report, console: Console) -> None:
    table = Table(title=report.title(), caption=KIND_NOTE, box=box.SIMPLE)
    for number, heading in enumerate(KIND_HEADINGS):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    for each in measures.by_kind(report.effects()):
        table.add_row(*kind_cells(each))
    Console(width=max(console.width, TABLE_WIDTH_MIN)).print(table)
    for line in report.summary():
        console.print(line, style="bold red" if line.startswith("WRONG") else "")
    for line in report.violations:
        console.print(line, style="red", markup=False)


def kind_cells(each: KindSummary) -> list[str]:
    return [
        each.kind,
        str(each.count),
        _s(each.held.median),
        _s(each.longest.median),
        _s(each.longest.worst),
        _s(each.silent.worst),
        _s(each.back_in_sync.median),
        _s(each.back_in_sync.worst),
    ]


def markdown(report: Report) -> str:
    rows = [KIND_HEADINGS, ("---", *["---:"] * (len(KIND_HEADINGS) - 1))]
    lines = [f"# {report.title()}", "", *(f"- {line}" for line in report.summary()), ""]
    lines += [_row(row) for row in (*rows, *(kind_cells(each) for each in measures.by_kind(report.effects())))]
    lines += ["", KIND_NOTE]
    lines += ["", "## Every fault", "", _row(("at", "what", "held", "partitions with a gap", "longest gap", "in sync"))]
    lines.append(_row(("---:", "---", "---:", "---:", "---:", "---:")))
    lines += [_row(_effect_cells(each)) for each in report.effects()]
    if report.violations:
        lines += ["", "## What is wrong", "", *(f"- {each}" for each in report.violations)]
    return "\n".join(lines) + "\n"


def facts(report: Report) -> dict[str, Any]:
    return {
        "nodes": report.nodes,
        "seed": report.seed,
        "length_s": report.length_s,
        "acknowledged": sum(len(times) for times in report.times()),
        "fed_per_partition": report.fed,
        "processed": report.processed,
        "pipeline_restarts": report.pipeline_restarts,
        "gap_threshold_s": GAP_S,
        "partition_gaps": [asdict(gap) for gap in report.partition_gaps()],
        "whole_gaps": [asdict(gap) for gap in report.whole_gaps()],
        "faults": [asdict(each) for each in report.effects()],
        "by_kind": [asdict(each) for each in measures.by_kind(report.effects())],
        "violations": report.violations,
    }


def save(report: Report, folder: Path) -> None:
    """`report.md`, `report.json` and, if the load ever ran, `acknowledgements.svg`."""
    from tests.chaos.cluster import plot

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text(markdown(report))
    (folder / "report.json").write_text(json.dumps(facts(report), indent=1))
    if report.length_s > 0:
        plot.draw(report, folder / "acknowledgements.svg")


def _effect_cells(each: Effect) -> list[str]:
    return [
        _s(each.fault.began_s),
        each.fault.what,
        _s(each.held_s),
        str(each.partitions_hit),
        _s(each.longest_s),
        _s(each.back_in_sync_s),
    ]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _s(seconds: float) -> str:
    return f"{seconds:.1f} s"
