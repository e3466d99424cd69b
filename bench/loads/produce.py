"""Produce with librdkafka as fast as client and broker can together.

There are as many producers as the machine has processors, each in a thread of its own. With fewer, the broker idles
most of the time behind the client, and all brokers look the same; so, a broker that leaves more of the machine to its
clients lets them send more. A chunk goes to one partition and the next to the next: with few partitions chunks fill
up to librdkafka's usual batches of 1 MB, with a thousand each becomes a batch, and so a request, of its own.
"""

from __future__ import annotations

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from barnabas.cli.kafka.loads.librdkafka import Chunk, Producer
from bench.loads import payload
from bench.loads.meter import Meter
from bench.topics import Topic, TopicError

CHUNK_RECORDS = 500
DISTINCT_BYTES = 2 * 1024 * 1024
"""Twice the largest batch: a codec finds no record of a batch again in it."""
QUEUE_RECORDS_MAX = 200_000
QUEUE_KBYTES_MAX = 200_000
FLUSH_SECONDS_MAX = 60.0
REPLICATION_SECONDS_MAX = 60.0
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """Ends when `seconds` have passed or `records_max` have been handed over, then waits for every acknowledgement.

    Figures are of what came after a first chunk to every partition; `records_total` counts that too.
    """

    bootstrap: str
    broker_pid: int
    topic: str
    partitions: int
    record_bytes: int
    acks: str
    codec: str
    seconds: float
    records_max: int
    peer_pids: tuple[int, ...] = ()
    """Further nodes of the broker's cluster, whose CPU counts too: until every replica has all that was written."""


def run(load: ProduceLoad) -> dict[str, float]:
    chunks = _chunks(load.record_bytes)
    count = os.cpu_count() or 1
    senders = [_Sender(load, chunks, number, count) for number in range(count)]
    with ThreadPoolExecutor(count) as pool:
        opening = sum(pool.map(_Sender.open, senders))
        meter = Meter(load.broker_pid, *load.peer_pids)
        sent = sum(pool.map(lambda sender: sender.send(meter), senders))
        figures = meter.figures(sent)
    if load.peer_pids:
        _await_replicated(load, sent + opening)
        figures["cpu_per_million"] = meter.cpu_per_million(sent)
    for sender in senders:
        sender.producer.close()
    return figures | {"records_total": sent + opening}


class _Sender:
    """One of some producers, with its own order of partitions and chunks."""

    def __init__(self, load: ProduceLoad, chunks: list[Chunk], number: int, count: int) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": load.bootstrap,
                "acks": load.acks,
                "compression.type": load.codec,
                "queue.buffering.max.messages": str(QUEUE_RECORDS_MAX),
                "queue.buffering.max.kbytes": str(QUEUE_KBYTES_MAX),
            },
            load.topic,
        )
        self._seconds = load.seconds
        self._records_max = load.records_max // count
        self._first = [*range(number, load.partitions, count)] or [number % load.partitions]
        self._chunks = itertools.cycle(chunks)
        self._partitions = itertools.islice(itertools.cycle(range(load.partitions)), self._first[0], None)

    def open(self) -> int:
        """A chunk to each of its share of the partitions before the clock starts: connections, metadata and the
        broker's files are there then. How many records that were."""
        for partition in self._first:
            self.producer.produce(next(self._chunks), partition)
        self.producer.flush(FLUSH_SECONDS_MAX)
        return CHUNK_RECORDS * len(self._first)

    def send(self, meter: Meter) -> int:
        records = 0
        while records < self._records_max and meter.elapsed_seconds() < self._seconds:
            self.producer.produce(next(self._chunks), next(self._partitions))
            records += CHUNK_RECORDS
        self.producer.flush(FLUSH_SECONDS_MAX)
        return records


def _await_replicated(load: ProduceLoad, records: int) -> None:
    """Returns when high watermarks, which follow what all in-sync replicas have, add up to what was written."""
    topic = Topic.of(load.bootstrap, load.topic, load.partitions)
    deadline = time.monotonic() + REPLICATION_SECONDS_MAX
    while (found := topic.record_count()) < records:
        if time.monotonic() > deadline:
            raise TopicError(f"{found:,} of {records:,} records of {load.topic} are on all replicas")
        time.sleep(POLL_SECONDS)


def _chunks(record_bytes: int) -> list[Chunk]:
    # An odd number, so that no partition out of an even number of them always gets the same chunk.
    count = DISTINCT_BYTES // (CHUNK_RECORDS * record_bytes) | 1
    values = payload.values(CHUNK_RECORDS * count, record_bytes)
    return [Chunk(values[at::count]) for at in range(count)]
