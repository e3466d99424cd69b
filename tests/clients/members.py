"""Members of groups, each polled by a thread of its own, as an application would.

A rebalance needs all members of a group at the same time, so that a test cannot poll one after the other. Everything
that touches the library's consumer happens in its thread; what the test reads is what the thread saw last.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from tests.clients.adapter import DEADLINE_S, MEMBER, Client, GroupConsumer, MemberOptions, Received, TopicPartition
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    T = TypeVar("T")
    Order = tuple[Callable[[GroupConsumer], object], Future[object]]

_WAIT_S = 0.01


class Member:
    """One consumer of a group and its thread. An error ends the polling and is kept in `failure`."""

    def __init__(self, make: Callable[[], GroupConsumer]) -> None:
        self.failure: Exception | None = None
        self.assignments: list[set[TopicPartition]] = []
        """What each rebalance gave, to be added to what the member had where the protocol is cooperative."""
        self.revocations: list[set[TopicPartition]] = []
        """What each rebalance took."""
        self._received: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self._assigned: set[TopicPartition] = set()
        self._orders: queue.Queue[Order] = queue.Queue()
        self._is_polling = threading.Event()
        self._is_polling.set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make,), name="member")
        self._thread.start()

    def assigned(self) -> set[TopicPartition]:
        return self._assigned

    def received(self) -> list[Received]:
        """What has come since this was last asked."""
        return [self._received.get() for _ in range(self._received.qsize())]

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these, or the position of every partition, and wait for the answer."""
        self.do(lambda consumer: consumer.commit(offsets))

    def committed(self, topic: str, partition: int) -> int | None:
        """The group's committed offset, as the coordinator knows it."""
        return self.do(lambda consumer: consumer.committed(topic, partition))

    def do(self, what: Callable[[GroupConsumer], T]) -> T:
        """Have it done between two polls, and wait for the outcome."""
        outcome: Future[object] = Future()
        self._orders.put((what, outcome))
        return outcome.result(DEADLINE_S)  # type: ignore[return-value]

    def stop_polling(self) -> None:
        """The application is busy with something else."""
        self._is_polling.clear()

    def poll_again(self) -> None:
        self._is_polling.set()

    def begin_to_close(self) -> None:
        self._is_over.set()

    def close(self) -> None:
        """Leave the group; a static member only goes away."""
        self.begin_to_close()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "a consumer did not close in time"

    def _run(self, make: Callable[[], GroupConsumer]) -> None:
        consumer = make()
        try:
            while not self._is_over.is_set():
                self._obey(consumer)
                if self.failure is None and self._is_polling.is_set():
                    self._poll(consumer)
                else:
                    self._is_over.wait(_WAIT_S)
        finally:
            consumer.close()

    def _poll(self, consumer: GroupConsumer) -> None:
        try:
            for record in consumer.poll():
                self._received.put(record)
        except Exception as failure:  # the test's thread raises it
            self.failure = failure
        self._assigned = consumer.assigned()
        self.assignments = list(consumer.assignments)
        self.revocations = list(consumer.revocations)

    def _obey(self, consumer: GroupConsumer) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                what, outcome = self._orders.get_nowait()
                try:
                    outcome.set_result(what(consumer))
                except Exception as failure:  # the caller of `do` raises it
                    outcome.set_exception(failure)


class Members:
    """The members of one test; those that are still there at its end are closed, all at once."""

    def __init__(self) -> None:
        self._joined: list[Member] = []

    def join(self, client: Client, group: str, topics: Sequence[str], options: MemberOptions = MEMBER) -> Member:
        member = Member(lambda: client.group_consumer(group, topics, options))
        self._joined.append(member)
        return member

    def close(self) -> None:
        for member in self._joined:
            member.begin_to_close()
        for member in self._joined:
            member.close()


def settle(
    members: Sequence[Member], condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S
) -> None:
    """Return when the condition holds; raise what went wrong for one of the members before."""

    def holds() -> object:
        for member in members:
            if member.failure is not None:
                raise member.failure
        return condition()

    try:
        wait_until(holds, what, deadline_s)
    except AssertionError as late:
        raise AssertionError(f"{late}; they have {[sorted(member.assigned()) for member in members]}") from late


def receive(members: Sequence[Member], count: int) -> list[Received]:
    """Wait until so many records have come, and require that no more came."""
    received: list[Received] = []

    def is_enough() -> bool:
        for member in members:
            received.extend(member.received())
        return len(received) >= count

    settle(members, is_enough, f"{count} records came")
    assert len(received) == count, f"{sorted((record.topic, record.partition, record.offset) for record in received)}"
    return received


def owned(members: Sequence[Member]) -> list[int]:
    """How many partitions each member has, the most first."""
    return sorted((len(member.assigned()) for member in members), reverse=True)


def is_shared(members: Sequence[Member], topic: str, partitions: int) -> bool:
    """Whether every member has been assigned its share, be it nothing, and each partition has one owner."""
    assigned = [partition for member in members for partition in member.assigned()]
    everything = [(topic, partition) for partition in range(partitions)]
    return all(member.assignments for member in members) and sorted(assigned) == everything
