"""Durations in buckets: percentiles that are right to within an eighth, over the last two windows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.metrics.histogram import BUCKETS, Histogram, bucket_of, middle_ns

DURATIONS = st.integers(0, 10**12)


@given(st.lists(DURATIONS, min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_percentile_is_right_to_within_an_eighth(durations: list[int], share: float) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    (found,) = histogram.quantiles_ns((share,))
    # The duration of which that share is not longer, as a sorted list tells it.
    wanted = sorted(durations)[max(-int(-share * len(durations) // 1), 1) - 1]
    assert abs(found - wanted) <= max(wanted / 8 + 1, 1024)


@given(DURATIONS, DURATIONS)
def test_buckets_are_in_the_order_of_durations(one: int, other: int) -> None:
    shorter, longer = sorted((one, other))
    assert 0 <= bucket_of(shorter) <= bucket_of(longer) < BUCKETS


def test_each_bucket_holds_its_own_middle() -> None:
    assert [bucket_of(int(middle_ns(bucket))) for bucket in range(4 * 9, BUCKETS)] == list(range(4 * 9, BUCKETS))


def test_what_is_two_windows_old_is_forgotten_but_counted() -> None:
    histogram = Histogram()
    histogram.add(1_000_000, weight=3)
    histogram.turn_over()
    histogram.add(5_000_000)
    assert histogram.quantiles_ns((0.5,))[0] < 2_000_000
    histogram.turn_over()
    assert histogram.quantiles_ns((0.5,))[0] > 4_000_000
    histogram.turn_over()
    assert histogram.quantiles_ns((0.5, 0.99)) == [0.0, 0.0]
    assert (histogram.count, histogram.sum_ns) == (4, 8_000_000)
