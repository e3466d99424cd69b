"""Three nodes become one cluster, and stay one when they are stopped, killed and started again."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import (
    QUICK,
    admin,
    consume,
    create_topic,
    format_as_broker,
    produce,
    status,
    topics,
    wait_until,
)
from tests.nodes import Cluster, Node, NodeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), settings=QUICK) as cluster:
        yield cluster


def test_what_is_created_through_one_node_is_there_on_every_other(shared: Cluster) -> None:
    for node_id in shared.nodes:
        create_topic(admin(shared, node_id), f"through-{node_id}")
        # Its own broker shows it at once, the others when they have replayed it.
        assert f"through-{node_id}" in topics(admin(shared, node_id))
    names = {f"through-{node_id}" for node_id in shared.nodes}
    for node_id in shared.nodes:
        wait_until(lambda node_id=node_id: names <= set(topics(admin(shared, node_id))), f"topics on node {node_id}")  # type: ignore[misc]


def test_records_go_through_any_node_to_the_leader_of_their_partition(shared: Cluster) -> None:
    create_topic(admin(shared, 2), "records", 3)
    for partition in range(3):
        values = [b"%d-%d" % (partition, number) for number in range(20)]
        produce(shared[1].bootstrap, "records", values, partition)
        assert consume(shared[3].bootstrap, "records", 20, partition) == values


def test_the_quorum_has_one_leader_and_no_voter_lags(shared: Cluster) -> None:
    facts = status(shared)
    assert facts["quorum"]["voters"] == [1, 2, 3]
    assert facts["quorum"]["leader"] in (1, 2, 3)
    assert [node["quorum_role"] for node in facts["nodes"]].count("leader") == 1
    assert all(node["roles"] == ["broker", "controller"] and not node["fenced"] for node in facts["nodes"])


def test_a_second_node_with_the_id_of_one_that_lives_exits_and_names_it(shared: Cluster, tmp_path: Path) -> None:
    text = shared.config_file(2).read_text().replace(str(shared[2].data_dir), str(tmp_path / "second"))
    lines = [line for line in text.splitlines() if not line.startswith(("listeners=", "process.roles="))]
    lines += [
        "process.roles=broker",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "initial.broker.registration.timeout.ms=1000",
    ]
    config = tmp_path / "second.properties"
    config.write_text("\n".join(lines))
    second = Node(tmp_path / "second", config_file=config)
    with pytest.raises(NodeError, match=r"No readable meta\.properties files found"):
        second.start()
    second.kill()
    format_as_broker(shared, config)
    with pytest.raises(NodeError, match="exited with code 1") as refused:
        second.start()
    leader = status(shared)["quorum"]["leader"]
    holder = "node with the id 2" if leader == 2 else f"broker with the id 2 is alive at {shared[2].bootstrap}"
    assert f"another {holder}" in str(refused.value)


def test_a_node_of_another_cluster_is_refused(shared: Cluster, tmp_path: Path) -> None:
    text = shared.config_file(2).read_text().replace(str(shared[2].data_dir), str(tmp_path / "foreign"))
    lines = [line for line in text.splitlines() if not line.startswith(("listeners=", "process.roles=", "node.id="))]
    lines += ["process.roles=broker", "node.id=9", "listeners=PLAINTEXT://127.0.0.1:0"]
    config = tmp_path / "foreign.properties"
    config.write_text("\n".join(lines))
    format_as_broker(shared, config, cluster_id="AAAAAAAAAAAAAAAAAAAABQ")
    with pytest.raises(NodeError, match="exited with code 1") as refused:
        Node(tmp_path / "foreign", config_file=config).start()
    assert "belongs to cluster AAAAAAAAAAAAAAAAAAAABQ" in str(refused.value)


def test_a_stopped_broker_leaves_its_controller_running_until_it_is_stopped_too(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=QUICK) as cluster:
        create_topic(admin(cluster, 1), "before")
        cluster[3].send(signal.SIGUSR1)
        wait_until(lambda: "barnabas broker stopped" in cluster.log_text(3), "the broker of node 3 has stopped")
        facts = status(cluster)
        assert [node["fenced"] for node in facts["nodes"] if node["id"] == 3] == [True]
        assert facts["quorum"]["voters"] == [1, 2, 3]
        assert [node["lag"] for node in facts["nodes"] if node["id"] == 3] == [0]
        cluster[3].stop()
        assert "stopped cleanly" in cluster.log_text(3)


def test_a_cluster_that_was_stopped_cleanly_or_killed_comes_back_with_what_it_had(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, settings=QUICK)
    try:
        cluster.start()
        create_topic(admin(cluster, 1), "kept", 3)
        for partition in range(3):
            produce(cluster.bootstrap, "kept", [b"first"], partition)
        cluster.stop()
        assert all("stopped cleanly" in cluster.log_text(node_id) for node_id in cluster.nodes)
        cluster.start()
        for partition in range(3):
            produce(cluster.bootstrap, "kept", [b"second"], partition)
        cluster.kill()
        cluster.start()
        for partition in range(3):
            assert consume(cluster.bootstrap, "kept", 2, partition) == [b"first", b"second"]
    finally:
        cluster.close()


def test_a_broker_whose_folder_was_copied_from_another_is_refused(shared: Cluster, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    identity = (shared[2].data_dir / "meta.properties").read_text()
    (copy / "meta.properties").write_text(identity.replace("node.id=2", "node.id=9"))
    text = shared.config_file(2).read_text().replace(str(shared[2].data_dir), str(copy))
    lines = [line for line in text.splitlines() if not line.startswith(("listeners=", "process.roles=", "node.id="))]
    config = tmp_path / "copy.properties"
    config.write_text("\n".join([*lines, "process.roles=broker", "listeners=PLAINTEXT://127.0.0.1:0", "node.id=9"]))
    with pytest.raises(NodeError, match="exited with code 1") as refused:
        Node(copy, config_file=config).start()
    assert "INVALID_REGISTRATION: one of its folders belongs to another broker" in str(refused.value)


def test_a_voter_that_lost_its_folder_comes_back_as_broker_and_observer(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=QUICK) as cluster:
        create_topic(admin(cluster, 1), "kept", 1)
        victim = next(node_id for node_id in cluster.nodes if node_id != status(cluster)["quorum"]["leader"])
        cluster.kill(victim)
        shutil.rmtree(cluster[victim].data_dir)
        format_as_broker(cluster, cluster.config_file(victim))
        cluster.start_node(victim)
        assert "kept" in topics(admin(cluster, victim))
        quorum = status(cluster)["quorum"]
        assert quorum["voters"] == [1, 2, 3]
        assert quorum["observers"] == [victim]
