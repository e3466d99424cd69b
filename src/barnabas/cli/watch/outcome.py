"""How well a cluster has served, from outside: availability, latencies, and whether an objective was met. Pure."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

REMEMBERED: Final = 100_000
"""Latencies are of so many probes, the last ones."""
QUANTILES: Final = (0.5, 0.95, 0.99)


class Result(NamedTuple):
    """What became of one probe."""

    partition: int
    acknowledged_ms: float | None
    """How long it took until the record was acknowledged; None if it was not."""
    read_ms: float | None
    """How long it took until it was read back, counted from the same moment; None if it was not."""
    failure: str | None = None

    @property
    def is_good(self) -> bool:
        return self.failure is None


class Objective(NamedTuple):
    """So many of a hundred probes are to be read back, within so long."""

    percent: float
    within_ms: float


class Outcome:
    """All probes until now."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.probes = 0
        self.failed = 0
        self.within = 0
        """Those that were read back in time."""
        self.longest_outage = 0
        """The most probes in a row that failed."""
        self._failed_in_a_row = 0
        self._acknowledged_ms: deque[float] = deque(maxlen=REMEMBERED)
        self._read_ms: deque[float] = deque(maxlen=REMEMBERED)

    def add(self, result: Result) -> None:
        self.probes += 1
        self.failed += not result.is_good
        self._failed_in_a_row = 0 if result.is_good else self._failed_in_a_row + 1
        self.longest_outage = max(self.longest_outage, self._failed_in_a_row)
        if result.acknowledged_ms is not None:
            self._acknowledged_ms.append(result.acknowledged_ms)
        if result.read_ms is not None:
            self._read_ms.append(result.read_ms)
            self.within += result.is_good and result.read_ms <= self.objective.within_ms

    @property
    def availability_percent(self) -> float:
        return 100.0 * (self.probes - self.failed) / self.probes if self.probes else 100.0

    @property
    def reached_percent(self) -> float:
        """What is compared with the objective."""
        return 100.0 * self.within / self.probes if self.probes else 100.0

    @property
    def is_met(self) -> bool:
        return self.reached_percent >= self.objective.percent

    def latencies(self) -> dict[str, list[float]]:
        """Quantiles in milliseconds, of acknowledgements and of reading back."""
        return {
            "acknowledged": quantiles(self._acknowledged_ms),
            "read": quantiles(self._read_ms),
        }

    def figures_line(self) -> str:
        parts = [f"{self.probes} probes, {self.failed} failed, available {percent(self.availability_percent)}"]
        for what, values in self.latencies().items():
            shown = " ".join(
                f"p{100 * quantile:g} {value:.1f}" for quantile, value in zip(QUANTILES, values, strict=False)
            )
            parts.append(f"{what} {shown} ms" if values else f"{what} never")
        return "; ".join(parts)

    def objective_line(self) -> str:
        wanted = f"{self.objective.percent:g} % read back within {self.objective.within_ms:g} ms"
        return f"SLO {wanted}: {'met' if self.is_met else 'MISSED'}, {percent(self.reached_percent)}"

    def as_json(self) -> dict[str, object]:
        """Documented in docs/metrics.md."""
        names = [f"p{100 * quantile:g}_ms" for quantile in QUANTILES]
        return {
            "probes": self.probes,
            "failed": self.failed,
            "longest_outage_probes": self.longest_outage,
            "availability_percent": round(self.availability_percent, 4),
            "latency": {
                what: {name: round(value, 3) for name, value in zip(names, values, strict=False)}
                for what, values in self.latencies().items()
            },
            "slo": {
                "percent": self.objective.percent,
                "within_ms": self.objective.within_ms,
                "reached_percent": round(self.reached_percent, 4),
                "met": self.is_met,
            },
        }


def quantiles(values: Sequence[float]) -> list[float]:
    """Nothing of nothing."""
    ordered = sorted(values)
    if not ordered:
        return []
    return [ordered[min(math.ceil(quantile * len(ordered)), len(ordered)) - 1] for quantile in QUANTILES]


def percent(value: float) -> str:
    """Never rounded up to a hundred."""
    return f"{math.floor(value * 1000) / 1000:.3f} %"
