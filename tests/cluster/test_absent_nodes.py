"""What becomes of a node that was away while something of its own changed: its topics, or its address."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.client.broker_connection import Connection
from barnabas.config.properties import format_properties, parse_properties
from barnabas.protocol import messages as m
from barnabas.testing.several_nodes import HOST, reserved_port
from tests.cluster.clusters import (
    DEADLINE_S,
    QUICK,
    WHOLE_S,
    consume,
    create_replicated,
    create_topic,
    in_sync,
    leader_of,
    produce,
    running,
    status,
    topics,
    wait_until,
)
from tests.nodes import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLD, NEW = [b"of the old topic"] * 5, [b"of the new topic"] * 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("absent"), settings=QUICK) as started:
        yield started


def log_of(cluster: Cluster, node_id: int, partition: str) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(cluster[node_id].data_dir.glob(f"{partition}/*.log")))


def folders(cluster: Cluster, node_id: int, topic: str) -> list[Path]:
    return sorted(cluster[node_id].data_dir.glob(f"{topic}-0*"))


def test_a_topic_that_was_deleted_and_made_again_meanwhile_is_another_one(cluster: Cluster) -> None:
    """By its id, whatever its name: the records of the old one are set aside, as they are, and none of them is in the
    new one."""
    create_replicated(cluster, "again", 1)
    produce(running(cluster), "again", OLD)
    absent = next(node_id for node_id in cluster.nodes if node_id != leader_of(cluster, "again"))
    wait_until(lambda: OLD[0] in log_of(cluster, absent, "again-0"), "the follower has the records")
    cluster.stop_node(absent)
    before = log_of(cluster, absent, "again-0")

    client = AdminClient({"bootstrap.servers": running(cluster), "log_level": 0})
    client.delete_topics(["again"])["again"].result(DEADLINE_S)
    wait_until(lambda: "again" not in topics(client), "the topic is gone")
    others = [node_id for node_id in cluster.nodes if node_id != absent]
    made_again = NewTopic("again", 1, replica_assignment=[[*others, absent]])
    client.create_topics([made_again])["again"].result(DEADLINE_S)
    produce(running(cluster), "again", NEW)

    cluster.start_node(absent)
    wait_until(lambda: in_sync(cluster, "again") == [3], "the node that was away is in sync", WHOLE_S)
    wait_until(
        lambda: log_of(cluster, absent, "again-0") == log_of(cluster, others[0], "again-0"), "it has the same records"
    )
    assert consume(running(cluster), "again", len(NEW)) == NEW
    new, stray = folders(cluster, absent, "again")
    assert (new.name, stray.name.endswith("-stray")) == ("again-0", True)
    assert log_of(cluster, absent, stray.name) == before
    assert OLD[0] not in log_of(cluster, absent, "again-0")
    for other in others:
        assert not any(folder.name.endswith("-stray") for folder in folders(cluster, other, "again"))


def voter_ports(cluster: Cluster) -> dict[int, set[int]]:
    """Where the leader of the quorum says that each voter is (DescribeQuorum)."""
    request = m.DescribeQuorumRequest
    partition = request.TopicData(topic_name="__cluster_metadata", partitions=[request.PartitionData()])
    with Connection(HOST, cluster[cluster.running[0]].port, timeout_s=DEADLINE_S) as connection:
        answer = connection.send(request(topics=[partition]))
    return {node.node_id: {each.port for each in node.listeners} for node in answer.nodes}


def test_a_voter_that_comes_back_at_another_port_is_found_there(cluster: Cluster) -> None:
    """It tells the leader (UpdateRaftVoter), which writes it into the log. So the others find it when they have to
    agree with it on the next leader, though no properties file but its own says where it is."""
    before = {voter.node_id: {voter.port} for voter in cluster.layout.voters}
    wait_until(lambda: voter_ports(cluster) == before, "a leader tells where the voters are")
    leader = status(cluster)["quorum"]["leader"]
    moved = next(node_id for node_id in cluster.nodes if node_id != leader)
    reservation = reserved_port()
    port = reservation.getsockname()[1]
    cluster.stop_node(moved)
    file = cluster.config_file(moved)
    settings = parse_properties(file.read_text())
    (old_port,) = before[moved]
    listeners = settings["listeners"].replace(f"CONTROLLER://{HOST}:{old_port}", f"CONTROLLER://{HOST}:{port}")
    assert listeners != settings["listeners"]
    file.write_text(format_properties({**settings, "listeners": listeners}))
    try:
        cluster.start_node(moved)
        wait_until(lambda: voter_ports(cluster) == before | {moved: {port}}, "the leader has it at its new port")
        cluster.kill(status(cluster)["quorum"]["leader"])
        # A majority is now the node that has moved, and one that nobody told.
        create_topic(AdminClient({"bootstrap.servers": running(cluster), "log_level": 0}), "after-the-move", 1)
        assert voter_ports(cluster) == before | {moved: {port}}
    finally:
        cluster.start()
        reservation.close()
