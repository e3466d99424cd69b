"""Transactions over three brokers while links are cut, streams reset, and partitions lose their leaders for a while.

For any seed, when everything is whole again, every transaction has ended, in all of its partitions the same way, and
the way that its producer was told.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.net.frames import WireError
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch, decode_records, iter_headers
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from tests.unit.broker.api.stand_ins import topic_id
from tests.unit.broker.several_brokers import SeveralBrokers, until
from tests.wire.requests import Topic, produce_request

TOPIC = "t"
LEADERS = (1, 2, 3, 2, 3, 1)
COORDINATORS = (1, 2)
FAULTY_SECONDS = 60.0
PRODUCE_VERSION, END_VERSION = 12, 5
RETRIABLE = (
    Error.NOT_ENOUGH_REPLICAS,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.CONCURRENT_TRANSACTIONS,
    Error.NOT_COORDINATOR,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
)


class FailedError(Exception):
    """The producer has to begin anew: what became of its transaction, it does not know."""


class Producer:
    """Begins one transaction after the other, each with records in some partitions, and notes what it was told."""

    def __init__(self, cluster: SeveralBrokers, name: str, seed: int) -> None:
        self.cluster = cluster
        self.name = name
        self.told: dict[str, bool] = {}
        """By the values of a transaction's records: whether it was committed."""
        self.used: dict[str, set[int]] = {}
        """The partitions that have acknowledged a record of it."""
        self._chance = random.Random(f"{seed} {name}")
        self._clients = {each: cluster.client(each) for each in cluster.brokers}
        self._producer_id = self._epoch = -1
        self._coordinator = COORDINATORS[0]

    async def run(self, until_s: float) -> None:
        number = 0
        while self.cluster.scheduler.now < until_s:
            try:
                if self._producer_id < 0:
                    await self.init()
                number += 1
                await self._transact(f"{self.name} {number}")
                await asyncio.sleep(self._chance.uniform(0.1, 0.5))
            except (WireError, FailedError):
                self._producer_id = -1

    async def init(self) -> None:
        request = m.InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        response = await self._ask_coordinator(request)
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch

    async def _transact(self, value: str) -> None:
        partitions = self._chance.sample(range(len(LEADERS)), self._chance.randint(1, 4))
        self.used[value] = set()
        await asyncio.gather(*(self._produce(value, partition) for partition in partitions))
        commit = self._chance.random() < 0.7
        request = m.EndTxnRequest(
            transactional_id=self.name, producer_id=self._producer_id, producer_epoch=self._epoch, committed=commit
        )
        response = await self._ask_coordinator(request, END_VERSION)
        self.told[value] = commit
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch

    async def _produce(self, value: str, partition: int) -> None:
        batch = build_batch(
            [Record(value=value.encode())],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            is_transactional=True,
        )
        request = produce_request(Topic(TOPIC, topic_id(TOPIC)), batch, PRODUCE_VERSION, partition=partition)
        request.transactional_id = self.name
        for _ in range(200):
            response = await self._clients[LEADERS[partition]].send(request, PRODUCE_VERSION)
            error = Error(response.responses[0].partition_responses[0].error_code)
            if error is Error.NONE:
                self.used[value].add(partition)
                return
            if error not in RETRIABLE:
                break
            await asyncio.sleep(0.1)
        raise FailedError

    async def _ask_coordinator(self, request: Any, version: int | None = None) -> Any:
        for _ in range(200):
            response = await self._clients[self._coordinator].send(request, version)
            error = Error(response.error_code)
            if error is Error.NONE:
                return response
            if error not in RETRIABLE:
                break
            await asyncio.sleep(0.1)
            if error is Error.NOT_COORDINATOR:
                await self._find_coordinator()
        raise FailedError

    async def _find_coordinator(self) -> None:
        request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
        (found,) = (await self._clients[3].send(request)).coordinators
        if found.error_code == Error.NONE:
            self._coordinator = found.node_id

    async def state(self) -> str:
        request = m.DescribeTransactionsRequest(transactional_ids=[self.name])
        response = await self._clients[self._coordinator].send(request)
        return response.transaction_states[0].transaction_state or ""

    async def is_complete(self) -> bool:
        return await self.state() in ("Empty", "CompleteCommit", "CompleteAbort")


async def hurt(cluster: SeveralBrokers, chance: random.Random) -> None:
    names = [broker.name for broker in cluster.brokers.values()]
    while cluster.scheduler.now < FAULTY_SECONDS:
        await asyncio.sleep(chance.uniform(0.5, 4.0))
        one, other = chance.sample(names, 2)
        match chance.choice(["cut", "one way", "reset", "silence", "leaderless", "coordinator", "heal", "heal"]):
            case "cut":
                cluster.network.cut(one, other)
            case "one way":
                cluster.network.cut_one_way(one, other)
            case "reset":
                cluster.network.reset(one, other)
            case "silence":
                cluster.network.silence(one, other)
            case "leaderless":
                await without_leaders(cluster, TOPIC, LEADERS, chance)
            case "coordinator":
                await without_leaders(cluster, TRANSACTIONS_TOPIC, COORDINATORS, chance)
            case "heal":
                cluster.network.heal_all()
    cluster.network.heal_all()


async def without_leaders(cluster: SeveralBrokers, topic: str, leaders: tuple[int, ...], chance: random.Random) -> None:
    """Some partitions are led by nobody for a while, and then by the same broker, in a new epoch."""
    cluster.lead(topic, *(chance.choice([leader, -1]) for leader in leaders))
    await asyncio.sleep(chance.uniform(0.1, 3.0))
    cluster.lead(topic, *leaders)


def ends_in(data: bytes) -> dict[str, bool | None]:
    """How each transaction has ended in a partition, by the values of its records; None if it has not."""
    ends: dict[str, bool | None] = {}
    open_values: dict[int, list[str]] = {}
    for position, header in iter_headers(data):
        (record,) = decode_records(memoryview(data)[position : position + header.size])
        if header.is_control:
            is_commit = decode_key(record.key or b"") is ControlRecordType.COMMIT
            for value in open_values.pop(header.producer_id, ()):
                ends[value] = is_commit
        else:
            value = bytes(record.value or b"").decode()
            open_values.setdefault(header.producer_id, []).append(value)
            ends[value] = None
    return ends


@pytest.mark.parametrize("seed", range(6))
def test_every_transaction_ends_as_its_producer_was_told_in_all_its_partitions(seed: int) -> None:
    cluster = SeveralBrokers(3, seed, request_timeout_ms="2000")
    cluster.place(TRANSACTIONS_TOPIC, *COORDINATORS)
    cluster.place(OFFSETS_TOPIC, 3)
    cluster.place(TOPIC, *LEADERS)
    producers = [Producer(cluster, f"producer-{number}", seed) for number in range(6)]

    async def scenario() -> None:
        await asyncio.sleep(1)
        faults = asyncio.ensure_future(hurt(cluster, random.Random(seed)))
        await asyncio.gather(*(each.run(FAULTY_SECONDS) for each in producers))
        await faults
        await asyncio.sleep(10)
        for each in producers:
            await each.init()
            await until(each.is_complete)

    cluster.run(scenario())
    logs = {
        partition: ends_in(cluster.brokers[leader].log_bytes(TOPIC, partition))
        for partition, leader in enumerate(LEADERS)
    }
    told = {value: was_committed for each in producers for value, was_committed in each.told.items()}
    used = {value: partitions for each in producers for value, partitions in each.used.items()}
    assert len(told) > 100, "little was done"
    ends: dict[str, set[bool | None]] = {}
    for log in logs.values():
        for value, end in log.items():
            ends.setdefault(value, set()).add(end)
    assert [value for value, how in ends.items() if len(how) != 1 or None in how] == []
    for value, was_committed in told.items():
        assert ends[value] == {was_committed}, value
        assert all(value in logs[partition] for partition in used[value])
