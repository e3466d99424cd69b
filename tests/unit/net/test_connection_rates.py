"""Rates are measured over windows, and what is known of addresses is limited."""

from __future__ import annotations

import pytest

from barnabas.net import connection_rates
from barnabas.net.connection_rates import ConnectionRates
from barnabas.net.windowed_rate import QuotaWindows, WindowedRate


def test_what_exceeds_a_rate_waits_until_it_would_not_but_not_longer_than_a_window() -> None:
    rate = WindowedRate(QuotaWindows(number=2, seconds=1), limit=10)
    rate.record(10, 5.0)
    assert rate.excess_s(5.0) == 0
    rate.record(5, 5.0)
    assert rate.excess_s(5.0) == pytest.approx(0.5)
    rate.record(100, 5.0)
    assert rate.excess_s(5.0) == 1
    rate.record(-105, 5.0)
    assert rate.excess_s(5.0) == 0, "what was taken back does not count"


def test_a_rate_of_nothing_has_everything_wait() -> None:
    rate = WindowedRate(limit=0)
    assert rate.excess_s(0.0) == 0
    rate.record(1, 0.0)
    assert rate.excess_s(0.0) == 1


def test_an_address_has_its_own_limit_or_that_of_all() -> None:
    rates = ConnectionRates()
    assert rates.of_address("10.0.0.1", 0.0) is None
    rates.by_address_max, rates.default_max = {"10.0.0.1": 3}, 7
    own, other = rates.of_address("10.0.0.1", 0.0), rates.of_address("10.0.0.2", 0.0)
    assert own is not None
    assert other is not None
    assert (own.limit, other.limit) == (3, 7)
    assert rates.of_address("10.0.0.1", 1.0) is own


def test_addresses_that_are_silent_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "ADDRESSES_MAX", 2)
    rates = ConnectionRates()
    rates.default_max = 7
    silent, busy = rates.of_address("a", 0.0), rates.of_address("b", 0.0)
    assert silent is not None
    assert busy is not None
    silent.record(1, 0.0)
    busy.record(1, 100.0)
    assert rates.of_address("c", 100.0) is not None
    assert rates.of_address("b", 100.0) is busy
    assert rates.of_address("a", 100.0) is not silent
