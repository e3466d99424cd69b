"""Round-trip times of one-record Produce requests.

Idle: one request at a time on one connection. Under load: requests leave at a fixed rate over several connections
whether or not earlier ones were answered, and a time counts from when the request was due, so that a broker that
stalls is charged for every request that it kept waiting.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import select
import time
from collections import deque
from dataclasses import dataclass

from bench import wire
from bench.loads.meter import Meter
from bench.loads.requests import ANSWER_SECONDS_MAX, RequestsLoad, open_lanes
from bench.stats import quantile

PR_SET_TIMERSLACK = 29
TIMER_SLACK_NS = 1_000


@dataclass(frozen=True, slots=True)
class OpenLoopLoad:
    requests: RequestsLoad
    rate_per_second: float


def run_idle(load: RequestsLoad) -> dict[str, float]:
    times_ms = []
    with open_lanes(dataclasses.replace(load, connections=1)) as lanes:
        (lane,) = lanes.values()
        lane.socket.settimeout(ANSWER_SECONDS_MAX)
        meter = Meter(load.broker_pid, *load.peer_pids)
        while meter.elapsed_seconds() < load.seconds:
            started = time.perf_counter()
            lane.send(1)
            while lane.outstanding:
                lane.receive()
            times_ms.append((time.perf_counter() - started) * 1e3)
        return meter.figures(len(times_ms)) | _quantiles(times_ms)


def run_open_loop(load: OpenLoopLoad) -> dict[str, float]:
    _use_fine_timers()
    times_ms: list[float] = []
    with open_lanes(load.requests) as lanes:
        due_times: dict[int, deque[float]] = {fd: deque() for fd in lanes}
        in_turn = itertools.cycle(lanes.items())
        requests_total = int(load.requests.seconds * load.rate_per_second)
        meter = Meter(load.requests.broker_pid, *load.requests.peer_pids)
        first_due = time.perf_counter()
        sent = 0
        while len(times_ms) < requests_total:
            while sent < requests_total and (due := first_due + sent / load.rate_per_second) <= time.perf_counter():
                fd, lane = next(in_turn)
                lane.send(1)
                due_times[fd].append(due)
                sent += 1
            is_all_sent = sent == requests_total
            wait_seconds = ANSWER_SECONDS_MAX if is_all_sent else max(0.0, due - time.perf_counter())
            # select waits by the microsecond; epoll by the millisecond, many times the interval.
            readable, _, _ = select.select(lanes, (), (), wait_seconds)
            if not readable and is_all_sent:
                raise wire.WireError(f"no answer for {ANSWER_SECONDS_MAX:.0f} s")
            now = time.perf_counter()
            for fd in readable:
                waiting = due_times[fd]
                times_ms.extend((now - waiting.popleft()) * 1e3 for _ in range(lanes[fd].receive()))
        return meter.figures(requests_total) | _quantiles(times_ms)


def _quantiles(times_ms: list[float]) -> dict[str, float]:
    return {"p50_ms": quantile(times_ms, 0.50), "p99_ms": quantile(times_ms, 0.99)}


def _use_fine_timers() -> None:
    """Wake-ups within a microsecond of the time asked for; Linux would group them into 50."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_TIMERSLACK) failed")
