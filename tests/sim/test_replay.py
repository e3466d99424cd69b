"""A run depends on its seed alone."""

from __future__ import annotations

from tests.sim.commands import outcomes

SHORT = ("--seconds", "20", "--records", "100", "--trace")


def test_the_same_seed_gives_the_same_trace_whatever_the_order_of_hashes() -> None:
    (one,) = outcomes("--seed", "7", *SHORT, hash_seed="1")
    (other,) = outcomes("--seed", "7", *SHORT, hash_seed="2")
    assert len(one["trace"]) > 100
    assert one["trace"] == other["trace"]
    assert one["events"] == other["events"]


def test_what_ran_before_makes_no_difference() -> None:
    (alone,) = outcomes("--seed", "9", *SHORT)
    _, after_another = outcomes("--seed", "8", "--seeds", "2", *SHORT)
    assert after_another["trace"] == alone["trace"]


def test_that_it_is_watched_makes_no_difference() -> None:
    (watched,) = outcomes("--seed", "10", *SHORT)
    (unwatched,) = outcomes("--seed", "10", *SHORT[:-1])
    assert watched["events"] == unwatched["events"]
    assert watched["acknowledged_records"] == unwatched["acknowledged_records"]


def test_another_seed_is_another_run() -> None:
    one, other = outcomes("--seed", "11", "--seeds", "2", *SHORT)
    assert one["trace"] != other["trace"]


def test_a_trace_tells_of_faults_elections_leaders_and_clients() -> None:
    (run,) = outcomes("--seed", "7", *SHORT)
    text = "\n".join(run["trace"])
    for part in ("  FAULT  ", "quorum: leader in epoch", "  METADATA  ", " ISR ", "is ready", "producer-0"):
        assert part in text, part
