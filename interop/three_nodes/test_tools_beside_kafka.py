"""Kafka's tools of clusters print of our three nodes what they print of Apache Kafka's, whichever listener they ask."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.clients.adapter import values
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until

from interop.clusters import DEADLINE_S, coordinator_of, end_offsets, without
from interop.three_nodes.side_by_side import BROKERS, CONTROLLERS, printed

if TYPE_CHECKING:
    from pathlib import Path

    from interop.clusters import ThreeNodes
    from interop.three_nodes.side_by_side import Pair, Printed

TOPIC, GROUP = "compared", "readers"
ASSIGNMENT = "1:2:3,2:3:1,3:1:2"
"""The first replica of each partition leads it, in both clusters."""
PARTITIONS, RECORDS, PLACE = 3, 10, 4
BOTH_LISTENERS = pytest.mark.parametrize(
    "listener",
    [("--bootstrap-server", BROKERS), ("--bootstrap-controller", CONTROLLERS)],
    ids=["brokers", "controllers"],
)

Listener = tuple[str, str]


@pytest.fixture(scope="module")
def filled(pair: Pair) -> Pair:
    """A topic on each cluster with the same replicas and records, and a group that has read some of them."""
    create = ("--create", "--topic", TOPIC, "--replica-assignment", ASSIGNMENT, "--config", "retention.ms=86400000")
    ours, kafkas = pair.print_of("kafka-topics", "--bootstrap-server", BROKERS, *create)
    assert ours == kafkas
    assert ours.code == 0
    for cluster in pair:
        client = ConfluentClient(cluster.bootstrap)
        for partition in range(PARTITIONS):
            client.produce(TOPIC, values(RECORDS + partition), partition=partition)
    reset = ("--group", GROUP, "--topic", TOPIC, "--reset-offsets", "--to-offset", str(PLACE), "--execute")
    ours, kafkas = pair.print_of("kafka-consumer-groups", "--bootstrap-server", BROKERS, *reset)
    assert ours == kafkas
    assert ours.code == 0
    return pair


def same(shown: tuple[Printed, Printed], *, code: int = 0) -> list[str]:
    """The lines that a tool prints of both clusters."""
    ours, kafkas = shown
    assert ours == kafkas
    assert ours.code == code
    assert ours.lines
    return ours.lines


def test_kafka_topics_describes_leaders_and_replicas(filled: Pair) -> None:
    lines = same(filled.print_of("kafka-topics", "--bootstrap-server", BROKERS, "--describe", "--topic", TOPIC))
    assert [line.partition("Leader: ")[2].partition(" Elr")[0] for line in lines[1:]] == [
        "1 Replicas: 1,2,3 Isr: 1,2,3",
        "2 Replicas: 2,3,1 Isr: 1,2,3",
        "3 Replicas: 3,1,2 Isr: 1,2,3",
    ]


@BOTH_LISTENERS
def test_kafka_metadata_quorum_describes_the_quorum(filled: Pair, listener: Listener) -> None:
    status = same(filled.print_of("kafka-metadata-quorum", *listener, "describe", "--status", numbers=False))
    (voters,) = [line for line in status if line.startswith("CurrentVoters")]
    assert [
        f'"endpoints": ["CONTROLLER://127.0.0.1:controller-port-{node_id}"]' in voters for node_id in (1, 2, 3)
    ] == [True] * 3
    rows = same(filled.print_of("kafka-metadata-quorum", *listener, "describe", "--replication", numbers=False))
    assert sorted(line.rpartition(" ")[2] for line in rows) == ["Follower", "Follower", "Leader", "Status"]


@BOTH_LISTENERS
def test_kafka_cluster_tells_its_id_and_its_endpoints(filled: Pair, listener: Listener) -> None:
    assert same(filled.print_of("kafka-cluster", "cluster-id", *listener)) == ["Cluster ID: ID"]
    endpoints = same(filled.print_of("kafka-cluster", "list-endpoints", *listener))
    kind = "broker" if listener[1] == BROKERS else "controller"
    assert [line.split()[:3] for line in endpoints[1:]] == [
        [str(node_id), "127.0.0.1", f"{kind}-port-{node_id}"] for node_id in (1, 2, 3)
    ]


@BOTH_LISTENERS
def test_kafka_cluster_refuses_to_unregister_a_broker_that_is_not_registered(filled: Pair, listener: Listener) -> None:
    (*_, refusal) = same(filled.print_of("kafka-cluster", "unregister", *listener, "--id", "99"), code=1)
    assert "BrokerIdNotRegisteredException" in refusal


@BOTH_LISTENERS
def test_kafka_features_describes_what_is_finalized(filled: Pair, listener: Listener) -> None:
    features = same(filled.print_of("kafka-features", *listener, "describe", numbers=False))
    assert any("Feature: metadata.version" in line for line in features)


@BOTH_LISTENERS
def test_kafka_configs_changes_and_describes_settings_of_brokers(filled: Pair, listener: Listener) -> None:
    of_all = ("--entity-type", "brokers", "--entity-default")
    of_one = ("--entity-type", "brokers", "--entity-name", "2")
    same(filled.print_of("kafka-configs", *listener, *of_all, "--alter", "--add-config", "log.cleaner.threads=2"))
    same(filled.print_of("kafka-configs", *listener, *of_one, "--alter", "--add-config", "log.cleaner.threads=3"))
    described = [same(filled.print_of("kafka-configs", *listener, *each, "--describe")) for each in (of_all, of_one)]
    assert any("log.cleaner.threads=2" in line for line in described[0])
    assert any("log.cleaner.threads=3" in line for line in described[1])


def test_kafka_configs_changes_and_describes_settings_of_topics(filled: Pair) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", TOPIC)
    brokers, controllers = ("--bootstrap-server", BROKERS), ("--bootstrap-controller", CONTROLLERS)
    same(filled.print_of("kafka-configs", *controllers, *of_topic, "--alter", "--add-config", "segment.ms=7000000"))
    described = same(filled.print_of("kafka-configs", *brokers, *of_topic, "--describe"))
    assert any("segment.ms=7000000" in line for line in described)
    (refused,) = same(filled.print_of("kafka-configs", *controllers, *of_topic, "--describe"), code=1)
    assert "UnsupportedEndpointTypeException" in refused


def test_kafka_get_offsets_asks_the_leaders(filled: Pair) -> None:
    lines = same(filled.print_of("kafka-get-offsets", "--bootstrap-server", BROKERS, "--topic", TOPIC))
    assert lines == [f"{TOPIC}:{partition}:{RECORDS + partition}" for partition in range(PARTITIONS)]


def test_kafka_consumer_groups_finds_the_coordinator_through_any_node(filled: Pair) -> None:
    describe = ("--describe", "--group", GROUP)
    lines = same(filled.print_of("kafka-consumer-groups", "--bootstrap-server", BROKERS, *describe))
    assert [line.split()[1:6] for line in lines if line.startswith(GROUP)] == [
        [TOPIC, str(partition), str(PLACE), str(RECORDS + partition), str(RECORDS + partition - PLACE)]
        for partition in range(PARTITIONS)
    ]
    for cluster in filled:
        elsewhere = next(each for each in cluster.nodes if each != coordinator_of(cluster, GROUP))
        through_another = ("--bootstrap-server", cluster.nodes[elsewhere].bootstrap, *describe)
        assert printed(cluster, "kafka-consumer-groups", through_another).lines == lines


def test_kafka_broker_api_versions_asks_all_three(filled: Pair) -> None:
    ours, kafkas = filled.print_of("kafka-broker-api-versions", "--bootstrap-server", BROKERS)
    brokers = [[line for line in shown.lines if "->" in line] for shown in (ours, kafkas)]
    assert sorted(brokers[0]) == sorted(brokers[1])
    assert len(brokers[0]) == 3
    # Which of them are served yet, docs/compatibility.md tells. The versions of those that are served are the same.
    served = {line for line in ours.lines if "UNSUPPORTED" not in line and "->" not in line}
    assert served <= set(kafkas.lines)


def test_kafka_transactions_finds_coordinators_on_all_nodes(filled: Pair) -> None:
    ids = [f"compared-{number}" for number in range(4)]
    for cluster in filled:
        client = ConfluentClient(cluster.bootstrap)
        for transactional_id in ids:
            producer = client.transactional_producer(transactional_id)
            producer.begin()
            producer.send(TOPIC + "-transactions", values(1))
            producer.abort()
            producer.close()
    shown = filled.print_of("kafka-transactions", "--bootstrap-server", BROKERS, "list", numbers=False)
    # Other checks have left transactional ids of theirs on our cluster.
    wanted = ("TransactionalId", *ids)
    ours, kafkas = ([line for line in each.lines if line.startswith(wanted)] for each in shown)
    assert ours == kafkas
    assert [line.split()[0] for line in ours] == ["TransactionalId", *ids]


def test_a_node_that_is_down_and_back_is_shown_alike(filled: Pair, tmp_path: Path) -> None:
    elections = tmp_path / "partitions.json"
    wanted = [{"topic": TOPIC, "partition": partition} for partition in range(PARTITIONS)]
    elections.write_text(json.dumps({"partitions": wanted}))
    elect = ("kafka-leader-election", "--bootstrap-server", BROKERS, "--path-to-json-file", str(elections))
    describe = ("kafka-topics", "--bootstrap-server", BROKERS, "--describe")
    with without(filled.ours, 3), without(filled.kafkas, 3):
        for cluster in filled:
            wait_until(lambda cluster=cluster: is_fenced(cluster, 3), "the dead node is fenced", DEADLINE_S)  # type: ignore[misc]
        missed = same(filled.print_of(*describe, "--topic", TOPIC, "--under-replicated-partitions"))
        assert [line.partition("Leader: ")[2].split(" Elr")[0] for line in missed] == [
            "1 Replicas: 1,2,3 Isr: 1,2",
            "2 Replicas: 2,3,1 Isr: 1,2",
            "1 Replicas: 3,1,2 Isr: 1,2",
        ]
        at_minimum = same(filled.print_of(*describe, "--topic", TOPIC, "--at-min-isr-partitions"))
        assert len(at_minimum) == PARTITIONS
        endpoints = ("list-endpoints", "--bootstrap-server", BROKERS, "--include-fenced-brokers")
        fenced = same(filled.print_of("kafka-cluster", *endpoints))
        assert [line.split()[4] for line in fenced[1:]] == ["unfenced", "unfenced", "fenced"]
        refused = same(filled.print_of(*elect, "--election-type", "PREFERRED"), code=1)
        assert any("PreferredLeaderNotAvailableException" in line for line in refused)
    elected = same(filled.print_of(*elect, "--election-type", "PREFERRED"))
    assert f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-2" in elected
    again = same(filled.print_of(*elect, "--election-type", "UNCLEAN"))
    assert again[0].startswith("Valid replica already elected for partitions")
    back = same(filled.print_of(*describe, "--topic", TOPIC))
    assert "Leader: 3 Replicas: 3,1,2" in back[3]


def is_fenced(cluster: ThreeNodes, node_id: int) -> bool:
    shown = printed(
        cluster, "kafka-cluster", ("list-endpoints", "--bootstrap-server", BROKERS, "--include-fenced-brokers")
    )
    return any(line.split()[0] == str(node_id) and "unfenced" not in line for line in shown.lines[1:])


def test_records_go_through_the_console_with_all_replicas_in_sync(filled: Pair) -> None:
    lines = [f"line {number}" for number in range(50)]
    topic = TOPIC + "-console"
    produce = ("--bootstrap-server", BROKERS, "--topic", topic, "--command-property", "acks=all")
    for cluster in filled:
        assert printed(cluster, "kafka-console-producer", produce, input_text="\n".join(lines)).code == 0
        wait_until(lambda cluster=cluster: end_offsets(cluster, topic, 1) == 50, "all lines are there")  # type: ignore[misc]
    read = ("--bootstrap-server", BROKERS, "--topic", topic, "--from-beginning", "--max-messages", "50")
    assert same(filled.print_of("kafka-console-consumer", *read)) == lines
