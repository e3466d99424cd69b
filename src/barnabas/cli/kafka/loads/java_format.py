"""Figures and times as Java's `printf` and `SimpleDateFormat` print them."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

_PIECE: Final = re.compile(r"''|'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_YEAR_DIGITS_SHORT: Final = 2
_NAME_LETTERS: Final = 3
"""From so many letters on a name is meant, and one more means the whole name."""


def fixed(value: float, digits: int) -> str:
    """`%.2f`: what is half way goes up, and what is no number is named."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def date_text(moment: datetime, pattern: str) -> str:
    """A time by the letters of `SimpleDateFormat`; ToolError for a letter that it does not have."""
    return "".join(_piece(moment, found) for found in _PIECE.finditer(pattern))


def _piece(moment: datetime, found: re.Match[str]) -> str:
    text, letter = found[0], found[2]
    if text == "''":
        return "'"
    if letter is None:
        return text if found[1] is None else found[1].replace("''", "'")
    if letter not in _LETTERS:
        raise ToolError(f"Illegal pattern character '{letter}'")
    return _LETTERS[letter](moment, len(text))


def _digits(value_of: Callable[[datetime], int]) -> Callable[[datetime, int], str]:
    return lambda moment, width: f"{value_of(moment):0{width}}"


def _year(moment: datetime, width: int) -> str:
    return f"{moment.year % 100:02}" if width == _YEAR_DIGITS_SHORT else f"{moment.year:0{width}}"


def _month(moment: datetime, width: int) -> str:
    if width < _NAME_LETTERS:
        return f"{moment.month:0{width}}"
    return moment.strftime("%b" if width == _NAME_LETTERS else "%B")


_LETTERS: Final[dict[str, Callable[[datetime, int], str]]] = {
    "y": _year,
    "Y": _year,
    "M": _month,
    "L": _month,
    "d": _digits(lambda moment: moment.day),
    "D": _digits(lambda moment: moment.timetuple().tm_yday),
    "H": _digits(lambda moment: moment.hour),
    "k": _digits(lambda moment: moment.hour or 24),
    "K": _digits(lambda moment: moment.hour % 12),
    "h": _digits(lambda moment: moment.hour % 12 or 12),
    "m": _digits(lambda moment: moment.minute),
    "s": _digits(lambda moment: moment.second),
    "S": _digits(lambda moment: moment.microsecond // 1000),
    "u": _digits(lambda moment: moment.isoweekday()),
    "w": _digits(lambda moment: int(moment.strftime("%U")) + 1),
    "W": _digits(lambda moment: (moment.day + moment.replace(day=1).isoweekday() % 7 - 1) // 7 + 1),
    "F": _digits(lambda moment: (moment.day - 1) // 7 + 1),
    "E": lambda moment, width: moment.strftime("%a" if width <= _NAME_LETTERS else "%A"),
    "a": lambda moment, _: "AM" if moment.hour < 12 else "PM",
    "G": lambda _moment, _: "AD",
    "z": lambda moment, _: moment.strftime("%Z"),
    "Z": lambda moment, _: moment.strftime("%z"),
    "X": lambda moment, width: _iso_zone(moment.strftime("%z"), width),
}


def _iso_zone(zone: str, width: int) -> str:
    if zone == "+0000":
        return "Z"
    return {1: zone[:3], 2: zone}.get(width, f"{zone[:3]}:{zone[3:]}")
