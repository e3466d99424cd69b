"""A producer with idempotence: up to five batches under way for a partition, each repeated until its fate is known.

A partition of a producer is a *lane*, with sequences of its own. What is under way is sent in order, one batch behind
the other, and all to one leader. When all answers are there, what was refused for now is sent again, in the same order
and with the same sequences, as Kafka's own producer does. A leader that knows nothing of a producer begins with
whichever sequence comes, as Kafka does: so nothing is sent behind the first batch before that is acknowledged, for it
may be refused or lost while the next one is taken. A batch whose fate is unknown after `DELIVERY_TIMEOUT_S` is given
up, with everything behind it: the lane takes a new producer id, for the next sequence may or may not be the one that
the leader expects.

The same goes for a batch that is refused as out of order though all before it are acknowledged. There are clients that
then write it again under a new epoch, so a leader must not refuse what it has: such refusals are noted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final

from barnabas.net.frames import WireError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.simulator.load.batches import OutgoingBatch, attempt, make_batch
from barnabas.testing.simulator.load.history import Fate, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.testing.simulator.load.client import ClusterClient, Leader
    from barnabas.testing.simulator.load.history import History, TopicPartition

IN_FLIGHT_MAX: Final = 5
RECORDS_MAX: Final = 24
DELIVERY_TIMEOUT_S: Final = 15.0
PRODUCE_VERSION: Final = 13
NO_PRODUCER_ID: Final = -1


class IdempotentProducer:
    """Writes bursts of batches to its partitions until it is stopped."""

    def __init__(
        self,
        client: ClusterClient,
        partitions: Sequence[TopicPartition],
        history: History,
        now_ms: Callable[[], int],
        *,
        pause_s: float = 2.0,
    ) -> None:
        self.client = client
        self.is_stopped = False
        self._pause_s = pause_s
        self._lanes = [_Lane(client, partition, history, now_ms) for partition in partitions]

    async def run(self) -> None:
        await asyncio.gather(*(self._run(lane) for lane in self._lanes))

    async def _run(self, lane: _Lane) -> None:
        while not self.is_stopped:
            await lane.burst()
            await self.client.pause(self._pause_s)


class _Lane:
    def __init__(
        self, client: ClusterClient, partition: TopicPartition, history: History, now_ms: Callable[[], int]
    ) -> None:
        self._client = client
        self._partition = partition
        self._history = history
        self._now_ms = now_ms
        self._names = count()
        self._producer_id = NO_PRODUCER_ID
        self._epoch = -1
        self._next_sequence = 0
        self._is_acknowledged = False
        """Whether anything of this producer id is, so that every leader knows it."""

    async def burst(self) -> None:
        """Writes some batches, and returns when the fate of all is known or given up."""
        if self._producer_id == NO_PRODUCER_ID and not await self._init():
            return
        chance = self._client.chance
        waiting = deque(
            self._new_batch(chance.randint(1, RECORDS_MAX)) for _ in range(chance.randint(1, IN_FLIGHT_MAX))
        )
        self._history.batches += [batch.sent for batch in waiting]
        attempts = 0
        while waiting:
            leader = await self._client.known_leader(self._partition)
            sent = list(waiting) if self._is_acknowledged else [waiting[0]]
            errors = await asyncio.gather(
                *(attempt(self._client, leader, batch, version=PRODUCE_VERSION) for batch in sent)
            )
            if not self._settle(waiting, sent, leader, errors):
                self._producer_id = NO_PRODUCER_ID
                return
            if any(error is not Error.NONE for error in errors):
                await self._client.back_off(attempts)
                attempts += 1

    async def _init(self) -> bool:
        leader = await self._client.known_leader(self._partition)
        if leader is None:
            return False
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            response = await self._client.ask(leader.broker, request)
        except WireError:
            await self._client.refresh()
            return False
        if response.error_code:
            return False
        self._producer_id, self._epoch, self._next_sequence = response.producer_id, response.producer_epoch, 0
        self._is_acknowledged = False
        return True

    def _new_batch(self, records: int) -> OutgoingBatch:
        batch = make_batch(
            self._partition,
            [f"{self._client.name}/{self._partition.partition}/{next(self._names)}".encode() for _ in range(records)],
            producer_id=self._producer_id,
            epoch=self._epoch,
            base_sequence=self._next_sequence,
            timestamp_ms=self._now_ms(),
            now_s=self._client.now_s,
        )
        self._next_sequence += records
        return batch

    def _settle(
        self,
        waiting: deque[OutgoingBatch],
        sent: Sequence[OutgoingBatch],
        leader: Leader | None,
        errors: Sequence[Error | None],
    ) -> bool:
        """Takes out what is acknowledged. False if the lane cannot go on: what is left will stay unknown."""
        for batch, error in zip(sent, errors, strict=True):
            if error is Error.NONE:
                self._is_acknowledged = True
                waiting.remove(batch)
                continue
            if error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
                if waiting[0] is batch:
                    self._note_refusal(batch, leader)
                    return False
            elif error is not None and not error.retriable:
                batch.sent.fate = Fate.REFUSED
                return False
        now_s = self._client.now_s
        return not waiting or now_s - waiting[0].first_sent_s < DELIVERY_TIMEOUT_S

    def _note_refusal(self, batch: OutgoingBatch, leader: Leader | None) -> None:
        assert leader is not None, "somebody has answered"
        client = self._client
        epoch = client.leader_epoch(leader.broker, self._partition)
        self._history.refusals.append(Refusal(batch.sent, client.name, leader.broker, epoch, client.now_s))
