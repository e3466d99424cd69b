"""A broker for tests: real clients talk to it, it keeps what it has, and it ends with whoever started it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from barnabas.testing import Broker, Cluster, NodeError, Record
from barnabas.testing.kit.client_helpers import await_true
from barnabas.testing.kit.forks import fork_server


@pytest.fixture(scope="module")
def broker() -> Any:
    with Broker() as broker:
        yield broker


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"


def test_confluent_kafka_writes_what_is_expected(broker: Broker) -> None:
    topic = broker.create_topic(partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, f"value {number}", key=str(number))
    producer.flush(10)
    broker.expect(topic, [f"value {number}" for number in range(10)])


def test_kafka_python_writes_and_reads(broker: Broker) -> None:
    topic = broker.create_topic()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send(topic, b"from kafka-python").get(10)
    producer.close()
    broker.expect(topic, [b"from kafka-python"])
    broker.produce(topic, ["to kafka-python"])
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    assert [next(consumer).value, next(consumer).value] == [b"from kafka-python", b"to kafka-python"]
    consumer.close()


def test_aiokafka_in_an_event_loop() -> None:
    async def talk() -> None:
        async with Broker() as broker:
            topic = await broker.create_topic(partitions=2)
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
            await producer.start()
            await producer.send_and_wait(topic, b"hello")
            await producer.stop()
            await broker.expect(topic, ["hello"])
            consumer = AIOKafkaConsumer(
                topic, bootstrap_servers=broker.bootstrap, group_id="readers", auto_offset_reset="earliest"
            )
            await consumer.start()
            assert (await asyncio.wait_for(consumer.getone(), 10)).value == b"hello"
            await broker.wait_until_stable("readers", members=1)
            await consumer.commit()
            await broker.wait_until_no_lag("readers", topic)
            await broker.restart()
            await broker.expect(topic, ["hello"])
            await consumer.stop()

    asyncio.run(talk())


def test_expect_says_what_is_missing_and_what_is_too_much(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, ["a", "b", "b"])
    with pytest.raises(AssertionError, match=r"missing: b'c'; unexpected: b'b'$"):
        broker.expect(topic, ["a", "b", "c"], within_s=0.5)
    with pytest.raises(
        AssertionError, match=r"another order, from offset 0 on: b'a', b'b', b'b' instead of b'b', b'b'"
    ):
        broker.expect(topic, ["b", "b", "a"])
    with pytest.raises(AssertionError, match="unexpected: b'b', b'b'"):
        broker.expect(topic, ["a"])


def test_records_keep_keys_headers_partitions_and_times(broker: Broker) -> None:
    topic = broker.create_topic(partitions=2)
    sent = Record(b"v", b"k", (("h", b"1"),), partition=1, timestamp_ms=1_700_000_000_000)
    broker.produce(topic, [sent])
    assert broker.consume(topic, 1) == [sent._replace(offset=0)]


def test_a_group_is_stable_when_all_its_members_are_there_and_its_lag_counts_what_it_has_not_committed(
    broker: Broker,
) -> None:
    topic = broker.create_topic(partitions=2)
    broker.produce(topic, [Record(b"x", partition=0), Record(b"y", partition=1), Record(b"z", partition=1)])
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumers = [Consumer(settings | {"enable.auto.commit": False}) for _ in range(2)]
    try:
        for consumer in consumers:
            consumer.subscribe([topic])

        def all_joined() -> bool:
            for consumer in consumers:
                consumer.poll(0.05)
            return all(len(consumer.assignment()) == 1 for consumer in consumers)

        await_true(all_joined, "each has a partition", 20)
        broker.wait_until_stable(topic, members=2)
        with pytest.raises(AssertionError, match="it is STABLE with 2 members"):
            broker.wait_until_stable(topic, members=3, within_s=0.2)
        assert broker.lag(topic, topic) == {0: 1, 1: 2}
        with pytest.raises(AssertionError, match=r"by partition it is \{0: 1, 1: 2\}"):
            broker.wait_until_no_lag(topic, topic, within_s=0.2)
    finally:
        for consumer in consumers:
            consumer.close()


def test_the_marker_of_a_transaction_is_no_lag(broker: Broker) -> None:
    topic = broker.create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction")
    producer.commit_transaction(10)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message: Any = None
    while message is None:
        message = consumer.poll(10)
    consumer.commit(message=message, asynchronous=False)
    assert broker.lag(topic, topic) == {0: 1}
    broker.wait_until_no_lag(topic, topic)
    consumer.close()


def test_a_killed_broker_has_its_address_and_its_records_when_it_is_started_again() -> None:
    with Broker() as broker:
        topic = broker.create_topic()
        broker.produce(topic, ["kept"])
        before = broker.bootstrap
        broker.kill()
        assert not broker.is_running
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((broker.host, broker.port), 1)
        broker.start()
        assert broker.bootstrap == before
        broker.expect(topic, ["kept"])
        broker.stop()
        broker.start()
        broker.expect(topic, ["kept"])
        folder = broker.data_dir
    assert not folder.exists()


def test_a_setting_that_makes_no_sense_is_named() -> None:
    with pytest.raises(NodeError, match=r"num\.partitions"):
        Broker(settings={"num.partitions": "few"}).__enter__()


def test_further_brokers_are_forked_from_one_process_and_start_at_once() -> None:
    with Broker():
        forker = fork_server()
    took_s = []
    for _ in range(5):
        before = time.monotonic()
        with Broker():
            took_s.append(time.monotonic() - before)
    assert fork_server() is forker
    assert min(took_s) < 0.5  # 0.15 on an idle machine; this one may have others to serve


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("paused", [False, True])
def test_a_broker_ends_with_the_process_that_started_it(how: signal.Signals, paused: bool) -> None:
    program = textwrap.dedent(
        """
        import sys, time
        from barnabas.testing import Broker
        broker = Broker().start()
        if sys.argv[1] == "True":
            broker.pause()
        print(broker.pid, broker.data_dir.parent, flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", program, str(paused)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().split()
        assert is_alive(int(pid))
        assert Path(folder).exists()
        process.send_signal(how)
    await_true(lambda: not is_alive(int(pid)), "the broker has ended", 10)
    await_true(lambda: not Path(folder).exists(), "its folder is gone", 10)


def test_a_cluster_survives_the_loss_of_a_node() -> None:
    with Cluster(nodes=3) as cluster:
        topic = cluster.create_topic(partitions=3)
        cluster.produce(topic, ["before"])
        cluster.kill(3)
        cluster.produce(topic, ["meanwhile"], within_s=30)
        cluster.start_node(3)
        cluster[1].faults.delay(0.05, api="Fetch")
        cluster.produce(topic, ["after"])
        cluster.expect(topic, ["before", "meanwhile", "after"])


def test_a_cluster_in_an_event_loop() -> None:
    async def talk() -> None:
        async with Cluster(nodes=1) as cluster:
            topic = await cluster.create_topic()
            await cluster.produce(topic, ["x"])
            await cluster.kill(1)
            await cluster.start_node(1)
            await cluster.expect(topic, ["x"])

    asyncio.run(talk())


def test_importing_the_kit_neither_imports_pytest_nor_a_node() -> None:
    program = "import sys, barnabas.testing; from barnabas.testing import Broker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert not {"pytest", "confluent_kafka", "barnabas.node", "barnabas.protocol.messages", "uvloop"} & set(loaded)
