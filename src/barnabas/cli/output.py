"""What commands print: tables by rich at a terminal, plain columns or JSON in a pipe."""

from __future__ import annotations

import json
import select
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

COLUMN_GAP = "  "


class Column(NamedTuple):
    title: str
    align: str = "left"


def number(title: str) -> Column:
    """A column of numbers, aligned to the right."""
    return Column(title, "right")


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """A table on stdout; its plain form has the same cells without decoration, one row per line."""
    if sys.stdout.isatty():
        print_rich_table(columns, rows, title)
        return
    if title is not None:
        print(title)
    for line in plain_lines(columns, rows):
        print(line)


def print_rich_table(columns: Sequence[Column], rows: Sequence[Sequence[object]], title: str | None) -> None:
    from rich.console import Console

    Console().print(rich_table(columns, rows, title))


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[object]], title: str | None) -> Table:
    """A table for a terminal; what is in it is text, whatever it looks like."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=None if title is None else escape(title), box=SIMPLE_HEAD, title_justify="left")
    for column in columns:
        table.add_column(column.title, justify="right" if column.align == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


def plain_lines(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> list[str]:
    cells = [[column.title for column in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    return [COLUMN_GAP.join(map(pad, row, widths, columns)).rstrip() for row in cells]


def pad(cell: str, width: int, column: Column) -> str:
    return cell.rjust(width) if column.align == "right" else cell.ljust(width)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """One line, for what is printed again and again."""
    print(json.dumps(value, ensure_ascii=False))


def flush_to_reader() -> None:
    """Hand on what was printed. BrokenPipeError if nobody is there any more to read it, which a command that waits for
    something to print would not notice before it prints that."""
    sys.stdout.flush()
    try:
        watched = select.poll()
        watched.register(sys.stdout.fileno(), 0)
        events = watched.poll(0)
    except (OSError, ValueError):
        return  # it is no file
    if events and events[0][1] & select.POLLERR:
        raise BrokenPipeError


def counted(count: int, noun: str) -> str:
    """`1 offset`, `1,200 offsets`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def comma_list(values: Iterable[object]) -> str:
    return ",".join(map(str, values))
