"""The picture of a run: acknowledgements per 100 ms over time, with the faults, and the gaps of each partition."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import matplotlib as mpl
from bench.drawing import BETTER, CPU, FONT, GRID, MUTED, PAPER, TEXT, WORSE, finished
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tests.chaos.cluster.measures import GAP_S, per_slot

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from tests.chaos.cluster.report import Report

SLOT_S = 0.1
WIDTH_INCHES_MIN, WIDTH_INCHES_MAX, SECONDS_PER_INCH = 12.0, 48.0, 20.0
HEIGHT_INCHES = 6.0
NAMED_S_MIN = 3.0
"""A fault's name needs so much room before the next."""


def draw(report: Report, path: Path) -> None:
    width = min(max(report.length_s / SECONDS_PER_INCH, WIDTH_INCHES_MIN), WIDTH_INCHES_MAX)
    with mpl.rc_context({"svg.hashsalt": "barnabas", "svg.fonttype": "none", "font.family": FONT, "font.size": 9.0}):
        layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
        figure = Figure(figsize=(width, HEIGHT_INCHES), layout=layout, facecolor=PAPER)
        rates, gaps = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1]})
        _draw_rates(rates, report)
        _draw_gaps(gaps, report)
        for axes in (rates, gaps):
            _finish(axes, report)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(finished(text.getvalue()))


def _draw_rates(axes: Axes, report: Report) -> None:
    counts = per_slot(report.merged_times(), report.length_s, SLOT_S)
    axes.stairs(counts, [slot * SLOT_S for slot in range(len(counts) + 1)], fill=True, color=BETTER)
    axes.set_ylim(0, max(sorted(counts)[int(len(counts) * 0.99)] * 1.6, 1))
    axes.set_title(report.title(), loc="left", color=TEXT, fontweight="bold", fontsize=10.5, pad=9)
    axes.set_ylabel("acknowledged per 100 ms", color=MUTED)
    top, free_from = axes.get_ylim()[1], -NAMED_S_MIN
    for fault in report.happened:
        axes.axvline(fault.began_s, color=CPU, linewidth=0.8)
        if fault.began_s >= free_from:
            axes.text(
                fault.began_s + 0.3, top * 0.98, fault.kind, rotation=90, va="top", ha="left", color=TEXT, fontsize=7.5
            )
            free_from = fault.began_s + NAMED_S_MIN


def _draw_gaps(axes: Axes, report: Report) -> None:
    for gap in report.partition_gaps():
        assert gap.partition is not None
        axes.barh(gap.partition, gap.length_s, left=gap.start_s, height=0.7, color=WORSE)
    partitions = len(report.acknowledged)
    axes.set_ylim(partitions - 0.4, -0.6)
    axes.set_yticks(range(partitions), [f"partition {index}" for index in range(partitions)], color=MUTED)
    axes.set_xlabel(
        f"seconds; bars: nothing acknowledged for more than {GAP_S:g} s; shaded: while a fault lasts", color=MUTED
    )


def _finish(axes: Axes, report: Report) -> None:
    for fault in report.happened:
        axes.axvspan(fault.began_s, fault.healed_s, color=GRID, zorder=0)
    axes.set_xlim(0, report.length_s)
    axes.set_facecolor(PAPER)
    axes.tick_params(length=0, colors=MUTED)
    axes.spines[:].set_visible(False)
