"""Clients go on when the node that leads their partition, or coordinates their group or transactions, is killed: what
was acknowledged is there, once and in order."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.clients.adapter import ConsumerOptions, Message, values
from tests.peers import wait_until

from interop import kafka_tools
from interop.clusters import DEADLINE_S, FOR_TRANSACTIONS, coordinator_of, end_offsets, leader_of, without

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.adapter import Isolation
    from tests.clients.with_confluent import ConfluentClient

    from interop.clusters import ThreeNodes
    from interop.programs import Program

PARTITIONS = 3
RECORDS, SOON = 1_500, 100
"""A node is killed after some of the records."""
RECORDS_PER_S = 300
"""How fast the producer that verifies itself sends: not all of them before a node is killed."""
LAST = b"last"

pytestmark = pytest.mark.on("three nodes")


def wait_for_some(cluster: ThreeNodes, topic: str, partitions: int = PARTITIONS) -> None:
    wait_until(lambda: end_offsets(cluster, topic, partitions) >= SOON, f"{topic} has {SOON} records", DEADLINE_S)
    assert end_offsets(cluster, topic, partitions) < RECORDS, "all was written before anything could fail"


def read_all(
    client: ConfluentClient, topic: str, partition: int, isolation: Isolation = "read_uncommitted"
) -> list[str]:
    """All that is in a partition, up to a record that is written for this."""
    client.produce(topic, [Message(LAST)], partition=partition)
    found: list[bytes | None] = []
    options = ConsumerOptions(isolation=isolation)
    with client.consumer(topic, "beginning", partition=partition, options=options) as consumer:
        while LAST not in found[-1:]:
            received = consumer.receive(1)
            assert received, f"{topic}-{partition} ends after {len(found)} records"
            found += [each.value for each in received]
    return [(value or b"").decode() for value in found[:-1]]


def test_writes_of_franz_go_go_on_without_their_leader(
    franz_go: Program, three_nodes: ThreeNodes, client: ConfluentClient, topic: str
) -> None:
    write_without_leader(franz_go, three_nodes, client, topic)


def test_writes_of_kafkajs_go_on_without_their_leader(
    kafkajs: Program, three_nodes: ThreeNodes, client: ConfluentClient, topic: str
) -> None:
    write_without_leader(kafkajs, three_nodes, client, topic)


def write_without_leader(program: Program, cluster: ThreeNodes, client: ConfluentClient, topic: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(program.run, "steady-writes", topic=topic, records=RECORDS)
        wait_for_some(cluster, topic)
        with without(cluster, leader_of(cluster, topic)):
            assert writing.result() == RECORDS
    for partition in range(PARTITIONS):
        expected = [f"value-{number}" for number in range(partition, RECORDS, PARTITIONS)]
        assert read_all(client, topic, partition) == expected


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_verifiable_clients_go_on_without_a_leader_that_coordinates_their_group(
    three_nodes: ThreeNodes, client: ConfluentClient, topic: str, group: str, protocol: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    config = tmp_path / "producer.properties"
    config.write_text("enable.idempotence=true\nretries=2147483647\n")  # the tool gives up at once otherwise
    of_topic = ("--bootstrap-server", three_nodes.bootstrap, "--topic", topic, "--max-messages", str(RECORDS))
    produce = (*of_topic, "--throughput", str(RECORDS_PER_S), "--acks", "-1", "--command-config", str(config))
    consume = (*of_topic, "--group-id", group, "--group-protocol", protocol, "--reset-policy", "earliest", "--verbose")
    with ThreadPoolExecutor(2) as threads:
        consuming = threads.submit(kafka_tools.attempt, "kafka-verifiable-consumer", *consume)
        producing = threads.submit(kafka_tools.attempt, "kafka-verifiable-producer", *produce)
        wait_for_some(three_nodes, topic)
        with without(three_nodes, coordinator_of(three_nodes, group)):
            sent, received = events(producing.result().stdout), events(consuming.result().stdout)
    assert [each["value"] for each in of_kind(sent, "producer_send_error")] == []
    assert (sent[-1]["sent"], sent[-1]["acked"]) == (RECORDS, RECORDS)
    places = {(each["partition"], each["offset"]): int(each["value"]) for each in of_kind(received, "record_data")}
    assert sorted(places.values()) == list(range(RECORDS))
    for partition in range(PARTITIONS):
        of_partition = [places[place] for place in sorted(places) if place[0] == partition]
        assert of_partition == sorted(of_partition)
    assert of_kind(received, "offsets_committed")[-1]["success"]


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def of_kind(all_events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [each for each in all_events if each["name"] == name]


def test_kafkas_transactional_copier_goes_on_without_its_coordinator(
    three_nodes: ThreeNodes, client: ConfluentClient, topic: str, group: str
) -> None:
    source, copy = f"{topic}-source", f"{topic}-copy"
    for name in (source, copy):
        client.create_topic(name, replication_factor=3)
    client.produce(source, values(RECORDS))
    words = ["--broker-list", three_nodes.bootstrap, "--input-topic", source, "--input-partition", "0"]
    words += ["--output-topic", copy, "--transactional-id", topic, "--consumer-group", group]
    words += ["--transaction-size", "10", "--enable-random-aborts", "--group-mode", "--use-group-metadata"]
    with ThreadPoolExecutor(1) as threads:
        copying = threads.submit(kafka_tools.attempt, "transactional-message-copier", *words)
        wait_for_some(three_nodes, copy, partitions=1)
        with without(three_nodes, coordinator_of(three_nodes, topic, FOR_TRANSACTIONS)):
            done = copying.result()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert read_all(client, copy, 0, "read_committed") == [f"value-{number}" for number in range(RECORDS)]


def test_a_session_of_franz_go_goes_on_without_its_coordinator(
    franz_go: Program, three_nodes: ThreeNodes, client: ConfluentClient, topic: str, group: str
) -> None:
    """The group and the transactions in which it commits have the same name."""
    with ThreadPoolExecutor(1) as threads:
        copying = threads.submit(franz_go.run, "group-session", topic=topic, group=group, records=RECORDS, batch=20)
        wait_for_some(three_nodes, f"{topic}-output", partitions=1)
        with without(three_nodes, coordinator_of(three_nodes, group)):
            seen = copying.result()
    expected = sorted(f"value-{number:02}" for number in range(RECORDS))
    assert (seen["output"], seen["offset"]) == (expected, RECORDS)
    assert sorted(read_all(client, f"{topic}-output", 0, "read_committed")) == expected
