"""What a run shows about availability: gaps between acknowledgements, and how long each fault was felt. Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GAP_S = 1.0
"""A partition that acknowledges nothing for so long counts as unavailable; its producers send all the time."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Nothing was acknowledged between the two. The partition is None where none of them acknowledged anything."""

    partition: int | None
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Happened:
    """One fault, with times since the beginning of the run."""

    kind: str
    what: str
    began_s: float
    healed_s: float
    whole_s: float
    """When all replicas were in sync again."""
    processing_s: float
    """When, after that, every partition had acknowledged and every loop committed something new."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault did to the producers."""

    fault: Happened
    partitions_hit: int
    longest_s: float
    """The longest time that any partition acknowledged nothing around the fault."""
    silent_s: float
    """The longest time that no partition acknowledged anything."""

    @property
    def held_s(self) -> float:
        return self.fault.healed_s - self.fault.began_s

    @property
    def back_in_sync_s(self) -> float:
        return self.fault.whole_s - self.fault.healed_s


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    worst: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(median(values), max(values))


@dataclass(frozen=True, slots=True)
class KindSummary:
    kind: str
    count: int
    held: Spread
    longest: Spread
    silent: Spread
    back_in_sync: Spread


def gaps(times: Sequence[float], partition: int | None, end_s: float, threshold_s: float = GAP_S) -> list[Gap]:
    """The gaps between times in order, from the first of them to the end of the run."""
    return [
        Gap(partition, before, after) for before, after in pairwise([*times, end_s]) if after - before > threshold_s
    ]


def longest_around(times: Sequence[float], start_s: float, end_s: float) -> float:
    """The longest distance of two consecutive times of which at least a part lies between start and end."""
    first = max(bisect_left(times, start_s) - 1, 0)
    last = bisect_left(times, end_s)
    return max((after - before for before, after in pairwise(times[first : last + 1])), default=0.0)


def effect(fault: Happened, by_partition: Sequence[Sequence[float]], merged: Sequence[float]) -> Effect:
    longest = [longest_around(times, fault.began_s, fault.whole_s) for times in by_partition]
    return Effect(
        fault,
        partitions_hit=sum(each > GAP_S for each in longest),
        longest_s=max(longest),
        silent_s=longest_around(merged, fault.began_s, fault.whole_s),
    )


def by_kind(effects: Iterable[Effect]) -> list[KindSummary]:
    kinds: dict[str, list[Effect]] = {}
    for each in effects:
        kinds.setdefault(each.fault.kind, []).append(each)
    return [
        KindSummary(
            kind,
            len(of_kind),
            Spread.of([each.held_s for each in of_kind]),
            Spread.of([each.longest_s for each in of_kind]),
            Spread.of([each.silent_s for each in of_kind]),
            Spread.of([each.back_in_sync_s for each in of_kind]),
        )
        for kind, of_kind in sorted(kinds.items())
    ]


def per_slot(times: Sequence[float], end_s: float, slot_s: float) -> list[int]:
    """How many times fall into each slot from 0 on."""
    counts = [0] * (int(end_s / slot_s) + 1)
    for each in times:
        counts[min(int(each / slot_s), len(counts) - 1)] += 1
    return counts
