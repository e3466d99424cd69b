"""A node that was stalled says so. A clock that was set is named in the log, with how far and in which direction; one
that is steered is not."""

from __future__ import annotations

import asyncio
import time

import pytest

from barnabas.node.time_watch import LATE_S_MAX, LOOK_S, TimeWatch
from barnabas.ports import SystemClock
from barnabas.testing.clock import SimulatedClock
from barnabas.testing.event_loop import Scheduler


async def _watch_through(stall_s: float) -> None:
    """An event loop that stands still for a while, under watch, and then goes on for long enough to notice."""
    watch = TimeWatch(asyncio.get_running_loop(), SystemClock(), 7)
    watch.start()
    time.sleep(stall_s)  # noqa: ASYNC251 - this is the stall
    await asyncio.sleep(2 * LOOK_S)
    watch.stop()


def test_a_loop_that_stood_still_is_reported_with_the_time(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_watch_through(LATE_S_MAX + LOOK_S + 0.1))
    (line,) = caplog.messages
    assert line.startswith("node 7 was stalled for ")


def test_a_watch_that_is_stopped_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def stop_at_once() -> None:
        watch = TimeWatch(asyncio.get_running_loop(), SystemClock(), 7)
        watch.start()
        watch.stop()
        time.sleep(LATE_S_MAX + LOOK_S + 0.1)  # noqa: ASYNC251 - nobody looks
        await asyncio.sleep(2 * LOOK_S)

    asyncio.run(stop_at_once())
    assert caplog.messages == []


class SimulatedWatch:
    """A watch on a machine whose clock can be set."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.clock = SimulatedClock(self.scheduler)
        self.loop = self.scheduler.new_loop("node")
        self.watch = TimeWatch(self.loop, self.clock, 7)

    def go_on(self) -> None:
        self.scheduler.run_for(3 * LOOK_S)


@pytest.mark.parametrize(
    ("set_by_ms", "reported"),
    [
        (90_000, "was set forward, or the machine slept, by 90.0 s"),
        (-7_200_000, "was set back by 7200.0 s"),
        (3, None),
        (-999, None),
    ],
)
def test_a_jump_is_reported_once_and_the_steering_of_a_time_server_never(
    set_by_ms: int, reported: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    machine = SimulatedWatch()
    machine.watch.start()
    machine.go_on()
    assert caplog.messages == []
    machine.clock.jump_ms(set_by_ms)
    machine.go_on()
    machine.go_on()
    if reported is None:
        assert caplog.messages == []
    else:
        (line,) = caplog.messages
        assert reported in line


def test_a_clock_that_was_set_before_the_first_look_is_reported_by_it(caplog: pytest.LogCaptureFixture) -> None:
    machine = SimulatedWatch()
    machine.clock.jump_ms(-60_000)
    machine.watch.start()
    machine.go_on()
    (line,) = caplog.messages
    assert "was set back by 60.0 s" in line
