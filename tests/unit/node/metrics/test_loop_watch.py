"""What a watched event loop is said to have done."""

from __future__ import annotations

import asyncio
import time

from barnabas.node.metrics.loop_watch import LOOK_S, SLICE_S, LoopWatch

HELD_S = 0.2


def watched(work: float) -> LoopWatch:
    """A loop that was held for so long by something that computes, and then watched until a slice was over."""

    async def run() -> LoopWatch:
        watch = LoopWatch(asyncio.get_running_loop())
        watch.start()
        await asyncio.sleep(LOOK_S / 2)
        until = time.thread_time() + work
        while time.thread_time() < until:
            pass
        await asyncio.sleep(SLICE_S)  # a slice ends with the next look after that
        watch.stop()
        return watch

    return asyncio.run(run())


def test_what_holds_a_loop_is_its_longest_turn_and_keeps_others_waiting() -> None:
    watch = watched(HELD_S)
    assert watch.longest_s >= HELD_S - LOOK_S
    assert watch.longest_s == watch.longest_s, "asking changes nothing"
    assert watch.waits.quantiles_ns((0.999,))[0] > (HELD_S - LOOK_S) * 1e9 * 0.8
    assert watch.idle_share < 1.0


def test_a_loop_that_was_never_started_is_idle() -> None:
    loop = asyncio.new_event_loop()
    watch = LoopWatch(loop)
    assert (watch.idle_share, watch.longest_s) == (1.0, 0.0)
    loop.close()
