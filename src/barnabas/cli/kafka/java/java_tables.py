"""Tables as Kafka's tools print them: columns as wide as what is in them, and a tab behind each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [headings, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    for row in cells:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))
