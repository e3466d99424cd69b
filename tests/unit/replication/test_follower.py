"""What a follower does with its log when the leader's is another."""

from __future__ import annotations

import pytest

from barnabas.replication.follower import EpochEnd, Restart, backoff_ms, restart, truncation_offset


@pytest.mark.parametrize(
    ("leaders", "own", "log_end", "offset"),
    [
        # Both know the epoch: the shorter of the two has what both have.
        (EpochEnd(3, 40), EpochEnd(3, 50), 60, 40),
        (EpochEnd(3, 50), EpochEnd(3, 40), 60, 40),
        (EpochEnd(3, 90), EpochEnd(3, 60), 60, 60),
        # The follower has an older one: it goes back to that one's end and asks again.
        (EpochEnd(3, 40), EpochEnd(2, 20), 60, 20),
        # The follower knows of no epoch so old.
        (EpochEnd(3, 40), EpochEnd(-1, -1), 60, 40),
        (EpochEnd(3, 70), EpochEnd(-1, -1), 60, 60),
    ],
)
def test_where_a_diverging_log_is_cut(leaders: EpochEnd, own: EpochEnd, log_end: int, offset: int) -> None:
    assert truncation_offset(leaders, own, log_end) == offset


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "log_end", "place"),
    [
        (0, 50, 60, Restart(50, is_from_nothing=False)),
        (70, 90, 60, Restart(70, is_from_nothing=True)),
        (0, 90, 60, None),
        (60, 60, 60, None),
    ],
)
def test_how_to_go_on_at_an_offset_that_the_leader_does_not_have(
    leader_start: int, leader_end: int, log_end: int, place: Restart | None
) -> None:
    assert restart(leader_start, leader_end, log_end) == place


def test_pauses_grow_from_little_to_the_setting() -> None:
    assert [backoff_ms(failures, 1000) for failures in (1, 2, 3, 8, 100)] == [10, 20, 40, 1000, 1000]
    assert backoff_ms(1, 5) == 5
