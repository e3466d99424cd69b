"""`barnabas transactions` on a real node."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from barnabas.client.admin.transactions import list_transactions
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.clients.adapter import values
from tests.peers import wait_until
from tests.wire import requests
from tests.wire.batches import TRANSACTIONAL, batch
from tests.wire.connection import Connection
from tests.wire.transactions import init, init_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.cluster import Cluster
    from tests.clients.barnabas_command.command import Barnabas
    from tests.clients.with_confluent import ConfluentClient
    from tests.peers import Peer

VERIFICATION = "transaction.partition.verification.enable"
HOUR_MS = 3_600_000


@pytest.fixture
def open_transaction(group_confluent: ConfluentClient, topic: str) -> Iterator[str]:
    """Two records in a transaction whose transactional id is the name of its topic."""
    group_confluent.create_topic(topic)
    producer = group_confluent.transactional_producer(topic)
    producer.begin()
    producer.send(topic, values(2))
    yield topic
    # One that was fenced says so again when it is closed.
    with contextlib.suppress(confluent_kafka.KafkaException):
        producer.close()


@pytest.fixture
def hanging(barnabas: Barnabas, group_node: Peer, topic: str) -> Iterator[str]:
    """A late write of a producer whose coordinator knows of no transaction, let in as brokers of old did."""
    barnabas.printed("config", "set", "broker", "default", f"{VERIFICATION}=false")
    with Connection(group_node.port) as connection:
        made = requests.create_topic(connection, topic)
        producer = init(connection, init_request(topic))
        records = batch(
            attributes=TRANSACTIONAL,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            timestamp_ms=int(time.time() * 1000) - HOUR_MS,
        )
        request = requests.produce_request(made, records, 11)
        request.transactional_id = topic

        def is_written() -> bool:
            ((answer,),) = (
                each.partition_responses for each in connection.call(request, 11, m.ProduceResponse).responses
            )
            return Error(answer.error_code) is Error.NONE

        wait_until(is_written, "the broker has heard that it verifies nothing")
    yield topic
    barnabas.printed("config", "unset", "broker", "default", VERIFICATION)


def test_an_open_transaction_is_listed_described_and_aborted(
    barnabas: Barnabas, open_transaction: str, cluster: Cluster
) -> None:
    name = open_transaction
    (row,) = [line for line in barnabas.printed("transactions", "list", "--open").splitlines() if name in line]
    assert re.fullmatch(rf"{name} +Ongoing +\d+ +0  [\d.]+ m?s +1 min +1 +1", row)
    described = barnabas.printed("transactions", "describe", name).splitlines()
    assert re.fullmatch(rf"{name}  Ongoing  producer \d+, epoch 0", described[0])
    assert described[-1] == f"  writes to: {name}, partitions 0"
    (facts,) = barnabas.facts("transactions", "describe", name)
    assert facts["partitions"] == [{"topic": name, "partition": 0}]
    assert 0 < facts["started_ms"] <= time.time() * 1000
    assert barnabas.printed("transactions", "hanging", "--topic", name, "--older-than", "1ms") == (
        "no transaction hangs\n"
    )

    assert "nothing was changed" in barnabas.complaint("transactions", "abort", name)
    assert barnabas.printed("transactions", "abort", name, "--yes").endswith(f"aborted {name}\n")
    wait_until(
        lambda: {each.transactional_id: each.state for each in list_transactions(cluster)}[name] != "Ongoing",
        "the transaction has ended",
    )
    assert barnabas.facts("transactions", "describe", name)[0]["started_ms"] is None


def test_a_hanging_transaction_is_found_and_aborted(barnabas: Barnabas, hanging: str) -> None:
    found = barnabas("transactions", "hanging", "--topic", hanging)
    assert found.code == 1
    command = f"barnabas transactions abort --partition {hanging}:0 --start-offset 0"
    assert found.out.splitlines()[-1].strip() == command
    assert found.out.splitlines()[1].split()[:3] == [hanging, "0", "0"]
    assert barnabas("transactions", "hanging", "--topic", hanging, "--older-than", "2h").code == 0
    words = command.split()[1:]
    wrong = barnabas.complaint(*words[:-1], "7", "--yes")
    assert f"no open transaction begins at offset 7 of {hanging}-0, but at: 0" in wrong
    assert barnabas.facts(*words, "--yes") == {"topic": hanging, "partition": 0, "start_offset": 0}
    assert barnabas.facts("transactions", "hanging", "--topic", hanging) == []


@pytest.mark.parametrize(
    ("words", "complaint", "code"),
    [
        (("describe", "nobody-at-all"), "transactional id 'nobody-at-all' does not exist", 1),
        (("abort", "nobody-at-all", "--yes"), "transactional id 'nobody-at-all' does not exist", 1),
        (("hanging", "--topic", "no-such-topic"), "topic 'no-such-topic' does not exist", 1),
        (("abort", "--yes"), "say which: a TRANSACTIONAL-ID, or --partition with --start-offset", 2),
        (("abort", "--partition", "t:0", "--yes"), "--partition and --start-offset belong together", 2),
        (("abort", "--partition", "t", "--yes"), "'t' is not TOPIC:0", 2),
        (("hanging", "--older-than", "soon"), "'soon' is no duration", 2),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    barnabas: Barnabas, words: tuple[str, ...], complaint: str, code: int
) -> None:
    assert complaint in barnabas.complaint("transactions", *words, code=code)
