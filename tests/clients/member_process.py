"""A member of a group in a process of its own, for tests that stop or kill it.

    with MemberProcess(bootstrap, group, topics, options) as member:
        member.poll_until_assigned(2)
        os.kill(member.pid, signal.SIGSTOP)

The process does what it is told line by line on its standard input and answers each line with one of JSON. Between
two orders it does not poll, while librdkafka's thread goes on sending heartbeats. SIGTERM is handled as an
application would: the loop ends, and the consumer is closed.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.clients.adapter import DEADLINE_S, ClientError, MemberOptions
from tests.clients.with_confluent import ConfluentClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from tests.clients.adapter import GroupConsumer, Received, TopicPartition


class MemberProcess:
    """The test's side. At the end of the block the process is killed if it is still there."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], options: MemberOptions) -> None:
        arguments = json.dumps([bootstrap, group, list(topics), dataclasses.asdict(options)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.member_process", arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> MemberProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def poll_until_assigned(self, count: int) -> set[TopicPartition]:
        return {(topic, partition) for topic, partition in self._do("poll_until_assigned", count)}

    def poll_until_received(self, count: int) -> list[tuple[int, int]]:
        """The partition and offset of what came."""
        return [(partition, offset) for partition, offset in self._do("poll_until_received", count)]

    def commit(self, offsets: Mapping[TopicPartition, int]) -> int:
        """Kafka's error code, or librdkafka's own."""
        self.send_commit(offsets)
        return self.result_of_commit()

    def send_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Give the order without waiting, as the process may be stopped."""
        self._order("commit", [[*of, at] for of, at in offsets.items()])

    def result_of_commit(self) -> int:
        return int(self._answer())

    def poll_until_ended(self) -> None:
        """Have it poll until a signal comes, without waiting for that."""
        self._order("poll_until_ended", None)
        assert self._answer() == "polling"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        return self._process.wait(DEADLINE_S)

    def _do(self, order: str, argument: Any) -> Any:
        self._order(order, argument)
        return self._answer()

    def _order(self, order: str, argument: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps([order, argument]), file=self._process.stdin, flush=True)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the member's process has ended"
        return json.loads(line)


class _Ended(Exception):  # noqa: N818 - a signal, no error
    """A signal asks the application to end."""


def _poll(consumer: GroupConsumer, is_enough: Callable[[list[Received]], bool]) -> list[Received]:
    received: list[Received] = []
    deadline = time.monotonic() + DEADLINE_S
    while not is_enough(received):
        assert time.monotonic() < deadline, f"polled for {DEADLINE_S} s"
        received += consumer.poll()
    return received


def _obey(consumer: GroupConsumer, order: str, argument: Any) -> Any:
    if order == "poll_until_assigned":
        _poll(consumer, lambda _: len(consumer.assigned()) == argument and bool(consumer.assignments))
        return sorted(consumer.assigned())
    if order == "poll_until_received":
        received = _poll(consumer, lambda received: len(received) >= argument)
        return [[record.partition, record.offset] for record in received]
    if order == "poll_until_ended":
        print(json.dumps("polling"), flush=True)
        _poll(consumer, lambda _: False)
    try:
        consumer.commit({(topic, partition): offset for topic, partition, offset in argument})
    except ClientError as refused:
        return refused.code
    return 0


def _end(_: int, __: FrameType | None) -> None:
    raise _Ended


def main(arguments: str) -> None:
    bootstrap, group, topics, options = json.loads(arguments)
    signal.signal(signal.SIGTERM, _end)
    consumer = ConfluentClient(bootstrap).group_consumer(group, topics, MemberOptions(**options))
    try:
        for line in sys.stdin:
            order, argument = json.loads(line)
            print(json.dumps(_obey(consumer, order, argument)), flush=True)
    except _Ended:
        pass
    finally:
        consumer.close()


if __name__ == "__main__":
    main(sys.argv[1])
