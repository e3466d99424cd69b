"""Transactions: how many a second, and how long until a reader of committed records has them.

Producers speak the protocol of today's clients (KIP-890): the first record to a partition adds it to the transaction,
and the end of a transaction gives the epoch of the next one. A transaction's records go out in one request, as they do
from a client that has them at hand.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from typing import Any

from barnabas.protocol import messages as m
from barnabas.protocol.batch import iter_headers
from barnabas.protocol.errors import Error
from bench import wire
from bench.loads import payload
from bench.loads.channel import TRANSACTION, Channel, await_coordinator, until_coordinated
from bench.loads.meter import Meter
from bench.stats import quantile

INIT_VERSION, PRODUCE_VERSION, END_VERSION, FETCH_VERSION = 5, 12, 5, 12
ACKS_ALL = -1
READ_COMMITTED = 1
FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 1 << 20
TRANSACTION_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class TransactionsLoad:
    host: str
    port: int
    broker_pid: int
    topic: str
    partitions: int
    records: int
    """In each transaction, spread over the partitions as far as they go."""
    record_bytes: int
    producers: int
    seconds: float


def run_rate(load: TransactionsLoad) -> dict[str, float]:
    return asyncio.run(_run_rate(load))


def run_latency(load: TransactionsLoad) -> dict[str, float]:
    return asyncio.run(_run_latency(load))


async def _run_rate(load: TransactionsLoad) -> dict[str, float]:
    producers = [await _Producer.start(load, number) for number in range(load.producers)]
    meter = Meter(load.broker_pid)
    transactions = sum(await asyncio.gather(*(each.commit_until(meter, load.seconds) for each in producers)))
    figures = meter.figures(transactions)
    log_records = sum(each.log_records for each in producers)
    for each in producers:
        await each.channel.close()
    return figures | {"log_records": log_records}


async def _run_latency(load: TransactionsLoad) -> dict[str, float]:
    """One transaction of one record at a time, timed from its first request to its arrival at a waiting reader."""
    producer = await _Producer.start(load, 0)
    readers = [await _Reader.start(load, partition) for partition in range(load.partitions)]
    times_ms: list[float] = []
    meter = Meter(load.broker_pid)
    for reader in itertools.cycle(readers):
        if meter.elapsed_seconds() >= load.seconds:
            break
        arrival = asyncio.create_task(reader.next_committed())
        started = time.perf_counter()
        await producer.commit([reader.partition])
        times_ms.append((await arrival - started) * 1e3)
    figures = meter.figures(len(times_ms))
    for channel in (producer.channel, *(reader.channel for reader in readers)):
        await channel.close()
    return figures | {
        "p50_ms": quantile(times_ms, 0.50),
        "p99_ms": quantile(times_ms, 0.99),
        "log_records": producer.log_records,
    }


class _Producer:
    """One transactional id, its connection, and the records that it writes again and again."""

    def __init__(self, load: TransactionsLoad, number: int, channel: Channel) -> None:
        self.channel = channel
        self.log_records = 0
        """How many records and markers the partitions must hold because of it."""
        self._load = load
        self._transactional_id = f"{load.topic}-{number}"
        self._producer_id = self._epoch = -1
        values = payload.values(load.records, load.record_bytes)
        shares = [values[at :: load.partitions] for at in range(load.partitions)]
        self._shares = [(wire.records_of(share), len(share)) for share in shares if share]

    @staticmethod
    async def start(load: TransactionsLoad, number: int) -> _Producer:
        producer = _Producer(load, number, await Channel.open(load.host, load.port))
        await producer._init()
        return producer

    async def commit_until(self, meter: Meter, seconds: float) -> int:
        transactions = 0
        partitions = itertools.cycle(range(self._load.partitions))
        while meter.elapsed_seconds() < seconds:
            await self.commit([next(partitions) for _ in self._shares])
            transactions += 1
        return transactions

    async def commit(self, partitions: list[int]) -> None:
        """One transaction, one share of its records to each of the partitions."""
        produce = self._produce_request(partitions)
        await until_coordinated(lambda: self._ask_produce(produce))
        answer = await until_coordinated(self._ask_end)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self.log_records += sum(count for _, count in self._shares) + len(partitions)

    def _produce_request(self, partitions: list[int]) -> m.ProduceRequest:
        request = m.ProduceRequest
        now_ms = int(time.time() * 1000)
        data = [
            request.PartitionProduceData(
                index=partition,
                records=wire.transactional_batch(records, count, now_ms, self._producer_id, self._epoch),
            )
            for partition, (records, count) in zip(partitions, self._shares, strict=True)
        ]
        return request(
            transactional_id=self._transactional_id,
            acks=ACKS_ALL,
            timeout_ms=wire.TIMEOUT_MS,
            topic_data=[request.TopicProduceData(name=self._load.topic, partition_data=data)],
        )

    async def _init(self) -> None:
        await await_coordinator(self.channel, self._transactional_id, TRANSACTION)
        request = m.InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

        async def ask() -> tuple[int, Any]:
            answer = await self.channel.send(request, INIT_VERSION)
            return answer.error_code, answer

        answer = await until_coordinated(ask)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def _ask_produce(self, request: m.ProduceRequest) -> tuple[int, Any]:
        """The same batch again is no second record: what was written by then is recognised by its sequence."""
        answer = await self.channel.send(request, PRODUCE_VERSION)
        errors = [each.error_code for topic in answer.responses for each in topic.partition_responses]
        return next((error for error in errors if error != Error.NONE), Error.NONE), answer

    async def _ask_end(self) -> tuple[int, Any]:
        request = m.EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        answer = await self.channel.send(request, END_VERSION)
        return answer.error_code, answer


class _Reader:
    """Waits at the end of a partition for committed records."""

    def __init__(self, load: TransactionsLoad, partition: int, channel: Channel) -> None:
        self.partition = partition
        self.channel = channel
        self._topic = load.topic
        self._offset = 0

    @staticmethod
    async def start(load: TransactionsLoad, partition: int) -> _Reader:
        return _Reader(load, partition, await Channel.open(load.host, load.port))

    async def next_committed(self) -> float:
        """When the next committed record has come. Markers are passed over."""
        while True:
            records = await self._fetch()
            headers = [header for _, header in iter_headers(records)]
            if headers:
                self._offset = headers[-1].next_offset
            if any(not header.is_control for header in headers):
                return time.perf_counter()

    async def _fetch(self) -> memoryview:
        request = m.FetchRequest
        wanted = request.FetchPartition(
            partition=self.partition, fetch_offset=self._offset, partition_max_bytes=FETCH_BYTES_MAX
        )
        answer = await self.channel.send(
            request(
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                isolation_level=READ_COMMITTED,
                topics=[request.FetchTopic(topic=self._topic, partitions=[wanted])],
            ),
            FETCH_VERSION,
        )
        (found,) = answer.responses[0].partitions
        if found.error_code != Error.NONE:
            raise wire.WireError(f"{Error(found.error_code).name} for {self._topic}-{self.partition}")
        return memoryview(found.records or b"")
