"""A shard and Apache Kafka are asked the same, request by request, and give the same answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tools import apache_kafka

from barnabas.client.broker_connection import Connection
from barnabas.coordination.effects import ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch, decode_records, iter_headers
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record as LogRecord
from barnabas.transactions import transaction_records
from tests.unit.transactions import requests
from tests.unit.transactions.pair import ABORT_INTERVAL_MS, LAST_EPOCH, SECONDS_MAX, USED_UP, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.coordination.effects import Record

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.usefixtures("apache_kafka_runs"),
    pytest.mark.timeout(300),  # Kafka starts twice
]

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(ABORT_INTERVAL_MS),
}
TOPIC = "foo"


@pytest.fixture(scope="module")
def node() -> Iterator[apache_kafka.KafkaNode]:
    """Has found, at its last start, what we wrote into its log."""
    with apache_kafka.KafkaNode(properties=SETTINGS) as node:
        with Connection(node.host, node.port) as connection:
            topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=1)
            connection.send(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
            wait_for_coordinator(connection)
        node.stop()
        append_to_log(node, USED_UP)
        node.start()
        yield node


def append_to_log(node: apache_kafka.KafkaNode, log: list[Record]) -> None:
    file = node.data_dir / "__transaction_state-0" / "00000000000000000000.log"
    headers = [header for _, header in iter_headers(file.read_bytes())]
    pairs = [transaction_records.encode(record) for record in log]
    batch = build_batch(
        [LogRecord(key=key, value=value, timestamp=1) for key, value in pairs],
        base_offset=headers[-1].last_offset + 1,
        leader_epoch=headers[-1].partition_leader_epoch,
    )
    with file.open("ab") as end:
        end.write(batch)


@pytest.fixture(scope="module")
def kafka(node: apache_kafka.KafkaNode) -> Iterator[Connection]:
    with Connection(node.host, node.port, client_id="client") as connection:
        wait_for_coordinator(connection)
        yield connection


def wait_for_coordinator(connection: Connection) -> None:
    """The one of transactions, and a producer id to hand out."""
    deadline = time.monotonic() + SECONDS_MAX
    errors: list[int] = [Error.COORDINATOR_NOT_AVAILABLE]
    while any(errors):
        found = connection.send(m.FindCoordinatorRequest(key_type=1, coordinator_keys=["any"]), 5)
        listed = connection.send(m.ListTransactionsRequest(), 1)
        begun = connection.send(requests.init("first of all"), 5)
        given = connection.send(requests.init(None), 5)
        errors = [found.coordinators[0].error_code, listed.error_code, begun.error_code, given.error_code]
        assert time.monotonic() < deadline, errors
        time.sleep(0.05)


@pytest.fixture
def pair(kafka: Connection) -> Pair:
    return Pair(kafka, USED_UP)


def test_producers_begin_and_fence_each_other(pair: Pair) -> None:
    first = pair.init("begin")
    second = pair.init("begin")
    assert second == (first.producer_id, first.epoch + 1)
    pair.describe("begin")
    for version in (0, 1, 3, 4, 5):
        pair.init("begin", version=version)
    for version in (3, 4, 5):
        pair.init("begin", first, version)
    pair.init("begin", requests.producer(first.producer_id + 1_000, 0))
    pair.init("new", requests.producer(first.producer_id + 1_000, 5))


def test_a_producer_goes_on_after_an_error(pair: Pair) -> None:
    producer = pair.init("go on")
    bumped = pair.init("go on", producer)
    assert bumped == (producer.producer_id, producer.epoch + 1)
    assert pair.init("go on", producer) == bumped, "asked again"
    assert pair.init("go on", bumped).epoch == bumped.epoch + 1
    pair.init("go on", producer)
    pair.init("go on", requests.producer(producer.producer_id, 300))


def test_requests_that_nobody_may_make(pair: Pair) -> None:
    for version in (0, 5):
        pair.init("", version=version)
        for timeout_ms in (0, -1, 900_000, 900_001):
            pair.init("timeouts", version=version, timeout_ms=timeout_ms)
    pair.init("half", requests.producer(5, -1))
    pair.init("half", requests.producer(-1, 5))
    pair.describe("", "none such", "half")
    producer = requests.producer(5, 0)
    for version in (0, 4, 5):
        for transactional_id in ("", "none such"):
            pair.ask(requests.end(transactional_id, producer, committed=True), version)
    for transactional_id in ("", "none such"):
        pair.ask(requests.add_by_client(transactional_id, producer, foo=[0]), 3)
        pair.ask(requests.add_by_broker(transactional_id, producer, foo=[0]), 5)
        pair.ask(requests.add_by_broker(transactional_id, producer, verify_only=True, foo=[0, 1]), 5)


def test_transactions_before_version_2(pair: Pair) -> None:
    producer = pair.init("v1")
    for committed in (True, False):
        pair.ask(requests.end("v1", producer, committed=committed), 4)
        pair.ask(requests.add_by_client("v1", producer, foo=[1]), 3)
        pair.ask(requests.add_by_client("v1", producer, foo=[0, 1]), 0)
        pair.ask(requests.add_by_client("v1", producer, foo=[0]), 2)
        pair.describe("v1")
        pair.end("v1", producer, 4, committed=committed)
        pair.ask(requests.end("v1", producer, committed=committed), 4)
        pair.ask(requests.end("v1", producer, committed=not committed), 4)
    for wrong in (requests.producer(producer.producer_id, 9), requests.producer(producer.producer_id + 1, 0)):
        for version in (0, 1, 2, 3):
            pair.ask(requests.add_by_client("v1", wrong, foo=[2]), version)
        for version in (0, 1, 2, 4):
            pair.ask(requests.end("v1", wrong, committed=True), version)


def test_transactions_of_version_2(pair: Pair) -> None:
    producer = pair.init("v2")
    for committed in (True, False):
        pair.ask(requests.end("v2", producer, committed=True), 5)
        pair.ask(requests.add_by_broker("v2", producer, foo=[1]), 5)
        pair.ask(requests.add_by_broker("v2", producer, foo=[0, 1]), 4)
        pair.ask(requests.add_by_broker("v2", producer, verify_only=True, foo=[0, 1, 2]), 5)
        pair.describe("v2")
        after = pair.end("v2", producer, committed=committed)
        assert after == (producer.producer_id, producer.epoch + 1)
        pair.ask(requests.end("v2", producer, committed=committed), 5)
        pair.ask(requests.end("v2", producer, committed=not committed), 5)
        pair.ask(requests.end("v2", requests.producer(producer.producer_id, 900), committed=committed), 5)
        pair.ask(requests.add_by_broker("v2", producer, foo=[0]), 5)
        pair.ask(requests.add_by_broker("v2", producer, verify_only=True, foo=[0]), 5)
        producer = after


def test_an_abort_of_nothing_in_version_2(pair: Pair) -> None:
    producer = pair.init("nothing")
    producer = pair.end("nothing", producer, committed=False)
    again = pair.end("nothing", producer, committed=False)
    assert again == (producer.producer_id, producer.epoch + 1)
    pair.ask(requests.add_by_broker("nothing", again, foo=[0]), 5)
    producer = pair.end("nothing", again, committed=True)
    pair.end("nothing", producer, committed=False)
    pair.init("nothing")


def test_versions_of_transactions_mixed(pair: Pair) -> None:
    producer = pair.ongoing("mixed")
    pair.end("mixed", producer, 3, committed=True)
    pair.ask(requests.end("mixed", producer, committed=True), 5)
    pair.ask(requests.add_by_client("mixed", producer, foo=[0]), 3)
    producer = pair.end("mixed", producer, 5, committed=False)
    pair.ask(requests.end("mixed", producer, committed=False), 4)
    pair.init("mixed", producer)


def test_a_producer_that_begins_aborts_what_the_one_before_left(pair: Pair) -> None:
    zombie = pair.ongoing("fence")
    pair.init("fence")  # not yet
    pair.settle("fence")
    pair.ask(requests.end("fence", zombie, committed=True), 5)
    pair.ask(requests.end("fence", zombie, committed=False), 5)
    pair.ask(requests.end("fence", zombie, committed=False), 4)
    pair.ask(requests.add_by_broker("fence", zombie, foo=[0]), 5)
    successor = pair.init("fence")
    assert successor == (zombie.producer_id, zombie.epoch + 2)
    pair.ask(requests.end("fence", zombie, committed=False), 5)
    pair.init("fence", zombie)


def test_a_transaction_that_takes_too_long_is_aborted(pair: Pair) -> None:
    producer = pair.ongoing("slow", timeout_ms=1)
    pair.time_out("slow")
    pair.ask(requests.end("slow", producer, committed=True), 5)
    pair.ask(requests.end("slow", producer, committed=True), 4)
    pair.ask(requests.end("slow", producer, committed=False), 5)
    assert pair.init("slow", producer).epoch == producer.epoch + 1


def test_a_producer_without_epochs_left_gets_a_new_id(pair: Pair) -> None:
    last = requests.producer(9_000, LAST_EPOCH)
    pair.describe("used up 0")
    new = pair.init("used up 0", last)
    assert new.epoch == 0
    assert pair.init("used up 0", last) == new, "asked again"
    pair.init("used up 0", requests.producer(9_000, 5))
    assert pair.init("used up 1").epoch == 0


@pytest.mark.parametrize("number", [2, 3])
def test_the_end_of_a_transaction_in_the_last_epoch_gives_a_new_id(pair: Pair, number: int) -> None:
    name, last = f"used up {number}", requests.producer(9_000 + number, LAST_EPOCH)
    pair.ask(requests.add_by_broker(name, last, foo=[0, 2]), 5)
    new = pair.end(name, last, committed=number == 2)
    assert new.epoch == 0
    for committed in (True, False):
        pair.ask(requests.end(name, last, committed=committed), 5)
    pair.init(name, last)
    pair.ask(requests.add_by_broker(name, new, foo=[0]), 5)
    pair.ask(requests.end(name, last, committed=True), 5)
    pair.end(name, new, committed=True)


def test_fencing_the_last_epoch_leads_to_a_new_id(pair: Pair) -> None:
    name, zombie = "used up 4", requests.producer(9_004, LAST_EPOCH)
    pair.ask(requests.add_by_broker(name, zombie, foo=[0]), 5)
    pair.init(name)
    pair.settle(name)
    pair.ask(requests.end(name, zombie, committed=False), 5)
    pair.ask(requests.end(name, zombie, committed=True), 5)
    assert pair.init(name).epoch == 1


def test_transactions_are_listed(pair: Pair) -> None:
    first, second, third = (pair.ongoing(each).producer_id for each in ("list-1", "list-2", "list.3"))
    pair.end("list-1", requests.producer(first, 0), committed=True)
    ours = "list.*"
    for pattern in (ours, "list-.", "list", r"list\.3", "LIST.*", "(?i)LIST.*", "list-1|list-2"):
        pair.ask(m.ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    for states in (
        ["Ongoing"],
        ["CompleteCommit", "Ongoing"],
        ["Dead"],
        ["ongoing"],
        ["nonsense", "Empty", "nonsense"],
    ):
        pair.ask(m.ListTransactionsRequest(state_filters=states, transactional_id_pattern=ours), 2)
    for ids in ([first], [second, third], [third, ProducerId(987_654)]):
        pair.ask(m.ListTransactionsRequest(producer_id_filters=[*map(int, ids)], state_filters=["Ongoing"]), 0)
    for duration_ms in (-1, 3_600_000):
        pair.ask(m.ListTransactionsRequest(duration_filter=duration_ms, producer_id_filters=[first, second]), 1)


def test_both_write_the_same_records(pair: Pair, node: apache_kafka.KafkaNode) -> None:
    name = "recorded"
    producer = pair.ongoing(name)
    pair.ask(requests.add_by_client(name, producer, foo=[2]), 3)
    producer = pair.end(name, producer, committed=True)
    producer = pair.end(name, producer, committed=False)
    producer = pair.init(name, producer)
    pair.ask(requests.add_by_client(name, producer, foo=[1]), 3)
    pair.end(name, producer, 4, committed=False)
    pair.ask(requests.add_by_broker(name, producer, foo=[0]), 5)
    pair.init(name)
    pair.settle(name)
    pair.init(name, timeout_ms=1)

    theirs = without_times(written_by(node, name))
    assert theirs == without_times(pair.log)
    for record in pair.log:
        assert transaction_records.decode(*transaction_records.encode(record)) == record


def written_by(node: apache_kafka.KafkaNode, transactional_id: str) -> list[Record]:
    """What Kafka's log says of a transactional id, read by us and found to be what we write."""
    data = (node.data_dir / "__transaction_state-0" / "00000000000000000000.log").read_bytes()
    read = []
    for position, header in iter_headers(data):
        for each in decode_records(data[position : position + header.size]):
            record = transaction_records.decode(each.key, each.value)
            assert record is not None
            assert transaction_records.encode(record) == (each.key, each.value)
            assert isinstance(record.key, m.TransactionLogKey)
            if record.key.transactional_id == transactional_id:
                read.append(record)
    return read


def without_times(log: list[Record]) -> list[Record]:
    for _, value in log:
        assert isinstance(value, m.TransactionLogValue)
        value.transaction_last_update_timestamp_ms = min(value.transaction_last_update_timestamp_ms, 1)
        value.transaction_start_timestamp_ms = min(value.transaction_start_timestamp_ms, 1)
        for topic in value.transaction_partitions or ():
            topic.partition_ids = sorted(topic.partition_ids)
    return log
