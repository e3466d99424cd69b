"""What is said of the probes of `barnabas watch`."""

from __future__ import annotations

import pytest

from barnabas.cli.watch.outcome import Objective, Outcome, Result, percent


def outcome_of(*results: Result, slo: float = 75.0) -> Outcome:
    outcome = Outcome(Objective(slo, 100))
    for result in results:
        outcome.add(result)
    return outcome


GOOD, SLOW = Result(0, 1.0, 2.0), Result(0, 50.0, 101.0)
FAILED, NOT_READ = Result(0, None, None, "not acknowledged"), Result(0, 3.0, None, "not read back")


def test_who_is_served_late_is_served_but_not_as_promised() -> None:
    outcome = outcome_of(GOOD, GOOD, GOOD, SLOW)
    assert (outcome.availability_percent, outcome.reached_percent, outcome.is_met) == (100, 75, True)
    assert outcome_of(GOOD, SLOW).is_met is False


def test_outages_are_probes_that_fail_in_a_row() -> None:
    outcome = outcome_of(FAILED, GOOD, FAILED, NOT_READ, FAILED, GOOD)
    assert (outcome.probes, outcome.failed, outcome.longest_outage) == (6, 4, 3)


def test_lines_say_what_was_found_and_what_was_promised() -> None:
    outcome = outcome_of(GOOD, GOOD, NOT_READ)
    assert outcome.figures_line() == (
        "3 probes, 1 failed, available 66.666 %; acknowledged p50 1.0 p95 3.0 p99 3.0 ms; "
        "read p50 2.0 p95 2.0 p99 2.0 ms"
    )
    assert outcome.objective_line() == "SLO 75 % read back within 100 ms: MISSED, 66.666 %"
    assert outcome_of(FAILED).figures_line() == (
        "1 probes, 1 failed, available 0.000 %; acknowledged never; read never"
    )


def test_an_object_has_the_same() -> None:
    found = outcome_of(GOOD).as_json()
    assert found["latency"] == {
        "acknowledged": {"p50_ms": 1.0, "p95_ms": 1.0, "p99_ms": 1.0},
        "read": {"p50_ms": 2.0, "p95_ms": 2.0, "p99_ms": 2.0},
    }
    assert found["slo"] == {"percent": 75.0, "within_ms": 100, "reached_percent": 100.0, "met": True}


@pytest.mark.parametrize(("value", "text"), [(99.9999, "99.999 %"), (100.0, "100.000 %")])
def test_a_share_is_not_rounded_up(value: float, text: str) -> None:
    assert percent(value) == text
