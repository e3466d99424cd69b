"""A curve in characters: columns of eighths, with the highest value beside the top and 0 at the bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_PER_ROW: Final = len(_EIGHTHS) - 1


def chart(values: Sequence[float], *, width: int, height: int, label: Callable[[float], str]) -> list[str]:
    """Lines from top to bottom. Where there are more values than columns, a column is the mean of several."""
    columns = _fitted(values, width)
    top = max(columns, default=0.0)
    scale = height * _PER_ROW / top if top > 0 else 0.0
    levels = [round(value * scale) for value in columns]
    left = len(label(top))
    lines = []
    for row in range(height - 1, -1, -1):
        cells = "".join(_EIGHTHS[min(max(level - row * _PER_ROW, 0), _PER_ROW)] for level in levels)
        at_side = label(top) if row == height - 1 else "0" if row == 0 else ""
        lines.append(f"{at_side:>{left}} ┤{cells}".rstrip())
    return lines


def _fitted(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        repeat = max(1, width // max(len(values), 1))
        return [value for value in values for _ in range(repeat)]
    parts = [values[at * len(values) // width : (at + 1) * len(values) // width] for at in range(width)]
    return [sum(part) / len(part) for part in parts]
