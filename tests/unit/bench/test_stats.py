from __future__ import annotations

import pytest
from bench.stats import AtLeast, AtMost, Measure, Ratio, median, quantile, ratio_of_medians
from hypothesis import given
from hypothesis import strategies as st

figures = st.floats(min_value=1e-3, max_value=1e9)


def test_a_ratio_compares_medians_and_spreads_over_single_rounds() -> None:
    ours, theirs = {1: 10.0, 2: 12.0, 3: 30.0}, {1: 10.0, 2: 8.0, 3: 10.0}
    assert ratio_of_medians(ours, theirs) == Ratio(median=1.2, low=1.0, high=3.0)


def test_a_round_that_failed_on_one_side_does_not_shift_the_others() -> None:
    ours, theirs = {1: 10.0, 3: 30.0}, {1: 5.0, 2: 99.0, 3: 10.0}
    ratio = ratio_of_medians(ours, theirs)
    assert ratio is not None
    assert (ratio.low, ratio.high) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("ours", "theirs"), [({}, {1: 1.0}), ({1: 1.0}, {}), ({1: 1.0}, {2: 1.0}), ({1: 1.0}, {1: 0.0})]
)
def test_without_a_common_round_or_with_a_zero_there_is_no_ratio(
    ours: dict[int, float], theirs: dict[int, float]
) -> None:
    assert ratio_of_medians(ours, theirs) is None


@given(st.dictionaries(st.integers(1, 9), figures, min_size=1))
def test_a_broker_equals_itself(samples: dict[int, float]) -> None:
    assert ratio_of_medians(samples, samples) == Ratio(1.0, 1.0, 1.0)


def test_the_median_of_nothing_is_nothing() -> None:
    assert median({}) is None
    assert median({1: 3.0, 2: 1.0, 5: 2.0}) == 2.0


@given(st.lists(figures, min_size=1, max_size=200), st.floats(min_value=0.01, max_value=1.0))
def test_a_quantile_is_a_sample_that_the_fraction_does_not_exceed(samples: list[float], fraction: float) -> None:
    found = quantile(samples, fraction)
    assert found in samples
    assert sum(sample <= found for sample in samples) >= fraction * len(samples) * (1 - 1e-12)
    assert sum(sample < found for sample in samples) <= fraction * len(samples) * (1 + 1e-12)


def test_p99_of_a_hundred_is_the_second_largest() -> None:
    assert quantile([float(value) for value in range(1, 101)], 0.99) == 99.0


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1])
def test_a_quantile_outside_the_samples_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        quantile([1.0], fraction)


def test_a_quantile_of_no_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        quantile([], 0.5)


def test_targets_include_their_limit() -> None:
    assert AtLeast(Measure.RATIO, 1.1).is_met_by(1.1)
    assert not AtLeast(Measure.RATIO, 1.1).is_met_by(1.09)
    assert AtMost(Measure.CPU_RATIO, 0.9).is_met_by(0.9)
    assert not AtMost(Measure.CPU_RATIO, 0.9).is_met_by(0.91)
