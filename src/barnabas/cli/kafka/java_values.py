"""Values as Java writes them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

_PLAIN_MIN: Final = 1e-3
_PLAIN_END: Final = 1e7


def double_text(value: float) -> str:
    """`Double.toString`: with a point always, and with an exponent where a number is very large or very small."""
    size = abs(value)
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if size == 0 or _PLAIN_MIN <= size < _PLAIN_END:
        return repr(float(value))
    digits = "".join(map(str, Decimal(repr(value)).normalize().as_tuple().digits))
    exponent = Decimal(repr(value)).adjusted()
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"
