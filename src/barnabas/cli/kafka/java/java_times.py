"""Points in time and durations as Kafka's tools read them from their command lines."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

_DATETIME: Final = re.compile(
    r"(?P<year>\d{1,4})-(?P<month>\d+)-(?P<day>\d+)T(?P<hour>\d+):(?P<minute>\d+):(?P<second>\d+)\.(?P<milli>\d+)"
    r"(?:Z|(?P<sign>[+-])(?P<ahead_hours>\d\d)(?::(?P<ahead_minutes>\d\d))?)"
)
"""What follows it is left alone."""
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_ZONE_MARKS: Final = "+-Z"
INSTANT_MS_MAX: Final = 31_556_889_864_403_199_999
"""How far Java's calendar reaches in each direction."""


class TimeError(ValueError):
    """No time or duration; what it says is what Java says."""


def read_datetime_ms(text: str) -> int:
    """`2026-01-31T12:00:00.000` with a zone or without, which means UTC, in milliseconds since 1970."""
    before, mark, after = text.partition("T")
    if not mark or not (before or after) or not after:
        raise TimeError("Error parsing timestamp. It does not contain a 'T' according to ISO8601 format")
    if not any(each in after.partition("T")[0] for each in _ZONE_MARKS):
        text += "Z"
    found = _DATETIME.match(text)
    if found is None:
        raise TimeError(f'Unparseable date: "{text}"')
    ahead = timedelta(hours=int(found["ahead_hours"] or 0), minutes=int(found["ahead_minutes"] or 0))
    parts = [int(found[name]) for name in ("year", "month", "day", "hour", "minute", "second")]
    try:
        zone = timezone(-ahead if found["sign"] == "-" else ahead)
        moment = datetime(*parts, int(found["milli"]) * 1_000, tzinfo=zone)  # type: ignore[misc, arg-type]
    except ValueError:
        raise TimeError(f'Unparseable date: "{text}"') from None
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def read_duration_ms(text: str) -> int:
    """`P1DT2H3M4.5S` in milliseconds."""
    found = _DURATION.fullmatch(text)
    if found is None or found["time"] in ("T", "t") or not (found["days"] or found["time"]):
        raise TimeError("Text cannot be parsed to a Duration")
    total = sum(int(found[name] or 0) * unit_ms for name, unit_ms in _UNITS_MS.items())
    fraction_ms = int(f"{found['fraction'] or '0':0<9}") // 1_000_000
    total += -fraction_ms if (found["seconds"] or "").startswith("-") else fraction_ms
    return -total if found["sign"] == "-" else total
