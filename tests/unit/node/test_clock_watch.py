"""A clock that was set is named in the log, with how far and in which direction; one that is steered is not."""

from __future__ import annotations

import pytest

from barnabas.node import clock_watch
from barnabas.node.clock_watch import ClockWatch, watch_clock
from barnabas.testing.clock import ManualClock, SimulatedClock
from barnabas.testing.event_loop import Scheduler


@pytest.mark.parametrize(("set_by_ms", "seen_ms"), [(3_600_000, 3_600_000), (-60_000, -60_000), (3, 0), (-999, 0)])
def test_a_jump_is_seen_once_and_the_steering_of_a_time_server_never(set_by_ms: int, seen_ms: int) -> None:
    clock = ManualClock()
    watch = ClockWatch(clock)
    clock.advance_ms(5_000)
    assert watch.look() == 0
    clock.set_wall_ms(clock.now_ms() + set_by_ms)
    clock.advance_ms(5_000)
    assert watch.look() == seen_ms
    clock.advance_ms(5_000)
    assert watch.look() == 0


def test_the_log_says_how_far_the_clock_was_set(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler()
    clock, loop = SimulatedClock(scheduler), scheduler.new_loop("node")
    watching = loop.create_task(watch_clock(clock))
    scheduler.run_for(clock_watch.LOOK_S * 3)
    assert caplog.messages == []
    clock.jump_ms(-7_200_000)
    scheduler.run_for(clock_watch.LOOK_S * 3)
    clock.jump_ms(90_000)
    scheduler.run_for(clock_watch.LOOK_S * 3)
    back, forward = caplog.messages
    assert "was set back by 7200.0 s" in back
    assert "was set forward, or the machine slept, by 90.0 s" in forward
    assert not watching.done()
    loop.kill()
