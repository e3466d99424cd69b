"""Where requests wait that cannot be answered yet.

A parked request costs its own small object and nothing else: no task, no timer of its own, no work until one of
the partitions it watches grows or its time is up. Deadlines are kept in buckets of ten milliseconds with one
timer for the earliest bucket; a partition keeps its watchers in a dict, so that joining and leaving are O(1).

Watchers that a partition wakes are looked at once per turn of the event loop, however many appends the turn
brought.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

BUCKET_SECONDS = 0.01
WAIT_SECONDS_MAX = 24 * 3600.0

Watchers = dict["Parked", None]


logger = logging.getLogger("barnabas.purgatory")


class Parked:
    """A waiting request. Subclasses say what it waits for and how it is answered."""

    __slots__ = ("bucket", "is_woken", "watched")

    operation: ClassVar[str] = "Other"
    """What Kafka calls operations of this kind that are delayed."""

    def __init__(self) -> None:
        self.bucket = -1
        self.is_woken = False
        self.watched: Iterable[Watchers] = ()

    def is_ready(self) -> bool:
        """Whether what the request waits for has come. Called after a watched partition changed."""
        raise NotImplementedError

    def complete(self) -> None:
        """Answers the request: ready, or out of time. Called exactly once, unless it was cancelled."""
        raise NotImplementedError

    def fail(self) -> None:
        """The request cannot be answered: `complete` or `is_ready` raised."""
        raise NotImplementedError


class Purgatory:
    __slots__ = ("_buckets", "_due", "_loop", "_queued", "_timer", "_timer_bucket", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[Parked, None]] = {}
        self._due: list[int] = []
        self._queued: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_bucket = -1
        self._woken: list[Parked] = []

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def waiting(self) -> list[Parked]:
        """Everything that waits. Another thread may ask: what comes and goes meanwhile is there or not."""
        return [request for bucket in list(self._buckets.values()) for request in list(bucket)]

    def park(self, request: Parked, wait_ms: int, watched: Iterable[Watchers]) -> None:
        """Holds `request` until a watched partition makes it ready or `wait_ms` have passed."""
        seconds = min(wait_ms / 1000, WAIT_SECONDS_MAX)
        bucket = int((self._loop.time() + seconds) / BUCKET_SECONDS) + 1
        request.bucket = bucket
        waiting = self._buckets.get(bucket)
        if waiting is None:
            waiting = self._buckets[bucket] = {}
            if bucket not in self._queued:
                self._queued.add(bucket)
                heapq.heappush(self._due, bucket)
            if self._timer is None or bucket < self._timer_bucket:
                self._set_timer()
        waiting[request] = None
        request.watched = watched
        for watchers in watched:
            watchers[request] = None

    def cancel(self, request: Parked) -> None:
        """Forgets a request whose client is gone. Harmless on one that does not wait."""
        if request.bucket >= 0:
            self._forget(request)

    def wake(self, watchers: Watchers) -> None:
        """A partition changed: its watchers are looked at in this turn of the loop."""
        if not self._woken:
            self._loop.call_soon(self._look_at_woken)
        for request in watchers:
            if not request.is_woken:
                request.is_woken = True
                self._woken.append(request)

    def complete_all(self) -> None:
        """Answers everything that waits, as the node stops."""
        for waiting in list(self._buckets.values()):
            for request in list(waiting):
                self._complete(request)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at_woken(self) -> None:
        woken, self._woken = self._woken, []
        for request in woken:
            request.is_woken = False
            if request.bucket >= 0:
                self._complete_if_ready(request)

    def _complete_if_ready(self, request: Parked) -> None:
        try:
            if not request.is_ready():
                return
        except Exception:
            logger.exception("checking a waiting request failed")
            self._forget(request)
            request.fail()
            return
        self._complete(request)

    def _complete(self, request: Parked) -> None:
        self._forget(request)
        self._answer(request)

    def _answer(self, request: Parked) -> None:
        """What goes wrong with one request concerns its client only."""
        try:
            request.complete()
        except Exception:
            logger.exception("answering a waiting request failed")
            request.fail()

    def _forget(self, request: Parked) -> None:
        waiting = self._buckets.get(request.bucket)
        if waiting is not None:
            waiting.pop(request, None)
            if not waiting:
                del self._buckets[request.bucket]
        self._leave(request)

    def _leave(self, request: Parked) -> None:
        request.bucket = -1
        for watchers in request.watched:
            watchers.pop(request, None)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            self._timer_bucket = self._due[0]
            self._timer = self._loop.call_at(self._timer_bucket * BUCKET_SECONDS, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._due and self._due[0] * BUCKET_SECONDS <= now:
            bucket = heapq.heappop(self._due)
            self._queued.discard(bucket)
            for request in self._buckets.pop(bucket, ()):
                # Answering one may have ended its connection, and with it others of this bucket.
                if request.bucket >= 0:
                    self._leave(request)
                    self._answer(request)
        self._set_timer()
