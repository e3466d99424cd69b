"""Values as people type and read them: `7d` for a setting in milliseconds, `1GiB` for one in bytes."""

from __future__ import annotations

import re
from typing import Final

from barnabas.cli.times import duration_text

_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)")
_MS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES: Final = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_READABLE_MS_MIN: Final = 1_000
_READABLE_BYTES_MIN: Final = 1 << 10
_INT64_MAX: Final = (1 << 63) - 1


def as_kafka_writes(name: str, value: str) -> str:
    """A number without its unit, where the setting is one of time or size; else the value as it is."""
    found = _AMOUNT.fullmatch(value.strip())
    units = _units_of(name)
    factor = None if found is None or units is None else units.get(found[2].lower())
    return value if found is None or factor is None else str(round(float(found[1]) * factor))


def readable(name: str, value: str | None) -> str:
    """What a number of milliseconds or bytes amounts to; empty where that says no more than the number."""
    units = _units_of(name)
    if units is None or value is None or not value.isdecimal() or int(value) >= _INT64_MAX:
        return ""
    amount = int(value)
    if units is _MS:
        return duration_text(amount) if amount >= _READABLE_MS_MIN else ""
    return _size_text(amount) if amount >= _READABLE_BYTES_MIN else ""


def _units_of(name: str) -> dict[str, int] | None:
    parts = name.split(".")
    if parts[-1] == "ms":
        return _MS
    return _BYTES if "bytes" in parts else None


def _size_text(size: int) -> str:
    for name in ("TiB", "GiB", "MiB", "KiB"):
        unit = _BYTES[name.lower()]
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"
