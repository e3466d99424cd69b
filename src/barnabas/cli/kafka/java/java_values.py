"""Values as Java writes them."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Final

_PLAIN_MIN: Final = 1e-3
_PLAIN_END: Final = 1e7
_FLOAT: Final = struct.Struct(">f")
_FLOAT_DIGITS_MAX: Final = 9


def double_text(value: float) -> str:
    """`Double.toString`: with a point always, and with an exponent where a number is very large or very small."""
    return _text(value, repr(float(value)))


def float_text(value: float) -> str:
    """`Float.toString`: the same, with as many digits as tell the float from its neighbours."""
    if math.isnan(value) or math.isinf(value):
        return _text(value, "")
    candidates = (f"{value:.{digits}g}" for digits in range(1, _FLOAT_DIGITS_MAX + 1))
    shortest = next(text for text in candidates if _as_float(text) == value)
    return _text(value, repr(float(shortest)))


def _as_float(text: str) -> float:
    """The float that is next to a number."""
    try:
        value: float = _FLOAT.unpack(_FLOAT.pack(float(text)))[0]
    except OverflowError:
        return math.inf
    return value


def _text(value: float, shortest: str) -> str:
    size = abs(value)
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if size == 0 or _PLAIN_MIN <= size < _PLAIN_END:
        return shortest
    digits = "".join(map(str, Decimal(shortest).normalize().as_tuple().digits))
    exponent = Decimal(shortest).adjusted()
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"
