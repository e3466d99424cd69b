"""Faults on demand, as clients see them: each does what it says, while it lasts, and nothing afterwards."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error
from barnabas.testing import Broker, Cluster, FaultError
from barnabas.testing.kit.client_helpers import await_true
from tests.wire.connection import ClosedError, Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

API_VERSIONS = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    yield shared
    shared.faults.heal()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic()


def write(broker: Broker, topic: str, value: str, **settings: Any) -> Any:
    """With confluent-kafka. Returns the error, None if there is none."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 10_000, "log_level": 0, **settings}
    )
    errors: list[Any] = []
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(15)
    return errors[0]


def test_an_error_is_answered_so_many_times_and_nothing_is_carried_out(broker: Broker, topic: str) -> None:
    fault = broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    assert write(broker, topic, "in the end") is None
    assert fault.struck == 3
    broker.expect(topic, ["in the end"])


def test_an_error_that_nobody_gets_over_reaches_the_application(broker: Broker, topic: str) -> None:
    with broker.faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED"):
        assert write(broker, topic, "never").name() == "TOPIC_AUTHORIZATION_FAILED"
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"never").get(10)
        producer.close()
    assert write(broker, topic, "now") is None
    broker.expect(topic, ["now"])


def test_consumers_get_over_errors_too(broker: Broker, topic: str) -> None:
    broker.produce(topic, ["x"])
    faults = [
        broker.faults.answer("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=1),
        broker.faults.answer("JOIN_GROUP", "COORDINATOR_LOAD_IN_PROGRESS", times=1),
        broker.faults.answer(ApiKey.FETCH, Error.NOT_LEADER_OR_FOLLOWER, times=2),
    ]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message: Any = None
    deadline = time.monotonic() + 20
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(1)
    assert message.value() == b"x"
    assert [fault.struck for fault in faults] == [1, 1, 2]
    consumer.close()


def test_an_admin_client_is_told_the_error_of_each_topic(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    with (
        broker.faults.answer("DeleteTopics", "TOPIC_DELETION_DISABLED"),
        pytest.raises(KafkaException, match="TOPIC_DELETION_DISABLED"),
    ):
        admin.delete_topics([topic])[topic].result(10)
    assert topic in admin.list_topics(timeout=10).topics


def test_a_lost_acknowledgement_doubles_what_is_not_idempotent_and_nothing_else(broker: Broker, topic: str) -> None:
    fault = broker.faults.drop_acknowledgements(times=1)
    assert write(broker, topic, "twice", **{"enable.idempotence": False}) is None
    assert fault.struck == 1
    broker.expect(topic, ["twice", "twice"])

    other = broker.create_topic()
    fault = broker.faults.drop_acknowledgements(times=2)
    assert write(broker, other, "once", **{"enable.idempotence": True}) is None
    assert fault.struck == 2
    broker.expect(other, ["once"])


def test_what_was_refused_has_no_acknowledgement_to_lose(broker: Broker, topic: str) -> None:
    lost = broker.faults.drop_acknowledgements(times=1)
    refused = broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert write(broker, topic, "once", **{"enable.idempotence": True}) is None
    assert (lost.struck, refused.struck) == (1, 2)
    broker.expect(topic, ["once"])


def test_aiokafka_survives_a_lost_acknowledgement(broker: Broker, topic: str) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True) as producer:
            broker.faults.drop_acknowledgements(times=1)
            await producer.send_and_wait(topic, b"once")

    asyncio.run(send())
    broker.expect(topic, ["once"])


def test_a_helper_says_that_an_acknowledgement_was_lost(broker: Broker, topic: str) -> None:
    broker.faults.drop_acknowledgements(times=1)
    with pytest.raises(AssertionError, match=r"1 of 1 records for .* were not acknowledged"):
        broker.produce(topic, ["written"], within_s=2)
    broker.expect(topic, ["written"])


def test_requests_are_delayed_one_by_one_and_go_on_afterwards(broker: Broker) -> None:
    with Connection(broker.port) as connection:
        with broker.faults.delay(0.2):
            before = time.monotonic()
            for _ in range(2):
                assert connection.call(API_VERSIONS, 3, m.ApiVersionsResponse).error_code == Error.NONE
            assert time.monotonic() - before >= 0.4
        with broker.faults.delay(60, api="Produce"):
            assert connection.call(API_VERSIONS, 3, m.ApiVersionsResponse).error_code == Error.NONE


def test_a_delayed_request_may_then_fail(broker: Broker, topic: str) -> None:
    broker.faults.delay(0.05)
    fault = broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
    assert write(broker, topic, "late") is None
    assert fault.struck == 1
    broker.faults.heal()
    broker.expect(topic, ["late"])


def test_connections_are_cut_and_refused_until_that_ends(broker: Broker, topic: str) -> None:
    with Connection(broker.port) as connection:
        assert connection.call(API_VERSIONS, 3, m.ApiVersionsResponse).error_code == Error.NONE
        with broker.faults.refuse_connections():
            assert connection.call(API_VERSIONS, 3, m.ApiVersionsResponse).error_code == Error.NONE
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((broker.host, broker.port), 5)
            broker.faults.cut_connections()
            with pytest.raises(ClosedError):
                connection.call(API_VERSIONS, 3, m.ApiVersionsResponse)
    assert write(broker, topic, "back") is None
    broker.expect(topic, ["back"])


def test_a_producer_waits_for_a_broker_that_is_away(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
    fault = broker.faults.refuse_connections()
    broker.faults.cut_connections()
    outcome: list[Any] = []
    producer.produce(topic, b"patience", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(1) == 1
    fault.end()
    assert producer.flush(15) == 0
    assert outcome == [None]


def test_a_full_disk_refuses_records_keeps_what_there_is_and_takes_them_again(topic: str, broker: Broker) -> None:
    broker.produce(topic, ["before"])
    with broker.faults.fill_disk() as fault:
        assert write(broker, topic, "no space", **{"message.timeout.ms": 1_000}) is not None
        fault.wait_until_struck()
        broker.expect(topic, ["before"])
    broker.produce(topic, ["after"])
    broker.expect(topic, ["before", "after"])


def test_a_disk_fills_up_after_so_many_bytes() -> None:
    with Broker() as broker:
        topic = broker.create_topic()
        broker.faults.fill_disk(free_bytes=100_000)
        taken = 0
        while write(broker, topic, "x" * 10_000, **{"message.timeout.ms": 1_500}) is None:
            taken += 1
        assert 5 <= taken <= 9
        broker.faults.heal()
        assert len(broker.consume(topic, taken)) == taken


def test_a_broker_that_cannot_sync_its_only_folder_stops_and_has_everything_when_it_returns() -> None:
    with Broker(settings={"log.flush.interval.messages": "1"}) as broker:
        topic = broker.create_topic()
        broker.produce(topic, ["safe"])
        broker.faults.fail_fsync()
        with pytest.raises(AssertionError):
            broker.produce(topic, ["in doubt"], within_s=2)
        await_true(lambda: not broker.is_running, "the broker has stopped", 30)
        assert "Input/output error" in broker.log_text()
        with pytest.raises(FaultError, match="the broker has ended"):
            broker.faults.fill_disk()
        broker.kill()
        broker.start()
        assert broker.consume(topic, 1)[0].value == b"safe"


def test_a_clock_jumps_forth_and_back(broker: Broker) -> None:
    topic = broker.create_topic(settings={"message.timestamp.type": "LogAppendTime"})
    day_ms = 24 * 3600 * 1000
    with broker.faults.jump_clock(24 * 3600):
        broker.produce(topic, ["tomorrow"])
    broker.produce(topic, ["today"])
    broker.faults.jump_clock(-24 * 3600)
    broker.produce(topic, ["yesterday"])
    now_ms = int(time.time() * 1000)
    ahead_ms = [(record.timestamp_ms or 0) - now_ms for record in broker.consume(topic, 3)]
    assert [round(each / day_ms) for each in ahead_ms] == [1, 0, -1]


def test_a_restart_ends_all_faults() -> None:
    with Broker() as broker:
        topic = broker.create_topic()
        broker.faults.fill_disk()
        with broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER") as fault:
            broker.kill()
            broker.start()
            broker.produce(topic, ["well"])
            with pytest.raises(FaultError, match="ended with the broker, which has been started again since"):
                _ = fault.struck


def test_the_last_of_several_full_disks_counts_until_it_ends(broker: Broker, topic: str) -> None:
    first = broker.faults.fill_disk(free_bytes=10_000_000)
    second = broker.faults.fill_disk()
    first.end()
    assert write(broker, topic, "no space", **{"message.timeout.ms": 500}) is not None
    second.end()
    assert write(broker, topic, "space") is None
    broker.expect(topic, ["space"])


def test_what_cannot_be_asked_for_is_said() -> None:
    broker = Broker()
    with pytest.raises(FaultError, match="the broker does not run"):
        broker.faults.fill_disk()
    with broker:
        with pytest.raises(FaultError, match="unknown API 'Prodce'; did you mean 'Produce'"):
            broker.faults.answer("Prodce", "NOT_LEADER_OR_FOLLOWER")
        with pytest.raises(FaultError, match="unknown error 'NOT_A_LEADER'"):
            broker.faults.answer("Produce", "NOT_A_LEADER")
        with pytest.raises(FaultError, match=r"struck 0 times within 0\.1 s, not 1"):
            broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER").wait_until_struck(within_s=0.1)


def test_faults_of_a_node_hit_clients_and_leave_the_cluster_whole() -> None:
    with Cluster(nodes=3) as cluster:
        topic = cluster.create_topic()
        for node_id in cluster.nodes:
            cluster[node_id].faults.answer("Fetch", "UNKNOWN_SERVER_ERROR")
            cluster[node_id].faults.drop_acknowledgements(times=1)
        # Replicated to both followers, whose own fetches are answered, and then not acknowledged, once.
        assert write(cluster[1], topic, "replicated", **{"enable.idempotence": True}) is None
        for node_id in cluster.nodes:
            cluster[node_id].faults.heal()
        cluster.expect(topic, ["replicated"])
