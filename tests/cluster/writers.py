"""Producers and consumers that go on while nodes of the cluster are ended, each in a thread of its own, by any library.

What a writer was told is acknowledged, and what a reader got, are compared at the end: nothing may be missing, come
twice or be out of order.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from tests.clients.adapter import DEADLINE_S, Message, ProducerOptions, consume
from tests.cluster.clusters import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.clients.adapter import Client

IDEMPOTENT = ProducerOptions(idempotent=True, request_timeout_ms=3_000, delivery_timeout_ms=60_000)
"""A node that says nothing is not waited for long, and a record is sent again until a leader has it."""
AT_ONCE = 5
PAUSE_S = 0.01
TURN_S = 0.1


class Writer:
    """Numbers its records, and writes a few to each partition in turn, until it is told to stop."""

    def __init__(self, client: Client, topic: str, partitions: int, options: ProducerOptions = IDEMPOTENT) -> None:
        self.acknowledged: list[list[int]] = [[] for _ in range(partitions)]
        self.failures: list[Exception] = []
        self._client = client
        self._topic = topic
        self._options = options
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"writer by {client.name}")
        self._thread.start()

    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _write(self) -> None:
        try:
            with contextlib.closing(self._client.producer(self._options)) as producer:
                first = 0
                while not self._is_over.wait(PAUSE_S):
                    partition = first // AT_ONCE % len(self.acknowledged)
                    numbers = range(first, first + AT_ONCE)
                    producer.send(self._topic, [Message(b"%d" % number) for number in numbers], partition)
                    self.acknowledged[partition] += numbers
                    first += AT_ONCE
        except Exception as failure:  # the test's thread looks at it
            self.failures.append(failure)


class Reader:
    """Reads one partition from its beginning, until it is told to stop."""

    def __init__(self, client: Client, topic: str, partition: int) -> None:
        self.numbers: list[int] = []
        self.failures: list[Exception] = []
        self._client = client
        self._topic = topic
        self._partition = partition
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"reader by {client.name}")
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _read(self) -> None:
        try:
            with self._client.consumer(self._topic, "beginning", partition=self._partition) as consumer:
                while not self._is_over.is_set():
                    self.numbers += [int(record.value or b"") for record in consumer.receive(1_000, TURN_S)]
        except Exception as failure:  # the test's thread looks at it
            self.failures.append(failure)


@contextlib.contextmanager
def writing(clients: Sequence[Client], topics: Sequence[str], partitions: int) -> Iterator[list[Writer]]:
    """One writer for each client and its topic, for as long as the block lasts; the block begins when all of them have
    written to every partition."""
    writers = [Writer(client, topic, partitions) for client, topic in zip(clients, topics, strict=True)]
    try:
        wait_until(
            lambda: any(writer.failures for writer in writers) or all(all(writer.acknowledged) for writer in writers),
            "all writers write",
            DEADLINE_S,
        )
        yield writers
    finally:
        for writer in writers:
            writer.stop()
    check(writers)


@contextlib.contextmanager
def reading(clients: Sequence[Client], topics: Sequence[str], partition: int) -> Iterator[list[Reader]]:
    """One reader for each client and its topic, for as long as the block lasts."""
    readers = [Reader(client, topic, partition) for client, topic in zip(clients, topics, strict=True)]
    try:
        yield readers
    finally:
        for reader in readers:
            reader.stop()
    check(readers)


def check(threads: Sequence[Writer | Reader]) -> None:
    """Raises what a client saw."""
    for thread in threads:
        for failure in thread.failures:
            raise failure


def wait_until_on(writers: Sequence[Writer], more: int = 60) -> None:
    """Returns when each of the writers has been acknowledged some more records in every partition."""
    goals = [[len(numbers) + more // len(writer.acknowledged) for numbers in writer.acknowledged] for writer in writers]

    def are_on() -> bool:
        check(writers)
        return all(
            len(numbers) >= goal
            for writer, wanted in zip(writers, goals, strict=True)
            for numbers, goal in zip(writer.acknowledged, wanted, strict=True)
        )

    wait_until(are_on, "all writers go on", 2 * DEADLINE_S)


def wait_until_read(readers: Sequence[Reader], writers: Sequence[Writer], partition: int) -> None:
    """Returns when the readers have as many records as were acknowledged."""

    def have_all() -> bool:
        check(readers)
        return all(
            len(reader.numbers) >= len(writer.acknowledged[partition])
            for reader, writer in zip(readers, writers, strict=True)
        )

    wait_until(have_all, "all readers have read everything", DEADLINE_S)


def require_each_once(clients: Sequence[Client], topics: Sequence[str], writers: Sequence[Writer]) -> None:
    """Every library finds what it was told is acknowledged in its topic, and nothing else."""
    for client, topic, writer in zip(clients, topics, writers, strict=True):
        for partition, numbers in enumerate(writer.acknowledged):
            assert client.offset_range(topic, partition) == (0, len(numbers))
            found = [int(record.value or b"") for record in consume(client, topic, len(numbers), partition=partition)]
            assert found == numbers, f"{topic}-{partition}"
