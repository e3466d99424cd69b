"""A node that stood still says so."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from barnabas.node.stall_watch import LATE_S_MAX, LOOK_S, StallWatch

if TYPE_CHECKING:
    import pytest


async def _watch_through(stall_s: float) -> None:
    """An event loop that stands still for a while, under watch, and then goes on for long enough to notice."""
    loop = asyncio.get_running_loop()
    watch = StallWatch(loop, 7)
    watch.start()
    time.sleep(stall_s)  # noqa: ASYNC251 - this is the stall
    await asyncio.sleep(2 * LOOK_S)
    watch.stop()


def test_a_loop_that_stood_still_is_reported_with_the_time(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_watch_through(LATE_S_MAX + LOOK_S + 0.1))
    (line,) = [each.getMessage() for each in caplog.records if "stood still" in each.getMessage()]
    assert line.startswith("node 7 stood still for ")


def test_a_watch_that_is_stopped_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def stop_at_once() -> None:
        watch = StallWatch(asyncio.get_running_loop(), 7)
        watch.start()
        watch.stop()
        time.sleep(LATE_S_MAX + LOOK_S + 0.1)  # noqa: ASYNC251 - nobody looks
        await asyncio.sleep(2 * LOOK_S)

    asyncio.run(stop_at_once())
    assert "stood still" not in caplog.text
