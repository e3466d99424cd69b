"""Figures as a picture that fills a terminal, whatever its size: what has no room is left out, from the bottom."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.layout import Layout
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from barnabas.cli.top.figures import Figures, Throughput

HISTORY: Final = 60
"""How many points a curve has."""
BARS: Final = " ▁▂▃▄▅▆▇█"
LITTLE_IDLE: Final = 0.2
LONG_TURN_S: Final = 0.1
WIDE: Final = 100
"""From so many columns on, two tables stand beside each other."""
TEXT_WIDTH: Final = 12
"""What a name has at least, before figures are cut."""
UNITS: Final = ("", "k", "M", "G", "T")


class History:
    """The throughput of the last minutes, for curves."""

    def __init__(self) -> None:
        self.points: deque[Throughput] = deque(maxlen=HISTORY)

    def curve(self, name: str) -> str:
        values = [getattr(point, name) for point in self.points]
        most = max(values, default=0.0)
        if most <= 0:
            return ""
        return "".join(BARS[min(int(value / most * (len(BARS) - 1) + 0.5), len(BARS) - 1)] for value in values)


def picture(figures: Figures, history: History, title: str, *, width: int, height: int) -> Layout:
    """All of it, for a terminal of this size."""
    whole = Layout()
    head = 8 + len(figures.missing)
    nodes = min(len(figures.nodes), 8) + 4
    rows = [Layout(header(figures, history, title), size=head), Layout(node_table(figures), size=nodes)]
    left = max(height - head - nodes, 0)
    requests, groups, topics = request_table(figures, left), group_table(figures, left), topic_table(figures, left)
    if left >= 4:
        tables = Layout()
        if width >= WIDE:
            right = Layout()
            right.split_column(Layout(groups), Layout(topics))
            tables.split_row(Layout(requests, ratio=11), Layout(right, ratio=9))
        else:
            tables.split_column(Layout(requests), Layout(groups), Layout(topics))
        rows.append(tables)
    whole.split_column(*rows)
    return whole


def header(figures: Figures, history: History, title: str) -> RenderableType:
    throughput = figures.throughput
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="left", style="bold")
    table.add_column(justify="right", min_width=12)
    table.add_column(style="cyan", no_wrap=True)
    for label, value, name in (
        ("records in", f"{short(throughput.records_in)}/s", "records_in"),
        ("bytes in", f"{short_bytes(throughput.bytes_in)}/s", "bytes_in"),
        ("bytes out", f"{short_bytes(throughput.bytes_out)}/s", "bytes_out"),
        ("requests", f"{short(throughput.requests)}/s", "requests"),
        ("errors", f"{short(throughput.errors)}/s", "errors"),
    ):
        table.add_row(label, value, history.curve(name))
    lines: list[RenderableType] = [health(figures), table]
    lines += [Text(f"not shown: {reason}", style="red") for reason in figures.missing]
    return Panel(Group(*lines), title=escape(title), title_align="left", border_style="blue")


def health(figures: Figures) -> Text:
    text = Text()
    for label, value, is_good in (
        ("brokers", figures.brokers, figures.brokers > 0),
        ("controllers", figures.active_controllers, figures.active_controllers == 1),
        ("offline", figures.offline_partitions, figures.offline_partitions == 0),
        ("under-replicated", figures.under_replicated, figures.under_replicated == 0),
        ("under min ISR", figures.under_min_isr, figures.under_min_isr == 0),
    ):
        text.append(f"{label} ", style="dim")
        text.append(f"{value}   ", style="green" if is_good else "bold red")
    return text


def node_table(figures: Figures) -> Table:
    table = plain_table("node", "idle %", "longest turn", "CPU %", "memory", "clients", "partitions", "leads", "URP")
    for line in figures.nodes:
        little = line.idle_share is not None and line.idle_share < LITTLE_IDLE
        long = line.longest_turn_s is not None and line.longest_turn_s > LONG_TURN_S
        table.add_row(
            escape(line.node) + (" [cyan]controller[/]" if line.is_controller else ""),
            marked("-" if line.idle_share is None else f"{100 * line.idle_share:.0f}", is_bad=little),
            marked("-" if line.longest_turn_s is None else f"{plain(1000 * line.longest_turn_s)} ms", is_bad=long),
            f"{100 * line.processors:.0f}",
            short_bytes(line.memory_bytes),
            str(line.connections),
            str(line.partitions),
            str(line.leaders),
            marked(str(line.under_replicated), is_bad=line.under_replicated > 0),
        )
    return table


def request_table(figures: Figures, rows: int) -> Table:
    table = plain_table("request", "/s", "p50 ms", "p99 ms", "queue", "local", "remote", "send")
    for line in figures.requests[: max(rows - 3, 1)]:
        times = (line.p50_ms, line.p99_ms, line.queue_ms, line.local_ms, line.remote_ms, line.send_ms)
        table.add_row(escape(line.request), short(line.per_second), *map(plain, times))
    return table


def group_table(figures: Figures, rows: int) -> Table:
    table = plain_table("group", "topic", "lag", "behind", "members", text_columns=2)
    for line in figures.groups[: max(rows, 1)]:
        table.add_row(
            escape(line.group), escape(line.topic), short(line.lag), f"{line.behind_s:.1f} s", str(line.members)
        )
    return table


def topic_table(figures: Figures, rows: int) -> Table:
    table = plain_table("topic", "records/s", "in B/s", "out B/s", "size B")
    for line in figures.topics[: max(rows, 1)]:
        figures_of = (line.records_in, line.bytes_in, line.bytes_out, line.size_bytes)
        table.add_row(escape(line.topic), *map(short, figures_of))
    return table


def plain_table(*titles: str, text_columns: int = 1) -> Table:
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False, header_style="bold cyan")
    for number, title in enumerate(titles):
        is_text = number < text_columns
        table.add_column(
            title,
            justify="left" if is_text else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=TEXT_WIDTH if is_text else None,
        )
    return table


def marked(text: str, *, is_bad: bool) -> str:
    return f"[bold red]{text}[/]" if is_bad else text


def short(value: float) -> str:
    """Three digits or four, and a letter for thousands."""
    unit = 0
    while abs(value) >= 9_999.5 and unit < len(UNITS) - 1:
        value /= 1000
        unit += 1
    number = f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
    return f"{number} {UNITS[unit]}" if UNITS[unit] else number


def short_bytes(value: float) -> str:
    number, _, unit = short(value).partition(" ")
    return f"{number} {unit}B"


def plain(value: float) -> str:
    """Three digits, without a letter."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
