"""Connections break, records arrive once and in order: what an idempotent producer promises."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import Client, ConsumerOptions, Message, ProducerOptions, Received, consume, values
from tests.clients.proxy import HOST, CuttingProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeNode
    from tests.peers import Peer

RECORDS = 6_000
PARTITIONS = 3
CALM_AFTER_S = 6.0


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    with CuttingProxy(seed=3, request_bytes=(3_000, 120_000), response_bytes=(1_500, 6_000)) as proxy:
        yield proxy


@pytest.fixture
def node_behind_proxy(make_node: MakeNode, proxy: CuttingProxy) -> Peer:
    """A node that clients reach by the proxy only."""
    peer = make_node({"advertised.listeners": f"PLAINTEXT://{HOST}:{proxy.port}"})
    proxy.target_port = peer.port
    return peer


def test_cut_connections_neither_lose_repeat_nor_reorder_records(
    library: type[Client], node_behind_proxy: Peer, proxy: CuttingProxy, topic: str
) -> None:
    proxy.calm()
    client = library(f"{HOST}:{proxy.port}")
    client.create_topic(topic, partitions=PARTITIONS)
    proxy.unleash()
    calming = threading.Timer(CALM_AFTER_S, proxy.calm)
    calming.start()
    try:
        sent = [Message(b"%d" % n + b"." * 100, b"key-%d" % (n % 50)) for n in range(RECORDS)]
        produced = client.produce(topic, sent, options=ProducerOptions(idempotent=True, linger_ms=1))
    finally:
        calming.cancel()
        calming.join()
        proxy.calm()
    assert proxy.cuts >= 3, "the proxy cut too little for the test to say anything"

    expected: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    for message, delivery in zip(sent, produced, strict=True):
        expected[delivery.partition].append(message.value)
    for partition, in_order in enumerate(expected):
        assert client.offset_range(topic, partition) == (0, len(in_order))
        if in_order:
            received = consume(client, topic, len(in_order), partition=partition)
            assert [r.value for r in received] == in_order


def test_a_consumer_reads_everything_in_order_through_cut_connections(
    library: type[Client], node_behind_proxy: Peer, proxy: CuttingProxy, topic: str
) -> None:
    proxy.calm()
    client = library(f"{HOST}:{proxy.port}")
    client.create_topic(topic)
    sent = [Message(b"%d" % n + b"." * 100) for n in range(RECORDS)]
    for start in range(0, RECORDS, 300):
        client.produce(topic, sent[start : start + 300])
    proxy.response_bytes = (60_000, 400_000)
    proxy.unleash()
    try:
        with client.consumer(topic, "beginning", options=ConsumerOptions(max_partition_bytes=30_000)) as consumer:
            received: list[Received] = []
            deadline = time.monotonic() + 60
            while len(received) < RECORDS and time.monotonic() < deadline:
                received += consumer.receive(RECORDS - len(received), deadline_s=1.0)
    finally:
        proxy.calm()
    assert proxy.cuts >= 1
    assert [r.offset for r in received] == list(range(RECORDS))
    assert [r.value for r in received] == [m.value for m in sent]


def test_what_an_application_sends_twice_is_stored_twice(client: Client, topic: str) -> None:
    client.create_topic(topic)
    idempotent = ProducerOptions(idempotent=True)
    client.produce(topic, [*values(3), *values(3)], options=idempotent)
    assert client.offset_range(topic) == (0, 6)


def test_what_a_new_producer_sends_again_is_stored_again(client: Client, topic: str) -> None:
    client.create_topic(topic)
    idempotent = ProducerOptions(idempotent=True)
    client.produce(topic, values(3), options=idempotent)
    client.produce(topic, values(3), options=idempotent)
    assert [r.value for r in consume(client, topic, 6)] == [m.value for m in [*values(3), *values(3)]]
