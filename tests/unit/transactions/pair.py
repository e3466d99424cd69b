"""A shard and Apache Kafka side by side, asked the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from barnabas.coordination.effects import Producer, ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import Error
from barnabas.transactions import transaction_partitions, transaction_records, transaction_views
from barnabas.transactions.end_transaction import AllocateProducerId, WriteMarkers
from barnabas.transactions.transaction import EPOCH_MAX, TransactionState
from barnabas.transactions.transaction_shard import TransactionSettings, TransactionShard
from tests.unit.transactions import requests

if TYPE_CHECKING:
    from barnabas.client.broker_connection import Connection
    from barnabas.coordination.effects import Effects, Record
    from barnabas.protocol.compiler.structs import Message

ABORT_INTERVAL_MS = 100
SECONDS_MAX = 60.0
OPEN_STATES = ("PrepareCommit", "PrepareAbort")
LAST_EPOCH = EPOCH_MAX - 1


def used_up(number: int) -> Record:
    """A transactional id whose producer has the last epoch that it may have."""
    value = m.TransactionLogValue(
        producer_id=9_000 + number,
        previous_producer_id=9_000 + number,
        producer_epoch=LAST_EPOCH,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionState.EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=int(time.time() * 1000),
        transaction_start_timestamp_ms=-1,
        client_transaction_version=2,
    )
    return transaction_records.transaction(f"used up {number}", value)


USED_UP = [used_up(number) for number in range(5)]


class Pair:
    """Asks Kafka first, as it makes up the producer ids, then the shard, and compares."""

    def __init__(self, kafka: Connection, log: list[Record]) -> None:
        self.kafka = kafka
        self.log: list[Record] = []
        self.actions: list[WriteMarkers] = []
        self.shard = TransactionShard(TransactionSettings(abort_timed_out_interval_ms=ABORT_INTERVAL_MS), 0)
        self.now_ms = 1_000_000
        for record in log:
            self.shard.replay(record)
        self.take(self.shard.loaded(self.now_ms))

    def ask(self, request: Message, version: int) -> Any:
        """Their answer, having seen that ours is the same."""
        theirs = self.kafka.send(request, version)
        theirs.throttle_time_ms = 0
        self.now_ms += 1
        ours = self._answer(decode(type(request), encode(request, version), version), version, theirs)
        same = decode(type(theirs), encode(ours, version), version)
        assert comparable(same) == comparable(theirs)
        return theirs

    def _answer(self, request: Message, version: int, theirs: Any) -> Message:
        if isinstance(request, m.AddPartitionsToTxnRequest):
            return self._answer_to_adding(request, version)
        if isinstance(request, m.DescribeTransactionsRequest):
            described = self.shard.describe_transactions(request.transactional_ids)
            return m.DescribeTransactionsResponse(transaction_states=described)
        if isinstance(request, m.ListTransactionsRequest):
            listed = self.shard.list_transactions(transaction_views.Filters.of(request), self.now_ms)
            return m.ListTransactionsResponse(
                transaction_states=listed, unknown_state_filters=transaction_views.unknown_states(request)
            )
        assert isinstance(request, m.InitProducerIdRequest | m.EndTxnRequest)
        taken_id = self._taken_id(request, version, theirs)
        if isinstance(request, m.InitProducerIdRequest):
            effects = self.shard.init_producer_id(request, version, taken_id, "us", self.now_ms)
        else:
            effects = self.shard.end(request, version, taken_id, "us", self.now_ms)
        answer: Message = self.take(effects)
        return answer

    def _taken_id(
        self, request: m.InitProducerIdRequest | m.EndTxnRequest, version: int, theirs: Any
    ) -> ProducerId | None:
        """The one that Kafka took, if one was to be taken."""
        if not self.shard.needs_producer_id(request, version):
            return None
        if theirs.error_code != Error.CONCURRENT_TRANSACTIONS:
            return ProducerId(theirs.producer_id)
        return self._settled_in_kafka(request.transactional_id or "")

    def _answer_to_adding(self, request: m.AddPartitionsToTxnRequest, version: int) -> m.AddPartitionsToTxnResponse:
        """As the handler does."""
        if version < 4:
            producer = Producer(ProducerId(request.v3_and_below_producer_id), request.v3_and_below_producer_epoch)
            return m.AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=self._add(
                    request.v3_and_below_transactional_id, producer, request.v3_and_below_topics, 0, version
                ).topic_results
            )
        [asked] = request.transactions
        producer = Producer(ProducerId(asked.producer_id), asked.producer_epoch)
        if asked.verify_only:
            partitions = [(topic.name, each) for topic in asked.topics for each in topic.partitions]
            errors = self.shard.verify_partitions(asked.transactional_id, producer, partitions)
            return transaction_partitions.answer(asked.transactional_id, errors)
        result = self._add(asked.transactional_id, producer, asked.topics, 2, version)
        return m.AddPartitionsToTxnResponse(results_by_transaction=[result])

    def _add(
        self, transactional_id: str, producer: Producer, topics: Any, transaction_version: int, version: int
    ) -> m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult:
        partitions = [(topic.name, each) for topic in topics for each in topic.partitions]
        answer = self.take(
            self.shard.add_partitions(transactional_id, producer, partitions, transaction_version, "us", self.now_ms)
        )
        assert isinstance(answer, m.AddPartitionsToTxnResponse)
        for topic in answer.results_by_transaction[0].topic_results:
            for each in topic.results_by_partition:
                if version < 2 and each.partition_error_code == Error.PRODUCER_FENCED:
                    each.partition_error_code = Error.INVALID_PRODUCER_EPOCH
        return answer.results_by_transaction[0]

    def take(self, effects: Effects) -> Any:
        self.log += effects.records
        for action in effects.actions:
            assert isinstance(action, WriteMarkers)
            self.actions.append(action)
        return effects.answers[0][1] if effects.answers else None

    def settle(self, transactional_id: str) -> None:
        """Until every partition knows, on both sides."""
        for action in self.actions:
            self.take(self.shard.markers_written(action, self.now_ms))
        self.actions.clear()
        self._settled_in_kafka(transactional_id)
        self.describe(transactional_id)

    def _settled_in_kafka(self, transactional_id: str) -> ProducerId:
        """Waits until nothing is open any more. The producer id after that."""
        deadline = time.monotonic() + SECONDS_MAX
        while (described := self._described_by_kafka(transactional_id)).transaction_state in OPEN_STATES:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return ProducerId(described.producer_id)

    def time_out(self, transactional_id: str) -> None:
        """Until the transaction is aborted because it took too long, on both sides."""
        deadline = time.monotonic() + SECONDS_MAX
        while self._described_by_kafka(transactional_id).transaction_state == "Ongoing":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        deadline_ms = self.shard.next_deadline_ms
        assert deadline_ms is not None
        self.now_ms = deadline_ms
        effects = self.shard.expire(self.now_ms)
        for action in effects.actions:
            if isinstance(action, AllocateProducerId):
                taken_id = self._settled_in_kafka(transactional_id)
                effects = self.shard.abort_timed_out(action, taken_id, self.now_ms)
        self.take(effects)
        self.settle(transactional_id)

    def _described_by_kafka(self, transactional_id: str) -> m.DescribeTransactionsResponse.TransactionState:
        answer = self.kafka.send(m.DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        assert isinstance(answer, m.DescribeTransactionsResponse)
        return answer.transaction_states[0]

    # Requests in few words

    def describe(self, *transactional_ids: str) -> None:
        self.ask(m.DescribeTransactionsRequest(transactional_ids=list(transactional_ids)), 0)

    def init(self, transactional_id: str, expected: Producer | None = None, version: int = 5, **more: Any) -> Producer:
        request = requests.init(transactional_id, *(() if expected is None else (expected,)), **more)
        answer = self.ask(request, version)
        return requests.producer(answer.producer_id, answer.producer_epoch)

    def ongoing(self, transactional_id: str, **more: Any) -> Producer:
        producer = self.init(transactional_id, **more)
        self.ask(requests.add_by_broker(transactional_id, producer, foo=[0, 1]), 5)
        return producer

    def end(self, transactional_id: str, producer: Producer, version: int = 5, *, committed: bool) -> Producer:
        answer = self.ask(requests.end(transactional_id, producer, committed=committed), version)
        self.settle(transactional_id)
        return requests.producer(answer.producer_id, answer.producer_epoch)


def comparable(answer: Any) -> Any:
    """Without times and the order of hash tables, which are nobody's promise."""
    if isinstance(answer, m.DescribeTransactionsResponse):
        for state in answer.transaction_states:
            state.transaction_start_time_ms = min(state.transaction_start_time_ms, 1)
            for topic in state.topics:
                topic.partitions = sorted(topic.partitions)
    if isinstance(answer, m.ListTransactionsResponse):
        answer.transaction_states.sort(key=lambda each: each.transactional_id)
        answer.unknown_state_filters = sorted(answer.unknown_state_filters)
    if isinstance(answer, m.AddPartitionsToTxnResponse):
        results = [*answer.results_by_topic_v3_and_below]
        for transaction in answer.results_by_transaction:
            results += transaction.topic_results
        for result in results:
            result.results_by_partition.sort(key=lambda each: each.partition_index)
    return answer
