"""Asking a transaction's coordinator whether a partition belongs to the transaction, wherever that coordinator is.

Leaders of partitions ask before they append the first batch of a transaction, so that no batch is left in a transaction
that its coordinator does not know of. For producers of transactions v1, which add their partitions themselves, the
coordinator only verifies; for those of v2 it adds the partitions.

A coordinator on another broker is sent AddPartitionsToTxn. There is one request at a time for each broker, with all
transactions that have been asked about meanwhile. A request names a transaction once: a second question about the same
one goes with the next request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.coordinators.coordinator_spec import TRANSACTIONS_TOPIC
from barnabas.coordination.effects import Producer, ProducerId
from barnabas.net.frames import UnsupportedVersionError, WireError
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.transactions.transaction import TRANSACTION_VERSION_2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeAlias

    from barnabas.broker.broker_peers import BrokerPeers
    from barnabas.broker.coordinators.coordinator_spec import CoordinatorEnvironment
    from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from barnabas.net.peer import Peer
    from barnabas.transactions.transaction import TopicPartition

    Transaction: TypeAlias = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    Errors: TypeAlias = dict[TopicPartition, Error]
    OnIdle: TypeAlias = Callable[["CoordinatorAsker"], None]

logger = logging.getLogger("barnabas.transactions")

FIRST_VERSION_FOR_BROKERS: Final = 4

QUESTIONS_MAX: Final = 10_000
"""Waiting to be sent to one broker. Whoever asks when there are more is told to try again."""
QUESTIONS_PER_REQUEST_MAX: Final = 1_000

PURPOSE: Final = "add-partitions-to-txn-sender"
NO_LEADER: Final = -1


class TransactionVerification:
    def __init__(
        self,
        node_id: int,
        environment: CoordinatorEnvironment,
        transactions: TransactionCoordinator,
        peers: BrokerPeers,
    ) -> None:
        self._node_id = node_id
        self._environment = environment
        self._transactions = transactions
        self._peers = peers
        self._askers: dict[int, CoordinatorAsker] = {}
        """Those that have something to ask, by broker."""

    async def check_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> Errors:
        """Whether these partitions are part of the producer's transaction: NONE, or why not. With `adds` they are
        added, all or none, for producers that do not add them beforehand."""
        producer = Producer(ProducerId(producer_id), epoch)
        question = Question(transactional_id, producer, tuple(partitions), adds)
        try:
            errors = await (self._ask_when_free(question) if adds else self._ask(question))
        except KafkaError as failed:
            return dict.fromkeys(partitions, failed.error)
        return {partition: for_producers(error) for partition, error in errors.items()}

    async def _ask_when_free(self, question: Question) -> Errors:
        """Retries while the previous transaction is completing, which takes moments and need not trouble the client."""
        config, loop = self._environment.config(), self._environment.loop
        deadline = loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            errors = await self._ask(question)
            if Error.CONCURRENT_TRANSACTIONS not in errors.values() or loop.time() >= deadline:
                return errors
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)

    async def _ask(self, question: Question) -> Errors:
        coordinator = self._coordinator_of(question.transactional_id)
        if coordinator == self._node_id:
            return await self._ask_here(question)
        if coordinator == NO_LEADER or self._peers.peer(coordinator, PURPOSE) is None:
            raise KafkaError(
                Error.COORDINATOR_NOT_AVAILABLE, f"the coordinator of {question.transactional_id} is not available now"
            )
        asker = self._askers.get(coordinator)
        if asker is None:
            self._askers[coordinator] = asker = CoordinatorAsker(coordinator, self._peers, self._asker_is_idle)
        return await asker.ask(question)

    def _coordinator_of(self, transactional_id: str) -> int:
        """The broker id of the leader of its partition; -1 if there is none now."""
        topic = self._environment.image().topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return NO_LEADER
        return topic.partitions[self._transactions.partition_of(transactional_id)].leader

    async def _ask_here(self, question: Question) -> Errors:
        transactional_id, producer, partitions, adds = question
        if adds:
            return await self._transactions.add_partitions(
                transactional_id, producer, partitions, TRANSACTION_VERSION_2
            )
        return await self._transactions.read(
            transactional_id, lambda shard: shard.verify_partitions(transactional_id, producer, partitions)
        )

    def _asker_is_idle(self, asker: CoordinatorAsker) -> None:
        if self._askers.get(asker.broker_id) is asker:
            del self._askers[asker.broker_id]

    def close(self) -> None:
        """Whoever waits for another broker's answer is told that there will be none."""
        for asker in list(self._askers.values()):
            asker.close()
        self._askers.clear()


class Question(NamedTuple):
    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    adds: bool

    def as_transaction(self) -> Transaction:
        topics: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            topics.setdefault(topic, []).append(index)
        request = m.AddPartitionsToTxnRequest
        return request.AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            verify_only=not self.adds,
            topics=[
                request.AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in topics.items()
            ],
        )


class Asked(NamedTuple):
    question: Question
    answer: asyncio.Future[Errors]

    def fail(self, error: Error) -> None:
        self.succeed(dict.fromkeys(self.question.partitions, error))

    def succeed(self, errors: Errors) -> None:
        if not self.answer.done():
            self.answer.set_result(errors)


class CoordinatorAsker:
    """The questions for one broker, and the request that is under way."""

    def __init__(self, broker_id: int, peers: BrokerPeers, on_idle: OnIdle) -> None:
        self.broker_id = broker_id
        self._peers = peers
        self._on_idle = on_idle
        self._waiting: deque[Asked] = deque()
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Errors:
        """KafkaError if too many wait already. An answer that does not come is NETWORK_EXCEPTION."""
        if len(self._waiting) >= QUESTIONS_MAX:
            raise KafkaError(
                Error.NETWORK_EXCEPTION,
                f"{QUESTIONS_MAX} requests to verify transactions are already queued for broker {self.broker_id}",
            )
        asked = Asked(question, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._asking is None:
            self._start()
        return await asked.answer

    def close(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            asked.fail(Error.NETWORK_EXCEPTION)
        if self._asking is not None:
            self._asking.cancel()

    def _start(self) -> None:
        self._asking = asyncio.ensure_future(self._ask())
        self._asking.add_done_callback(self._asking_ended)

    async def _ask(self) -> None:
        while batch := self._next_batch():
            try:
                await self._ask_about(batch)
            finally:
                for asked in batch.values():
                    asked.fail(Error.NETWORK_EXCEPTION)  # Those that were not answered.

    def _next_batch(self) -> dict[str, Asked]:
        """By transactional id."""
        batch: dict[str, Asked] = {}
        postponed: list[Asked] = []
        while self._waiting and len(batch) < QUESTIONS_PER_REQUEST_MAX:
            asked = self._waiting.popleft()
            if asked.answer.done():
                continue  # Whoever asked is gone.
            if batch.setdefault(asked.question.transactional_id, asked) is not asked:
                postponed.append(asked)
        self._waiting.extendleft(reversed(postponed))
        return batch

    async def _ask_about(self, batch: dict[str, Asked]) -> None:
        peer = self._peers.peer(self.broker_id, PURPOSE)
        if peer is None:
            for asked in batch.values():
                asked.fail(Error.COORDINATOR_NOT_AVAILABLE)
            return
        try:
            response = await send(peer, [asked.question.as_transaction() for asked in batch.values()])
        except UnsupportedVersionError as error:
            # A broker that knows nothing of such questions: to verify is more than its cluster asks for.
            logger.warning("transactions are not verified: %s", error)
            for asked in batch.values():
                asked.fail(Error.UNSUPPORTED_VERSION if asked.question.adds else Error.NONE)
            return
        except WireError as error:
            logger.info("%d transactions could not be verified: %s", len(batch), error)
            return
        if response.error_code != Error.NONE:
            logger.error("%s refused to verify transactions: %s", peer, Error(response.error_code).name)
            for asked in batch.values():
                asked.fail(for_leaders(Error(response.error_code)))
            return
        for result in response.results_by_transaction:
            if (answered := batch.get(result.transactional_id)) is not None:
                answered.succeed(errors_of(result, answered.question))

    def _asking_ended(self, asking: asyncio.Task[None]) -> None:
        if not asking.cancelled() and (error := asking.exception()) is not None:
            logger.error("internal error while verifying transactions with broker %d", self.broker_id, exc_info=error)
        self._asking = None
        if self._waiting:  # Something has come since the last look.
            self._start()
        else:
            self._on_idle(self)


async def send(peer: Peer, transactions: list[Transaction]) -> m.AddPartitionsToTxnResponse:
    def make(version: int) -> m.AddPartitionsToTxnRequest:
        if version < FIRST_VERSION_FOR_BROKERS:
            raise UnsupportedVersionError(f"{peer} accepts AddPartitionsToTxn only from clients")
        return m.AddPartitionsToTxnRequest(transactions=transactions)

    response: m.AddPartitionsToTxnResponse = await peer.send_made(ApiKey.ADD_PARTITIONS_TO_TXN, make)
    return response


def errors_of(result: m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult, question: Question) -> Errors:
    errors = dict.fromkeys(question.partitions, Error.NETWORK_EXCEPTION)
    for topic in result.topic_results:
        for partition in topic.results_by_partition:
            errors[topic.name, partition.partition_index] = Error(partition.partition_error_code)
    return errors


def for_leaders(error: Error) -> Error:
    """Clients are not to hear that a broker may not ask another: to them the transaction could not be verified."""
    return Error.INVALID_TXN_STATE if error is Error.CLUSTER_AUTHORIZATION_FAILED else error


def for_producers(error: Error) -> Error:
    """As produce requests put it: to them a fenced producer is one with an old epoch."""
    return Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED else error
