"""Replication of marked partitions keeps to a rate, over a number of windows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from barnabas.replication.throttle import QuotaWindows, ReplicationThrottle, is_marked

if TYPE_CHECKING:
    from barnabas.replication.hosted import HostedPartition


def test_without_a_limit_nothing_is_too_much() -> None:
    throttle = ReplicationThrottle()
    throttle.record(1 << 40, 1.0)
    assert not throttle.is_exceeded(1.0)


def test_the_rate_is_measured_over_the_windows_and_old_ones_are_forgotten() -> None:
    throttle = ReplicationThrottle(QuotaWindows(number=11, seconds=1))
    throttle.limit_bytes = 100
    throttle.record(1000, 50.5)
    assert not throttle.is_exceeded(50.5), "1000 bytes in ten seconds are 100 a second"
    throttle.record(1, 50.6)
    assert throttle.is_exceeded(50.6)
    assert throttle.is_exceeded(59.9)
    assert not throttle.is_exceeded(61.0)


def test_number_and_length_of_the_windows_are_settings() -> None:
    throttle = ReplicationThrottle(QuotaWindows(number=3, seconds=10))
    throttle.limit_bytes = 100
    throttle.record(2000, 55.0)
    assert not throttle.is_exceeded(55.0), "2000 bytes in twenty seconds are 100 a second"
    throttle.record(1, 55.0)
    assert throttle.is_exceeded(69.9)
    assert not throttle.is_exceeded(80.0)


def test_a_single_window_may_have_just_begun() -> None:
    throttle = ReplicationThrottle(QuotaWindows(number=1, seconds=1))
    throttle.limit_bytes = 100
    throttle.record(1, 50.0)
    assert throttle.is_exceeded(50.0)
    assert not throttle.is_exceeded(50.5)


def test_a_limit_of_nothing_lets_nothing_through_after_the_first() -> None:
    throttle = ReplicationThrottle()
    throttle.limit_bytes = 0
    assert not throttle.is_exceeded(1.0)
    throttle.record(1, 1.0)
    assert throttle.is_exceeded(1.0)


@pytest.mark.parametrize(
    ("marks", "is_throttled"),
    [((), False), (("*",), True), (("3:1", "4:2"), True), (("4:1",), False), (("3:2",), False)],
)
def test_who_is_marked(marks: tuple[str, ...], is_throttled: bool) -> None:
    assert is_marked(cast("HostedPartition", SimpleNamespace(index=3)), marks, 1) is is_throttled
