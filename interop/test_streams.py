"""A Kafka Streams application that counts words exactly once, killed half way."""

from __future__ import annotations

import collections
import contextlib
import random
import subprocess
import threading
from typing import TYPE_CHECKING

import confluent_kafka
from tests.clients.adapter import Message
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.peers import Peer

    from interop.toolchains import Launch

PARTITIONS = 2
WORDS = ("zeitgeist", "kafka", "exactly", "once", "stream", "table")
DEADLINE_S = 90.0


class Application:
    """A process of the application, and the states that it told of."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._states: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def await_running(self) -> None:
        wait_until(lambda: "RUNNING" in self._states, "the application runs", DEADLINE_S, 0.1)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self._states.extend(line.strip() for line in lines)


@contextlib.contextmanager
def application(launch: Launch, *arguments: str, log_file: Path) -> Iterator[Application]:
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [*launch.command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
        )
    started = Application(process)
    try:
        yield started
    finally:
        started.kill()


class Counts:
    """Every count that the application committed, in the order of its output."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
        )
        starts = [confluent_kafka.TopicPartition(topic, i, confluent_kafka.OFFSET_BEGINNING) for i in range(PARTITIONS)]
        self._consumer.assign(starts)
        self.of: dict[str, list[int]] = collections.defaultdict(list)

    def read_some(self) -> None:
        for message in self._consumer.consume(500, 0.2):
            word, count = message.key(), message.value()
            assert word is not None, message.error()
            assert count is not None, message.error()
            self.of[word.decode()].append(int.from_bytes(count, "big"))

    @property
    def total(self) -> int:
        """How many words were counted so far, if each was counted once."""
        return sum(len(counts) for counts in self.of.values())

    def await_total(self, total: int) -> None:
        def is_reached() -> bool:
            self.read_some()
            return self.total >= total

        wait_until(is_reached, f"{total} counts are committed, {self.total} are", DEADLINE_S)

    def close(self) -> None:
        self._consumer.close()


def lines_of(count: int, seed: int) -> list[list[str]]:
    chance = random.Random(seed)
    return [chance.choices(WORDS, k=5) for _ in range(count)]


def write(client: ConfluentClient, topic: str, lines: Sequence[Sequence[str]]) -> None:
    for partition in range(PARTITIONS):
        client.produce(topic, [Message(" ".join(line).encode()) for line in lines[partition::2]], partition=partition)


def test_words_are_counted_exactly_once_by_an_application_that_is_killed(
    peer: Peer, word_count: Launch, topic: str, tmp_path: Path
) -> None:
    client = ConfluentClient(peer.bootstrap)
    output = f"{topic}-counts"
    for each in (topic, output):
        client.create_topic(each, partitions=PARTITIONS)
    before, after = lines_of(1_000, seed=1), lines_of(500, seed=2)
    arguments = (peer.bootstrap, f"{topic}-application", topic, output, str(tmp_path / "state"))
    with contextlib.closing(Counts(peer.bootstrap, output)) as counts:
        with application(word_count, *arguments, log_file=tmp_path / "first.log") as first:
            first.await_running()
            write(client, topic, before)
            counts.await_total(1_000)
            first.kill()
        with application(word_count, *arguments, log_file=tmp_path / "second.log") as second:
            second.await_running()
            write(client, topic, after)
            counts.await_total(5 * (len(before) + len(after)))
        counts.read_some()
    spoken = collections.Counter(word for line in before + after for word in line)
    assert counts.of == {word: list(range(1, times + 1)) for word, times in spoken.items()}
