"""Points in time as people type them: a date, a time, so long ago, or milliseconds since 1970."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

AGO: Final = re.compile(r"-(?P<amount>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h|d|w)")
"""So long ago. It begins with a dash, and yet is no option."""
EXAMPLES: Final = "a time such as 2026-01-31T12:00:00Z, -10m for ten minutes ago, or @milliseconds"
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class TimeError(ValueError):
    """No point in time."""


def parse_time_ms(text: str, *, now_ms: int | None = None) -> int:
    """Milliseconds since 1970, not below 0: no record is older, and a negative timestamp has another meaning in the
    protocol, where -1 is the end and -2 the beginning."""
    ago = AGO.fullmatch(text)
    if ago is not None:
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        return max(0, now_ms - round(float(ago["amount"]) * _UNITS_MS[ago["unit"]]))
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TimeError(text) from None
    return max(0, round(moment.astimezone(UTC).timestamp() * 1000))


def time_text(timestamp_ms: int) -> str:
    """A time of day where this machine is, to the millisecond; `-` for what has none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return f"@{timestamp_ms}"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def duration_text(duration_ms: float) -> str:
    """Roughly how long: `350 ms`, `12.3 s`, `4 min 5 s`, `2 h`, `5 d 2 h`."""
    if duration_ms < 1_000:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.1f}".removesuffix(".0") + " s"
    seconds = round(duration_ms / 1000)
    for unit, smaller, name, smaller_name in ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "min"), (60, 1, "min", "s")):
        if seconds >= unit:
            rest = seconds % unit // smaller
            return f"{seconds // unit} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{seconds} s"
