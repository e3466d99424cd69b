"""A shard with its log, its clock and somebody who writes markers when told to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.coordination.effects import Producer, ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.transactions import transaction_records
from barnabas.transactions.end_transaction import AllocateProducerId, WriteMarkers
from barnabas.transactions.producer_epochs import NOBODY
from barnabas.transactions.transaction_shard import TransactionSettings, TransactionShard
from tests.unit.transactions import requests

if TYPE_CHECKING:
    from barnabas.coordination.effects import Effects, Record
    from barnabas.transactions.transaction import TopicPartition

COORDINATOR_EPOCH = 7
FIRST_PRODUCER_ID = 1_000
START_MS = 1_000_000
FOO_0, FOO_1, BAR_0 = ("foo", 0), ("foo", 1), ("bar", 0)


def replayed(
    log: list[Record],
    settings: TransactionSettings = TransactionSettings(),  # noqa: B008 - immutable
    coordinator_epoch: int = COORDINATOR_EPOCH,
    transaction_version: int = 2,
) -> TransactionShard:
    """What a shard is after a restart, before it is told so. The records go through their bytes."""
    shard = TransactionShard(settings, coordinator_epoch, lambda: transaction_version)
    for record in log:
        read = transaction_records.decode(*transaction_records.encode(record))
        assert read == record
        shard.replay(read)
    return shard


def state_of(shard: TransactionShard) -> dict[str, Record]:
    """All that the log says of each transactional id."""
    return {
        transactional_id: transaction_records.record_of(each) for transactional_id, each in shard._transactions.items()
    }


class Household:
    def __init__(
        self,
        settings: TransactionSettings = TransactionSettings(),  # noqa: B008 - immutable
        *,
        transaction_version: int = 2,
        log: list[Record] | None = None,
    ) -> None:
        self.settings = settings
        self.transaction_version = transaction_version
        self.now_ms = START_MS
        self.next_producer_id = FIRST_PRODUCER_ID
        self.log: list[Record] = list(log or [])
        self.actions: list[WriteMarkers] = []
        """Outstanding."""
        self.needs: list[AllocateProducerId] = []
        self.coordinator_epoch = COORDINATOR_EPOCH
        self.restart()

    def restart(self) -> None:
        """All but the log is gone; the next leader epoch begins."""
        self.actions, self.needs = [], []
        self.coordinator_epoch += 1
        self.shard = replayed(self.log, self.settings, self.coordinator_epoch, self.transaction_version)
        self.take(self.shard.loaded(self.now_ms))

    def take(self, effects: Effects) -> Any:
        """Does what a driver does with a step's effects, and gives back the answer, if there is one."""
        self.log += effects.records
        for action in effects.actions:
            if isinstance(action, WriteMarkers):
                self.actions.append(action)
            else:
                assert isinstance(action, AllocateProducerId)
                self.needs.append(action)
        answers = [answer for reply_to, answer in effects.answers if reply_to == "us"]
        assert len(answers) == len(effects.answers) <= 1
        return answers[0] if answers else None

    def new_producer_id(self) -> ProducerId:
        self.next_producer_id += 1
        return ProducerId(self.next_producer_id)

    def taken_id(self, request: m.InitProducerIdRequest | m.EndTxnRequest, version: int) -> ProducerId | None:
        return self.new_producer_id() if self.shard.needs_producer_id(request, version) else None

    # Clients

    def init(
        self,
        transactional_id: str | None = "t",
        expected: Producer = NOBODY,
        *,
        timeout_ms: int = 60_000,
        version: int = requests.INIT_VERSION,
    ) -> tuple[Error, Producer]:
        request = requests.init(transactional_id, expected, timeout_ms=timeout_ms)
        taken_id = self.taken_id(request, version)
        answer = self.take(self.shard.init_producer_id(request, version, taken_id, "us", self.now_ms))
        assert isinstance(answer, m.InitProducerIdResponse)
        return Error(answer.error_code), requests.producer(answer.producer_id, answer.producer_epoch)

    def begun(self, transactional_id: str = "t", *, timeout_ms: int = 60_000) -> Producer:
        error, producer = self.init(transactional_id, timeout_ms=timeout_ms)
        assert error is Error.NONE
        return producer

    def add(
        self,
        producer: Producer,
        *partitions: TopicPartition,
        transactional_id: str = "t",
        transaction_version: int = 2,
    ) -> Error:
        effects = self.shard.add_partitions(
            transactional_id, producer, partitions, transaction_version, "us", self.now_ms
        )
        answer = self.take(effects)
        assert isinstance(answer, m.AddPartitionsToTxnResponse)
        [result] = answer.results_by_transaction
        assert result.transactional_id == transactional_id
        [error] = {each.partition_error_code for topic in result.topic_results for each in topic.results_by_partition}
        return Error(error)

    def ongoing(self, transactional_id: str = "t", *, timeout_ms: int = 60_000) -> Producer:
        producer = self.begun(transactional_id, timeout_ms=timeout_ms)
        assert self.add(producer, FOO_0, BAR_0, transactional_id=transactional_id) is Error.NONE
        return producer

    def end(
        self,
        producer: Producer,
        *,
        committed: bool,
        transactional_id: str = "t",
        version: int = requests.END_VERSION,
    ) -> tuple[Error, Producer]:
        request = requests.end(transactional_id, producer, committed=committed)
        taken_id = self.taken_id(request, version)
        answer = self.take(self.shard.end(request, version, taken_id, "us", self.now_ms))
        assert isinstance(answer, m.EndTxnResponse)
        return Error(answer.error_code), requests.producer(answer.producer_id, answer.producer_epoch)

    def committed(self, producer: Producer, *, version: int = requests.END_VERSION) -> Producer:
        """The transaction is committed everywhere: under which id and epoch its producer goes on."""
        error, after = self.end(producer, committed=True, version=version)
        assert error is Error.NONE
        self.write_markers()
        return producer if after == NOBODY else after

    # Partitions and time

    def write_markers(self) -> list[WriteMarkers]:
        written, self.actions = self.actions, []
        for action in written:
            self.take(self.shard.markers_written(action, self.now_ms))
        return written

    def pass_time(self, duration_ms: int) -> None:
        """Wakes the shard at each of its deadlines until then."""
        until_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms) is not None and deadline_ms <= until_ms:
            assert deadline_ms >= self.now_ms
            self.now_ms = deadline_ms
            self.take(self.shard.expire(self.now_ms))
        self.now_ms = until_ms

    def state(self, transactional_id: str = "t") -> str:
        [described] = self.shard.describe_transactions([transactional_id])
        return described.transaction_state if described.error_code == Error.NONE else Error(described.error_code).name

    def written(self) -> list[tuple[int, m.TransactionLogValue]]:
        """The log's records of transactions, with their states."""
        values = [record.value for record in self.log]
        return [(each.transaction_status, each) for each in values if isinstance(each, m.TransactionLogValue)]
