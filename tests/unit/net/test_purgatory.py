"""Parked requests wake when what they wait for comes, or when their time is up; and not twice."""

from __future__ import annotations

import asyncio

from barnabas.net.purgatory import Parked, Purgatory, Watchers


class Waiting(Parked):
    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self.completed = asyncio.get_running_loop().create_future()

    def is_ready(self) -> bool:
        return self.ready

    def complete(self) -> None:
        self.completed.set_result(asyncio.get_running_loop().time())

    def fail(self) -> None:
        self.completed.cancel()


class Failing(Waiting):
    def complete(self) -> None:
        raise OSError("the disk is on fire")


def test_a_request_is_answered_when_its_time_is_up_and_not_before() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        purgatory = Purgatory(loop)
        request = Waiting()
        parked_at = loop.time()
        purgatory.park(request, 30, [])
        assert await asyncio.wait_for(request.completed, 5) - parked_at >= 0.030
        assert len(purgatory) == 0

    asyncio.run(scenario())


def test_an_earlier_deadline_is_met_though_a_later_one_was_parked_first() -> None:
    async def scenario() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        late, early = Waiting(), Waiting()
        purgatory.park(late, 60_000, [])
        purgatory.park(early, 10, [])
        await asyncio.wait_for(early.completed, 5)
        assert not late.completed.done()
        purgatory.close()

    asyncio.run(scenario())


def test_a_partition_that_grows_wakes_its_watchers_and_only_the_ready_ones_are_answered() -> None:
    async def scenario() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        watchers: Watchers = {}
        ready, not_ready = Waiting(), Waiting()
        ready.ready = True
        purgatory.park(ready, 60_000, [watchers])
        purgatory.park(not_ready, 60_000, [watchers])
        purgatory.wake(watchers)
        await asyncio.wait_for(ready.completed, 5)
        assert not not_ready.completed.done()
        assert list(watchers) == [not_ready]
        purgatory.close()

    asyncio.run(scenario())


def test_a_request_that_watches_two_partitions_is_answered_once() -> None:
    async def scenario() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        first: Watchers = {}
        second: Watchers = {}
        request = Waiting()
        request.ready = True
        purgatory.park(request, 60_000, [first, second])
        purgatory.wake(first)
        purgatory.wake(second)
        await asyncio.wait_for(request.completed, 5)
        await asyncio.sleep(0)
        assert not first
        assert not second
        purgatory.close()

    asyncio.run(scenario())


def test_a_cancelled_request_is_never_answered_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        watchers: Watchers = {}
        gone, next_one = Waiting(), Waiting()
        gone.ready = True
        purgatory.park(gone, 5, [watchers])
        purgatory.wake(watchers)
        purgatory.cancel(gone)
        purgatory.park(next_one, 20, [watchers])
        await asyncio.wait_for(next_one.completed, 5)
        assert not gone.completed.done()
        assert len(purgatory) == 0

    asyncio.run(scenario())


def test_all_are_answered_when_the_node_stops() -> None:
    async def scenario() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        waiting = [Waiting() for _ in range(3)]
        for number, request in enumerate(waiting):
            purgatory.park(request, 60_000 * (number + 1), [])
        purgatory.complete_all()
        purgatory.close()
        assert all(request.completed.done() for request in waiting)

    asyncio.run(scenario())


def test_a_request_that_cannot_be_answered_does_not_keep_the_others_waiting() -> None:
    async def scenario() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        watchers: Watchers = {}
        bad, good, late_bad, late_good = Failing(), Waiting(), Failing(), Waiting()
        bad.ready = good.ready = True
        purgatory.park(bad, 60_000, [watchers])
        purgatory.park(good, 60_000, [watchers])
        purgatory.park(late_bad, 5, [])
        purgatory.park(late_good, 5, [])
        purgatory.wake(watchers)
        await asyncio.wait_for(asyncio.gather(good.completed, late_good.completed), 5)
        assert bad.completed.cancelled()
        assert late_bad.completed.cancelled()
        purgatory.close()

    asyncio.run(scenario())


def test_cancelled_requests_with_far_deadlines_leave_no_buckets_behind() -> None:
    async def scenario() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        for wait_ms in range(1, 200):
            request = Waiting()
            purgatory.park(request, 10_000_000 * wait_ms, [])
            purgatory.cancel(request)
        assert not purgatory._buckets
        purgatory.close()

    asyncio.run(scenario())
