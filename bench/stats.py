"""What a column of samples says: medians, ratios of medians, and how far the rounds lie apart.

Single runs of one and the same broker differ by more than half on a small machine. So nothing here looks at a single
sample: a figure is a median over rounds, and a comparison carries the range of the ratios of its rounds.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours over theirs. `low` and `high` are the extremes over rounds, each round compared with itself."""

    median: float
    low: float
    high: float


def ratio_of_medians(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio | None:
    """How our samples, by round, compare with theirs, or None where there is nothing to compare.

    A disturbance that lasts for a round hits both sides and cancels in the spread, which is over rounds of both.
    """
    rounds = ours.keys() & theirs.keys()
    if not rounds or any(value <= 0 for value in theirs.values()):
        return None
    ratios = [ours[each] / theirs[each] for each in rounds]
    return Ratio(statistics.median(ours.values()) / statistics.median(theirs.values()), min(ratios), max(ratios))


def median(samples: Mapping[int, float]) -> float | None:
    return statistics.median(samples.values()) if samples else None


def quantile(samples: Sequence[float], fraction: float) -> float:
    """The smallest sample that at least `fraction` of all samples do not exceed (nearest rank)."""
    if not samples:
        raise ValueError("no samples to take a quantile of")
    if not 0 < fraction <= 1:
        raise ValueError(f"a quantile lies in (0, 1], not at {fraction}")
    return sorted(samples)[math.ceil(fraction * len(samples)) - 1]


class Measure(Enum):
    """Which figure of a row a target is about."""

    RATIO = "ratio"
    CPU_RATIO = "CPU ratio"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class AtLeast:
    measure: Measure
    limit: float

    def is_met_by(self, figure: float) -> bool:
        return figure >= self.limit


@dataclass(frozen=True, slots=True)
class AtMost:
    measure: Measure
    limit: float

    def is_met_by(self, figure: float) -> bool:
        return figure <= self.limit


Target = AtLeast | AtMost
