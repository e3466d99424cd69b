"""A consume–process–produce loop: inputs are taken in their order, and each gives one output, exactly once.

The inputs are numbers, and the next one to take is the group's committed offset. A transaction takes some inputs,
writes their outputs to some partitions, commits the offset behind them, and ends; by chance it is aborted, or takes
longer than its time, or another instance of the same transactional id starts in the middle of it. Whatever fails ends a
*life*, and the next life begins with InitProducerId, which fences the former one and ends what it left open, and with
the offset that was really committed.

Both versions of the protocol are spoken. In version 2 (KIP-890) partitions and groups join by what is written to them,
and each transaction has an epoch of its own; in version 1 they are added first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.simulator.load.batches import OutgoingBatch, attempt, make_batch
from barnabas.testing.simulator.load.client import GaveUpError, Kind
from barnabas.testing.simulator.load.group_offsets import committed_offset
from barnabas.testing.simulator.load.history import Complaint, Fate, GroupOffset, TopicPartition, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.testing.simulator.load.client import ClusterClient
    from barnabas.testing.simulator.load.history import History

TRANSACTION_TIMEOUT_MS: Final = 6_000
GIVE_UP_S: Final = 10.0
INPUTS_MAX: Final = 24
PARTITIONS_MAX: Final = 3

FENCED: Final = frozenset({Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING})


class LifeOverError(Exception):
    """This instance cannot go on: it was fenced, or does not know what became of its transaction."""


class Protocol(NamedTuple):
    """The versions of the requests that make the two versions of transactions different."""

    produce: int
    end: int
    offset_commit: int
    adds_first: bool


VERSION_1: Final = Protocol(produce=11, end=4, offset_commit=4, adds_first=True)
VERSION_2: Final = Protocol(produce=13, end=5, offset_commit=5, adds_first=False)


class Chances(NamedTuple):
    """How often, of 1, a transaction …"""

    aborts: float = 0.2
    stalls: float = 0.04
    """… takes longer than its time."""
    is_overtaken: float = 0.06
    """… is still going on when another instance starts."""


class TransactionalProducer:
    def __init__(
        self,
        client: ClusterClient,
        transactional_id: str,
        outputs: Sequence[TopicPartition],
        history: History,
        now_ms: Callable[[], int],
        *,
        protocol: Protocol = VERSION_2,
        pause_s: float = 1.5,
        chances: Chances = Chances(),  # noqa: B008 (immutable)
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.group = f"{transactional_id}-inputs"
        self.input = TopicPartition(outputs[0].topic, 0)
        """What the group's offsets are of; nothing is read from there."""
        self.outputs = tuple(outputs)
        self.history = history
        self.now_ms = now_ms
        self.protocol = protocol
        self.pause_s = pause_s
        self.chances = chances
        self.is_stopped = False
        self.transactions = 0
        self.newest_life_s = float("-inf")
        """When the newest instance was told that it is the one."""
        self._lives: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            while not self.is_stopped:
                life = _Life(self)
                task = asyncio.ensure_future(life.run())
                self._lives.add(task)
                task.add_done_callback(self._lives.discard)
                await life.is_over.wait()
                await self.client.pause(1.0)
        finally:
            if self._lives:
                await asyncio.gather(*self._lives)
        await self._see_the_end()

    async def _see_the_end(self) -> None:
        """Asks how far it came, once nothing is open any more."""
        while True:
            try:
                await self.committed_inputs()
            except GaveUpError:
                continue
            return

    async def committed_inputs(self) -> int:
        """How many inputs are done with, as the group's coordinator says when no transaction is open any more."""
        return (await committed_offset(self.client, self.group, self.input, self.history, GIVE_UP_S)).offset


class _Life:
    """One instance, from its InitProducerId on."""

    def __init__(self, owner: TransactionalProducer) -> None:
        self.is_over = asyncio.Event()
        """Set when it ends, or when another instance begins meanwhile."""
        self._owner = owner
        self._client = owner.client
        self._chance = owner.client.chance
        self._born_s = 0.0
        self._producer_id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    async def run(self) -> None:
        owner = self._owner
        try:
            await self._init()
            position = await owner.committed_inputs()
            while not owner.is_stopped:
                position = await self._transact(max(position, 0))
                if self.is_over.is_set():
                    continue  # it does not know, and goes on at once
                await self._client.pause(2 * owner.pause_s)
        except (GaveUpError, LifeOverError):
            pass
        finally:
            self.is_over.set()

    async def _init(self) -> None:
        request = m.InitProducerIdRequest(
            transactional_id=self._owner.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        response = await self._ask_coordinator(request)
        if response.error_code:
            raise LifeOverError
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._born_s = self._owner.newest_life_s = self._client.now_s

    async def _transact(self, position: int) -> int:
        """One transaction. Returns the input to go on from."""
        owner, chance = self._owner, self._chance
        owner.transactions += 1
        transaction = Transaction(owner.transactional_id, owner.transactions)
        owner.history.transactions.append(transaction)
        end = position + chance.randint(1, INPUTS_MAX)
        aborts = chance.random() < owner.chances.aborts
        batches = self._outputs(range(position, end))
        transaction.batches = [batch.sent for batch in batches]
        owner.history.batches += transaction.batches
        transaction.group_offset = GroupOffset(owner.group, owner.input, end)
        if owner.protocol.adds_first:
            await self._add(batches)
        await asyncio.gather(*(self._write(batch) for batch in batches))
        await self._interrupted()
        await self._commit_offset(end)
        transaction.commit_was_sent = not aborts
        await self._end(transaction, is_commit=not aborts)
        return position if aborts else end

    def _outputs(self, inputs: range) -> list[OutgoingBatch]:
        owner = self._owner
        number_of_them = self._chance.randint(1, min(PARTITIONS_MAX, len(owner.outputs)))
        partitions = self._chance.sample(owner.outputs, number_of_them)
        made = []
        for number, partition in enumerate(partitions):
            values = [f"{owner.transactional_id}/{each}".encode() for each in inputs[number :: len(partitions)]]
            if not values:
                continue
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = sequence + len(values)
            made.append(
                make_batch(
                    partition,
                    values,
                    producer_id=self._producer_id,
                    epoch=self._epoch,
                    base_sequence=sequence,
                    timestamp_ms=owner.now_ms(),
                    now_s=self._client.now_s,
                    is_transactional=True,
                )
            )
        return made

    async def _add(self, batches: list[OutgoingBatch]) -> None:
        by_topic: dict[str, list[int]] = {}
        for batch in batches:
            by_topic.setdefault(batch.sent.partition.topic, []).append(batch.sent.partition.partition)
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._owner.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )
        response = await self._ask_coordinator(request, 3, errors_in=_first_error_of_adding)
        if _first_error_of_adding(response):
            raise LifeOverError

    async def _write(self, batch: OutgoingBatch) -> None:
        owner, client = self._owner, self._client
        attempts = 0
        while True:
            leader = await client.known_leader(batch.sent.partition)
            error = await attempt(
                client, leader, batch, version=owner.protocol.produce, transactional_id=owner.transactional_id
            )
            if error is Error.NONE:
                return
            if error is not None and not error.retriable:
                batch.sent.fate = Fate.REFUSED if attempts == 0 else Fate.UNKNOWN
                raise LifeOverError
            if client.now_s - batch.first_sent_s > GIVE_UP_S:
                raise LifeOverError
            await client.back_off(attempts)
            attempts += 1

    async def _interrupted(self) -> None:
        owner = self._owner
        if self._chance.random() < owner.chances.stalls:
            await asyncio.sleep(TRANSACTION_TIMEOUT_MS / 1000 * self._chance.uniform(0.8, 1.6))
        if self._chance.random() < owner.chances.is_overtaken:
            self.is_over.set()
            await self._client.pause(2.0)

    async def _commit_offset(self, offset: int) -> None:
        owner = self._owner
        if owner.protocol.adds_first:
            adding = m.AddOffsetsToTxnRequest(
                transactional_id=owner.transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=owner.group,
            )
            if (await self._ask_coordinator(adding, 3)).error_code:
                raise LifeOverError
        request = m.TxnOffsetCommitRequest
        partition = request.TxnOffsetCommitRequestPartition(
            partition_index=owner.input.partition, committed_offset=offset, committed_metadata=str(owner.transactions)
        )
        committing = request(
            transactional_id=owner.transactional_id,
            group_id=owner.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=-1,
            topics=[request.TxnOffsetCommitRequestTopic(name=owner.input.topic, partitions=[partition])],
        )
        answer = await self._client.ask_coordinator(
            Kind.GROUP,
            owner.group,
            committing,
            version=owner.protocol.offset_commit,
            give_up_s=GIVE_UP_S,
            errors_in=_first_error_of_committing,
        )
        if _first_error_of_committing(answer.response):
            raise LifeOverError

    async def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        owner = self._owner
        request = m.EndTxnRequest(
            transactional_id=owner.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )
        sent_s = self._client.now_s
        is_replaced = owner.newest_life_s > self._born_s
        response = await self._ask_coordinator(request, owner.protocol.end)
        error = Error(response.error_code)
        if error is not Error.NONE:
            raise LifeOverError
        transaction.told_committed = is_commit
        transaction.told_s = self._client.now_s
        if is_replaced and is_commit:
            owner.history.complaints.append(
                Complaint(
                    "transactions are atomic",
                    f"{transaction} was committed at {sent_s:.3f} s in epoch {self._epoch} of producer"
                    f" {self._producer_id}, though a newer instance was given an epoch at {owner.newest_life_s:.3f} s",
                    self._client.now_s,
                )
            )
        if not owner.protocol.adds_first:
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()

    async def _ask_coordinator(
        self,
        request: Any,
        version: int | None = None,
        errors_in: Callable[[Any], int] = lambda response: response.error_code,
    ) -> Any:
        answer = await self._client.ask_coordinator(
            Kind.TRANSACTION,
            self._owner.transactional_id,
            request,
            version=version,
            give_up_s=GIVE_UP_S,
            errors_in=errors_in,
        )
        return answer.response


def _first_error_of_adding(response: m.AddPartitionsToTxnResponse) -> int:
    topics = response.results_by_topic_v3_and_below
    errors = [each.partition_error_code for topic in topics for each in topic.results_by_partition]
    return next((error for error in errors if error), 0)


def _first_error_of_committing(response: m.TxnOffsetCommitResponse) -> int:
    errors = [each.error_code for topic in response.topics for each in topic.partitions]
    return next((error for error in errors if error), 0)
