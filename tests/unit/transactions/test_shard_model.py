"""Whatever producers do, wherever the node is killed: a transaction ends in one way, everywhere, and it does end.

The machine below keeps what a shard asks for uncommitted until a rule commits it, so that a crash can fall between any
two records, with their answers lost and their actions not started. Partitions are models: they take what a producer
writes and the markers that the shard asks for, and remember what became of each transaction. Producers come and go
under the same transactional ids; those that were replaced carry on with their old epochs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.coordination.effects import Producer, ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.transactions import transaction_records
from barnabas.transactions.end_transaction import AllocateProducerId, WriteMarkers
from barnabas.transactions.producer_epochs import NOBODY
from barnabas.transactions.transaction import EPOCH_MAX, SETTLED, TransactionState
from barnabas.transactions.transaction_shard import TransactionSettings
from tests.unit.transactions import requests
from tests.unit.transactions.household import replayed, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordination.effects import Effects, Record
    from barnabas.transactions.transaction import TopicPartition

PARTITIONS: list[TopicPartition] = [("foo", 0), ("foo", 1), ("bar", 0)]
SETTINGS = TransactionSettings(
    abort_timed_out_interval_ms=100, transactional_id_expiration_ms=100_000, remove_expired_interval_ms=10_000
)
NEARLY_USED_UP = "nearly used up"
TRANSACTIONAL_IDS = ("t", NEARLY_USED_UP, NEARLY_USED_UP)
CLIENTS_MAX = 3
GIVEN_UP = (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_TXN_STATE)


class Partition:
    """What a partition's log holds of producers, as far as transactions go."""

    def __init__(self) -> None:
        self.open: dict[ProducerId, set[int]] = defaultdict(set)
        """The transactions, by number, of records that no marker has ended yet."""
        self.epochs: dict[ProducerId, int] = {}
        self.coordinator_epochs: dict[ProducerId, int] = {}

    def write(self, producer: Producer, transaction: int) -> None:
        if producer.epoch >= self.epochs.get(producer.producer_id, 0):
            self.epochs[producer.producer_id] = producer.epoch
            self.open[producer.producer_id].add(transaction)

    def mark(self, action: WriteMarkers) -> set[int]:
        """The transactions that end with this marker."""
        if action.coordinator_epoch < self.coordinator_epochs.get(action.producer_id, 0):
            return set()
        assert action.producer_epoch >= self.epochs.get(action.producer_id, 0), "no marker comes too late"
        self.coordinator_epochs[action.producer_id] = action.coordinator_epoch
        self.epochs[action.producer_id] = action.producer_epoch
        return self.open.pop(action.producer_id, set())


class Client:
    def __init__(self, transactional_id: str, *, is_v2: bool) -> None:
        self.transactional_id = transactional_id
        self.is_v2 = is_v2
        self.producer: Producer | None = None
        self.transaction: int | None = None
        self.wish: bool | None = None
        """Whether it asked for a commit, while it knows of no answer."""
        self.is_waiting = False

    def start_over(self, producer: Producer | None) -> None:
        self.producer, self.transaction, self.wish = producer, None, None


class TransactionLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        value = m.TransactionLogValue(
            producer_id=7,
            previous_producer_id=7,
            producer_epoch=EPOCH_MAX - 4,
            transaction_timeout_ms=60_000,
            transaction_status=TransactionState.EMPTY,
            transaction_last_update_timestamp_ms=self.now_ms,
            transaction_start_timestamp_ms=-1,
        )
        self.log: list[Record] = [transaction_records.transaction(NEARLY_USED_UP, value)]
        self.uncommitted: deque[Effects] = deque()
        self.is_slow = False
        """Whether what is written stays uncommitted until a rule says otherwise."""
        self.waiting: dict[int, Callable[[Any], None]] = {}
        self.asked = 0
        self.actions: list[tuple[WriteMarkers, set[TopicPartition]]] = []
        """Those given since the last restart, with the partitions that are still to be marked."""
        self.void_actions: list[WriteMarkers] = []
        """Those given before: whoever had them may be late."""
        self.partitions = {each: Partition() for each in PARTITIONS}
        self.clients: list[Client] = []
        self.next_producer_id = 100
        self.next_transaction = 0
        self.ends: dict[int, set[bool]] = defaultdict(set)
        """What the markers said, by transaction."""
        self.promises: dict[int, bool] = {}
        """What the answers said."""
        self.latest: dict[str, Producer] = {}
        self.coordinator_epoch = 0
        self.load()

    # The driver

    def load(self) -> None:
        self.coordinator_epoch += 1
        self.shard = replayed(self.log, SETTINGS, self.coordinator_epoch)
        self.take(self.shard.loaded(self.now_ms))

    def take(self, effects: Effects) -> None:
        self.uncommitted.append(effects)
        while self.uncommitted and not self.is_slow:
            self.commit_next()

    def ask(self, client: Client, answered: Callable[[Any], None]) -> int:
        self.asked += 1
        client.is_waiting = True

        def deliver(answer: Any) -> None:
            client.is_waiting = False
            answered(answer)

        self.waiting[self.asked] = deliver
        return self.asked

    def new_producer_id(self) -> ProducerId:
        self.next_producer_id += 1
        return ProducerId(self.next_producer_id)

    def taken_id(self, request: m.InitProducerIdRequest | m.EndTxnRequest) -> ProducerId | None:
        return self.new_producer_id() if self.shard.needs_producer_id(request, 5) else None

    @rule(is_slow=st.sampled_from([False, False, True]))
    def change_pace(self, is_slow: bool) -> None:
        self.is_slow = is_slow
        while self.uncommitted and not is_slow:
            self.commit_next()

    @precondition(lambda self: self.uncommitted)
    @rule()
    def commit(self) -> None:
        self.commit_next()

    def commit_next(self) -> None:
        effects = self.uncommitted.popleft()
        self.log += effects.records
        for reply_to, answer in effects.answers:
            assert isinstance(reply_to, int)
            self.waiting.pop(reply_to)(answer)
        for action in effects.actions:
            if isinstance(action, AllocateProducerId):
                self.take(self.shard.abort_timed_out(action, self.new_producer_id(), self.now_ms))
            else:
                assert isinstance(action, WriteMarkers)
                assert action.partitions
                self.actions.append((action, set(action.partitions)))

    @precondition(lambda self: self.uncommitted or self.actions)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Some of what was being written is in the log; nobody was told."""
        written = [record for effects in self.uncommitted for record in effects.records]
        self.log += written[: data.draw(st.integers(0, len(written)), label="records kept")]
        self.uncommitted.clear()
        self.waiting.clear()
        for client in self.clients:
            client.is_waiting = False
        self.void_actions += [action for action, _ in self.actions]
        self.actions.clear()
        self.load()

    @precondition(lambda self: self.actions)
    @rule(data=st.data())
    def write_a_marker(self, data: st.DataObject) -> None:
        action, left = data.draw(st.sampled_from(self.actions), label="action")
        partition = data.draw(st.sampled_from(sorted(left)), label="partition")
        self.mark(action, partition)
        left.remove(partition)
        if not left:
            self.actions.remove((action, left))
            self.take(self.shard.markers_written(action, self.now_ms))

    @precondition(lambda self: self.actions)
    @rule()
    def write_all_markers(self) -> None:
        actions, self.actions = self.actions, []
        for action, left in actions:
            for partition in left:
                self.mark(action, partition)
            self.take(self.shard.markers_written(action, self.now_ms))

    @precondition(lambda self: self.void_actions)
    @rule(data=st.data())
    def write_a_late_marker(self, data: st.DataObject) -> None:
        """Somebody did not hear of the restart."""
        action = data.draw(st.sampled_from(self.void_actions), label="action")
        self.mark(action, data.draw(st.sampled_from(action.partitions), label="partition"))
        self.take(self.shard.markers_written(action, self.now_ms))

    def mark(self, action: WriteMarkers, partition: TopicPartition) -> None:
        for transaction in self.partitions[partition].mark(action):
            self.ends[transaction].add(action.is_commit)

    @rule(duration_ms=st.sampled_from([10, 10, 10, 150, 200_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        deadline_ms = self.shard.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            self.take(self.shard.expire(self.now_ms))

    # The producers

    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    @rule(transactional_id=st.sampled_from(TRANSACTIONAL_IDS), is_v2=st.booleans())
    def appear(self, transactional_id: str, is_v2: bool) -> None:
        client = Client(transactional_id, is_v2=is_v2)
        self.clients.append(client)
        self.begin(client)

    def a_client(self, data: st.DataObject, fits: Callable[[Client], bool]) -> Client | None:
        able = [client for client in self.clients if not client.is_waiting and fits(client)]
        return data.draw(st.sampled_from(able), label="client") if able else None

    @rule(data=st.data(), goes_on=st.booleans())
    def init_again(self, data: st.DataObject, goes_on: bool) -> None:
        client = self.a_client(data, lambda client: client.producer is not None or not goes_on)
        if client is not None and client.producer is not None and goes_on:
            self.init(client, client.producer)
        elif client is not None:
            self.begin(client)

    def begin(self, client: Client) -> None:
        """Comes back, if it can, when the transaction of the one before it is aborted."""
        self.init(client, NOBODY)
        if self.actions and not client.is_waiting:
            self.write_all_markers()
            self.init(client, NOBODY)

    def init(self, client: Client, expected: Producer) -> None:
        request = requests.init(client.transactional_id, expected, timeout_ms=100)

        def answered(answer: m.InitProducerIdResponse) -> None:
            if answer.error_code == Error.NONE:
                client.start_over(requests.producer(answer.producer_id, answer.producer_epoch))
            elif answer.error_code != Error.CONCURRENT_TRANSACTIONS:
                assert answer.error_code == Error.PRODUCER_FENCED
                client.start_over(None)

        taken_id = self.taken_id(request)
        self.take(self.shard.init_producer_id(request, 5, taken_id, self.ask(client, answered), self.now_ms))

    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def add(self, data: st.DataObject, partition: TopicPartition) -> None:
        """Adds a partition and writes there at once."""
        client = self.a_client(data, lambda client: client.producer is not None and client.wish is None)
        if client is None or client.producer is None:
            return
        producer = client.producer

        def answered(answer: m.AddPartitionsToTxnResponse) -> None:
            error = answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code
            if error == Error.NONE:
                if client.transaction is None:
                    self.next_transaction += 1
                    client.transaction = self.next_transaction
                self.partitions[partition].write(producer, client.transaction)
            elif error != Error.CONCURRENT_TRANSACTIONS:
                assert error in GIVEN_UP
                client.start_over(None)

        reply_to = self.ask(client, answered)
        version = 2 if client.is_v2 else 0
        self.take(
            self.shard.add_partitions(client.transactional_id, producer, [partition], version, reply_to, self.now_ms)
        )

    @precondition(lambda self: not self.uncommitted and any(client.transaction for client in self.clients))
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def write_more(self, data: st.DataObject, partition: TopicPartition) -> None:
        """A partition's leader that has nothing of the transaction asks first, and is told what is committed."""
        client = self.a_client(data, lambda client: client.transaction is not None)
        if client is None or client.producer is None or client.transaction is None:
            return
        verified = self.shard.verify_partitions(client.transactional_id, client.producer, [partition])
        if verified[partition] is Error.NONE:
            self.partitions[partition].write(client.producer, client.transaction)

    @rule(data=st.data(), committed=st.sampled_from([True, True, False]))
    def end(self, data: st.DataObject, committed: bool) -> None:
        """Ends a transaction, or asks again for what it asked for before."""
        client = self.a_client(data, lambda client: client.producer is not None)
        if client is None or client.producer is None:
            return
        if client.transaction is None:
            committed = False
        client.wish = committed if client.wish is None else client.wish
        request = requests.end(client.transactional_id, client.producer, committed=client.wish)
        version = 5 if client.is_v2 else 4

        def answered(answer: m.EndTxnResponse) -> None:
            if answer.error_code == Error.NONE:
                assert client.wish is not None
                if client.transaction is not None:
                    assert self.promises.setdefault(client.transaction, client.wish) == client.wish
                after = requests.producer(answer.producer_id, answer.producer_epoch)
                client.start_over(after if client.is_v2 else client.producer)
            elif answer.error_code != Error.CONCURRENT_TRANSACTIONS:
                assert answer.error_code in GIVEN_UP
                client.start_over(None)

        taken_id = self.taken_id(request)
        self.take(self.shard.end(request, version, taken_id, self.ask(client, answered), self.now_ms))

    # What holds at all times

    @invariant()
    def a_transaction_ends_in_one_way(self) -> None:
        for transaction, ends in self.ends.items():
            assert len(ends) == 1, transaction
            assert self.promises.get(transaction, *ends) in ends, transaction

    @invariant()
    def the_log_tells_what_the_shard_tells(self) -> None:
        log = [*self.log, *(record for effects in self.uncommitted for record in effects.records)]
        assert state_of(replayed(log, SETTINGS)) == state_of(self.shard)

    @invariant()
    def epochs_never_fall(self) -> None:
        for transactional_id, record in state_of(replayed(self.log, SETTINGS)).items():
            assert isinstance(record.value, m.TransactionLogValue)
            now = requests.producer(record.value.producer_id, record.value.producer_epoch)
            before = self.latest.get(transactional_id, now)
            assert now.producer_id > before.producer_id or now.epoch >= before.epoch
            self.latest[transactional_id] = now

    @invariant()
    def what_is_decided_is_carried_out(self) -> None:
        actions = [action for effects in self.uncommitted for action in effects.actions] + [
            each for each, _ in self.actions
        ]
        under_way = {action.transactional_id for action in actions if isinstance(action, WriteMarkers)}
        for transactional_id, record in state_of(self.shard).items():
            assert isinstance(record.value, m.TransactionLogValue)
            state = TransactionState(record.value.transaction_status)
            is_open = state in SETTLED or state is TransactionState.ONGOING
            assert is_open != (transactional_id in under_way), record

    def teardown(self) -> None:
        """Everybody but the coordinator is gone: everything comes to an end."""
        self.change_pace(is_slow=False)
        for _ in range(5):
            self.write_all_markers()
            self.pass_time(150)
        self.a_transaction_ends_in_one_way()
        for record in state_of(self.shard).values():
            assert isinstance(record.value, m.TransactionLogValue)
            assert record.value.transaction_status in SETTLED, record
        assert not any(any(partition.open.values()) for partition in self.partitions.values())
        for transaction, is_commit in self.promises.items():
            assert self.ends[transaction] == {is_commit}, transaction


TestTransactionLife = TransactionLife.TestCase
TestTransactionLife.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
