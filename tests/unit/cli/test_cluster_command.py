"""`barnabas cluster status`: what it makes of the answers of a broker, ours or Kafka's."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tools import apache_kafka

from barnabas.cli import cluster_command, main
from barnabas.cli.cluster_command import QuorumView, make_status, node_row, status_facts
from barnabas.client.broker_connection import Connection
from barnabas.config.initial_controllers import InitialController
from barnabas.node.format_folders import FormatRequest, format_folders, random_id
from barnabas.ports import SystemClock, SystemDisk, SystemRandom
from barnabas.protocol import messages as m
from barnabas.protocol import uuids
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error
from tests.nodes import Node
from tests.peers import HOST, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Broker = m.DescribeClusterResponse.DescribeClusterBroker
Replica = m.DescribeQuorumResponse.ReplicaState
Partition = m.MetadataResponse.MetadataResponsePartition


def four_nodes() -> m.DescribeClusterResponse:
    """Brokers 1, 2 and 4, of which 4 is fenced; 3 is a controller only."""
    return m.DescribeClusterResponse(
        cluster_id="c",
        brokers=[
            Broker(broker_id=1, host="a", port=1, rack="r1"),
            Broker(broker_id=2, host="::1", port=2),
            Broker(broker_id=4, host="d", port=4, is_fenced=True),
        ],
    )


def quorum() -> QuorumView:
    partition = m.DescribeQuorumResponse.PartitionData(
        leader_id=3,
        leader_epoch=7,
        high_watermark=95,
        current_voters=[
            Replica(replica_id=1, log_end_offset=95),
            Replica(replica_id=2, log_end_offset=-1),
            Replica(replica_id=3, log_end_offset=100, replica_directory_id=uuids.METADATA_TOPIC_ID),
        ],
        observers=[Replica(replica_id=4, log_end_offset=90)],
    )
    return QuorumView(partition, {1: "a:9093", 3: "c:9093"})


def topics() -> list[m.MetadataResponse.MetadataResponseTopic]:
    partitions = [
        Partition(partition_index=0, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1, 2]),
        Partition(partition_index=1, leader_id=1, replica_nodes=[1, 4], isr_nodes=[1], offline_replicas=[4]),
        Partition(partition_index=2, leader_id=-1, replica_nodes=[4], isr_nodes=[4], offline_replicas=[4]),
    ]
    return [m.MetadataResponse.MetadataResponseTopic(name="t", partitions=partitions)]


def test_every_node_has_its_roles_its_lag_and_its_partitions() -> None:
    status = make_status(four_nodes(), quorum(), topics())
    assert [node_row(node) for node in status.nodes] == [
        (1, "a:1", "broker,controller", "r1", "alive", "voter", 5, 2, 2, 0, 0),
        (2, "[::1]:2", "broker,controller", "-", "alive", "voter", "-", 0, 1, 0, 0),
        (3, "c:9093", "controller", "-", "-", "leader", 0, 0, 0, 0, 0),
        (4, "d:4", "broker", "-", "fenced", "observer", 10, 0, 2, 1, 2),
    ]
    assert cluster_command.heading(status) == (
        "cluster c  quorum leader 3, epoch 7, high watermark 95  partitions 3, under-replicated 1, offline 1"
    )


def test_json_has_the_same_as_values() -> None:
    facts = status_facts(make_status(four_nodes(), quorum(), topics()))
    assert facts["quorum"] == {
        "leader": 3,
        "leader_epoch": 7,
        "high_watermark": 95,
        "voters": [1, 2, 3],
        "observers": [4],
    }
    assert facts["partitions"] == {"total": 3, "under_replicated": 1, "offline": 1}
    nodes: Any = facts["nodes"]
    assert nodes[2] == {
        "id": 3,
        "address": "c:9093",
        "roles": ["controller"],
        "rack": None,
        "fenced": None,
        "quorum_role": "leader",
        "directory_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "lag": 0,
        "leads": 0,
        "replicas": 0,
        "not_in_sync": 0,
        "offline": 0,
    }
    assert json.dumps(facts)


def test_a_replica_on_a_node_that_nobody_knows_is_shown() -> None:
    status = make_status(m.DescribeClusterResponse(cluster_id="c", brokers=[]), None, topics())
    assert [node_row(node)[:4] for node in status.nodes] == [
        (1, "-", "unknown", "-"),
        (2, "-", "unknown", "-"),
        (4, "-", "unknown", "-"),
    ]


def test_a_quorum_without_a_leader_is_called_so() -> None:
    view = quorum()
    view.partition.leader_id = -1
    status = make_status(four_nodes(), view, [])
    assert "quorum leader none, epoch 7" in cluster_command.heading(status)
    assert [node.lag for node in status.nodes] == [None] * 4


def test_no_controller_is_told_apart_from_a_quorum_that_nobody_tells_about() -> None:
    cluster_command.require_quorum(Error.NONE, None)
    for error in (Error.NOT_CONTROLLER, Error.NOT_LEADER_OR_FOLLOWER, Error.REQUEST_TIMED_OUT):
        with pytest.raises(cluster_command.NoControllerError, match=f"{error.name}: why"):
            cluster_command.require_quorum(error, "why")
    with pytest.raises(cluster_command.UnknownQuorumError, match="CLUSTER_AUTHORIZATION_FAILED"):
        cluster_command.require_quorum(Error.CLUSTER_AUTHORIZATION_FAILED, None)


def test_a_node_of_ours_tells_what_it_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Node(tmp_path / "data") as node:
        assert main.main(["cluster", "status", "--bootstrap-server", node.bootstrap, "--json"]) == 0
        with Connection(node.host, node.port) as connection:
            describes_quorum = ApiKey.DESCRIBE_QUORUM in connection.versions()
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert [(each["id"], each["address"]) for each in facts["nodes"]] == [(1, node.bootstrap)]
    assert (facts["quorum"] is not None) == describes_quorum
    assert said.err.count("\n") == (0 if describes_quorum else 1)


def test_what_it_can_show_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["cluster"]) == 2
    assert "status" in capsys.readouterr().err
    assert main.main(["cluster", "stats"]) == 2
    assert "did you mean 'status'?" in capsys.readouterr().err


@pytest.fixture
def three_of_kafka(tmp_path: Path) -> Iterator[list[apache_kafka.KafkaNode]]:
    """Three nodes of Apache Kafka, two of them voters, on folders that Barnabas formatted."""
    random = SystemRandom()
    with ExitStack() as stack:
        nodes = [apache_kafka.KafkaNode(tmp_path / f"node-{number}") for number in (1, 2, 3)]
        for node in nodes:
            stack.callback(node.close)
            # Without a majority of voters the last one would wait for its controlled shutdown in vain.
            stack.callback(node.kill)
        voters = tuple(
            InitialController(number, HOST, node.controller_port, random_id(random))
            for number, node in enumerate(nodes[:2], start=1)
        )
        servers = ",".join(f"{HOST}:{voter.port}" for voter in voters)
        for number, node in enumerate(nodes, start=1):
            folder = str(node.data_dir)
            request = FormatRequest("MkU3OEVBNTcwNTJENDM2Qg", number, (folder,), folder, initial_controllers=voters)
            assert len([*format_folders(request, disk=SystemDisk(), clock=SystemClock(), random=random)]) == 1
            node.properties.update({"controller.quorum.bootstrap.servers": servers, "broker.rack": f"rack-{number}"})
            if number == 3:
                node.properties.update({"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{node.port}"})
            node.launch()
        for node in nodes:
            node.wait_until_ready()
        yield nodes


@pytest.mark.kafka
@pytest.mark.usefixtures("apache_kafka_runs")
def test_a_cluster_of_kafka_on_folders_of_ours(
    three_of_kafka: list[apache_kafka.KafkaNode], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = three_of_kafka

    def status(node: apache_kafka.KafkaNode) -> dict[str, Any]:
        capsys.readouterr()
        assert main.main(["cluster", "status", "--bootstrap-server", node.bootstrap, "--json"]) == 0
        facts: dict[str, Any] = json.loads(capsys.readouterr().out)
        return facts

    wait_until(lambda: len(status(third)["nodes"]) == 3, "all three nodes are known")
    assert main.main(["topic", "create", "t", "--partitions", "3", "--bootstrap-server", first.bootstrap]) == 0
    assert main.main(["topic", "create", "r", "--replication-factor", "3", "--bootstrap-server", second.bootstrap]) == 0
    wait_until(lambda: status(third)["partitions"]["total"] == 4, "the third broker knows both topics")
    facts = status(third)
    assert facts["cluster_id"] == "MkU3OEVBNTcwNTJENDM2Qg"
    assert facts["quorum"]["voters"] == [1, 2]
    assert facts["quorum"]["observers"] == [3]
    assert [node["address"] for node in facts["nodes"]] == [node.bootstrap for node in three_of_kafka]
    assert [node["rack"] for node in facts["nodes"]] == ["rack-1", "rack-2", "rack-3"]
    assert [node["roles"] for node in facts["nodes"]] == [["broker", "controller"]] * 2 + [["broker"]]
    assert sorted(node["quorum_role"] for node in facts["nodes"]) == ["leader", "observer", "voter"]
    assert facts["partitions"] == {"total": 4, "under_replicated": 0, "offline": 0}
    assert sum(node["leads"] for node in facts["nodes"]) == 4
    assert sum(node["replicas"] for node in facts["nodes"]) == 6
    wait_until(lambda: all(node["lag"] in (0, 1, 2) for node in status(first)["nodes"]), "nobody is far behind")
    third.kill()
    wait_until(lambda: status(first)["partitions"]["under_replicated"] >= 1, "the dead node is missed")
    dead = status(first)["nodes"][2]
    assert dead["fenced"]
    assert dead["not_in_sync"] >= 1
    assert dead["offline"] >= 1
