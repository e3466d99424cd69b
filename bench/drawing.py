"""The picture of a table: how many times better one side does than the other, row by row.

Rates are better when they are higher; times, sizes and shares when they are lower. So that a reader need not know which
is which, every ratio is turned so that more is better, on a logarithmic scale around 1: bars to the right are rows in
which the first side is ahead. A diamond is the same for processor time, which varies less between runs.

One file serves pages with a light and with a dark background: the colours are replaced by a rule for the latter.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.stats import Ratio

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from bench.results import Line

WIDTH_INCHES: Final = 10.0
FOOT_INCHES: Final = 0.5
"""For the legend."""

ROW_INCHES: Final = 0.27
HEAD_INCHES: Final = 0.75
"""Around the bars of one panel: its title and its scale."""

FACTOR_AT, VALUES_AT = 1.02, 1.15
"""Where the columns of text beside the bars begin, in widths of the bars."""

FONT: Final = "DejaVu Sans"
"""It comes with matplotlib, so that every machine draws the same; readers may have to do with another."""

BETTER, WORSE, CPU = "#1a7f64", "#c4622d", "#24292f"
TEXT, MUTED, GRID, PAPER = "#1f2328", "#59636e", "#d1d9e0", "#ffffff"
DARK: Final = {
    BETTER: "#3fb68b",
    WORSE: "#e8894f",
    CPU: "#f0f6fc",
    TEXT: "#e6edf3",
    MUTED: "#9198a1",
    GRID: "#3d444d",
    PAPER: "#0d1117",
}
TICKS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    sides: tuple[str, ...]
    lines: Sequence[Line]


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Writes an SVG with one panel below the other. Rows that have nothing to compare are left out."""
    drawn = [(panel, comparable(panel.lines)) for panel in panels]
    drawn = [(panel, lines) for panel, lines in drawn if lines]
    if not drawn:
        raise ValueError(f"nothing to draw in {path}: no row has a ratio")
    heights = [len(lines) * ROW_INCHES + HEAD_INCHES for _, lines in drawn]
    low, high = _range([line for _, lines in drawn for line in lines])
    # With a salt, ids in the file are the same in every run; and text that stays text takes a quarter of the space.
    with mpl.rc_context({"svg.hashsalt": "barnabas", "svg.fonttype": "none", "font.family": FONT, "font.size": 9.0}):
        layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
        figure = Figure(figsize=(WIDTH_INCHES, sum(heights) + FOOT_INCHES), layout=layout, facecolor=PAPER)
        rows = figure.subplots(len(drawn), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
        for axes, (panel, lines) in zip(rows[:, 0], drawn, strict=True):
            axes.set_xscale("log")
            axes.set_xlim(low, high)
            _draw_panel(axes, panel, lines)
        _legend(rows[0, 0], has_cpu=any(line.cpu_ratio for _, lines in drawn for line in lines))
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(finished(text.getvalue()))


def comparable(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.unit and advantage(line) is not None]


def advantage(line: Line) -> Ratio | None:
    """How many times better the first side does. The unit tells what is better: more of a rate, less of all else."""
    if line.ratio is None or line.ratio.low <= 0:
        return None
    return line.ratio if line.unit.endswith("/s") else _inverse(line.ratio)


def finished(svg: str) -> str:
    """With colours for a dark page, and fonts to fall back on."""
    rules = "".join(
        f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
        for light, dark in DARK.items()
        for part in ("fill", "stroke")
    )
    head, tag, rest = svg.partition("<defs>")
    assert tag, "matplotlib begins its drawings with definitions"
    rest = rest.replace(f"font-family: '{FONT}'", f"font-family: '{FONT}', Verdana, sans-serif")
    return f"{head}<style>@media (prefers-color-scheme:dark){{{rules}}}</style>\n {tag}{rest}"


def _inverse(ratio: Ratio) -> Ratio:
    return Ratio(1 / ratio.median, 1 / ratio.high, 1 / ratio.low)


def _range(lines: Sequence[Line]) -> tuple[float, float]:
    """From a little below the least to a little above the most, with 1 among them."""
    shown = [each for line in lines for each in (advantage(line), line.cpu_ratio and _inverse(line.cpu_ratio)) if each]
    return min(0.8, *(each.low for each in shown)) / 1.15, max(1.25, *(each.high for each in shown)) * 1.15


def _draw_panel(axes: Axes, panel: Panel, lines: Sequence[Line]) -> None:
    axes.set_facecolor(PAPER)
    for place, line in enumerate(lines):
        _draw_row(axes, place, line)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_yticks(range(len(lines)), [line.label for line in lines], color=TEXT)
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks], color=MUTED)
    axes.set_xticks([], minor=True)
    axes.axvline(1.0, color=MUTED, linewidth=1.0, zorder=1)
    axes.grid(axis="x", color=GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(panel.title, loc="left", color=TEXT, fontweight="bold", fontsize=10.5, pad=9)
    _write(axes, VALUES_AT, -1.0, " | ".join(panel.sides), MUTED)


def _draw_row(axes: Axes, place: int, line: Line) -> None:
    ratio = advantage(line)
    assert ratio is not None
    axes.barh(place, ratio.median - 1, left=1, height=0.62, color=BETTER if ratio.median >= 1 else WORSE, zorder=2)
    axes.hlines(place, ratio.low, ratio.high, color=MUTED, linewidth=1.1, zorder=3)
    if line.cpu_ratio is not None:
        cpu = _inverse(line.cpu_ratio).median
        axes.plot([cpu], [place], marker="D", markersize=4.5, color=CPU, markeredgecolor=PAPER, zorder=4)
    _write(axes, FACTOR_AT, place, _factor(ratio.median), TEXT, fontweight="bold")
    _write(axes, VALUES_AT, place, _values(line), MUTED)


def _write(axes: Axes, column: float, place: float, text: str, colour: str, **style: str) -> None:
    """Text beside the bars."""
    axes.text(column, place, text, transform=axes.get_yaxis_transform(), va="center_baseline", color=colour, **style)  # type: ignore[arg-type]


def _factor(times: float) -> str:
    """Two digits that matter, and three around 1, where they tell one side from the other."""
    digits = 0 if times >= 9.95 else 1 if times >= 1.995 else 2
    return f"{times:.{digits}f}×"


def _values(line: Line) -> str:
    """The medians that a bar stands for."""
    shown = " | ".join("–" if value is None else _number(value) for value in line.medians)
    return f"{shown} {line.unit.removeprefix('transactions')}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _legend(axes: Axes, *, has_cpu: bool) -> None:
    shown = [
        Patch(color=BETTER, label="better"),
        Patch(color=WORSE, label="worse"),
        Line2D([], [], color=MUTED, linewidth=1.1, label="range over rounds"),
    ]
    if has_cpu:
        diamond = Line2D([], [], marker="D", markersize=4, linestyle="none", color=CPU, label="the same for CPU time")
        shown.append(diamond)
    axes.figure.legend(
        handles=shown, loc="outside lower center", ncols=len(shown), frameon=False, labelcolor=MUTED, fontsize=8.5
    )
