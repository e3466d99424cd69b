"""How long things took: counts in buckets that grow by a fourth, so that a percentile is right to within an eighth.

Kafka's percentiles are of the last minutes. Here they are of two windows, the one that is being filled and the one
before it: `turn_over`, called now and then, begins a new one. Count and sum are of all time.
"""

from __future__ import annotations

from typing import Final

_STEPS: Final = 4
"""Buckets for each doubling."""
_SHIFT: Final = 10
"""Times below 2**10 ns are one bucket: nobody asks which of them were shorter."""
BUCKETS: Final = _STEPS * 40


class Histogram:
    """Durations in nanoseconds. Added to by one thread; others may read it, and see each figure as it is then."""

    __slots__ = ("_before", "_now", "count", "sum_ns")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ns = 0
        self._now = [0] * BUCKETS
        self._before = [0] * BUCKETS

    def add(self, duration_ns: int, weight: int = 1) -> None:
        """`weight` is how many such durations this one stands for, where only some are measured."""
        self.count += weight
        self.sum_ns += duration_ns * weight
        self._now[bucket_of(duration_ns)] += weight

    def turn_over(self) -> None:
        """Begin a new window, and forget the one before the last."""
        self._before, self._now = self._now, [0] * BUCKETS

    def quantiles_ns(self, quantiles: tuple[float, ...]) -> list[float]:
        """Durations below which these shares of the recent ones are; 0 where there is none."""
        counts = [now + before for now, before in zip(self._now, self._before, strict=True)]
        total = sum(counts)
        found: list[float] = []
        seen, bucket = 0, -1
        for quantile in quantiles:
            wanted = quantile * total
            while seen < wanted or bucket < 0:
                bucket += 1
                if bucket >= BUCKETS:
                    break
                seen += counts[bucket]
            found.append(middle_ns(min(bucket, BUCKETS - 1)) if total else 0.0)
        return found


def bucket_of(duration_ns: int) -> int:
    scaled = duration_ns >> _SHIFT
    if scaled <= 0:
        return 0
    exponent = scaled.bit_length() - 1
    # The two bits below the highest one say which fourth of the doubling it is.
    fourth = (scaled >> (exponent - 2) if exponent >= 2 else scaled << (2 - exponent)) & 3
    return min(1 + exponent * _STEPS + fourth, BUCKETS - 1)


def middle_ns(bucket: int) -> float:
    """A duration in the middle of a bucket."""
    if bucket == 0:
        return float(1 << (_SHIFT - 1))
    exponent, fourth = divmod(bucket - 1, _STEPS)
    return (1 << (_SHIFT + exponent)) * (1 + (fourth + 0.5) / _STEPS)
