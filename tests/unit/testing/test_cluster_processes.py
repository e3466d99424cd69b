"""A cluster of processes for tests: what each node is started with, and what can be done to it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from barnabas.client.broker_connection import AnswerTimeoutError, Connection
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.properties import parse_properties
from barnabas.log.folder.meta_properties import read_meta_properties
from barnabas.ports import SystemDisk
from barnabas.testing.cluster_processes import Cluster
from barnabas.testing.node_process import NodeError
from tests.peers import wait_until


def config_of(cluster: Cluster, node_id: int) -> BrokerConfig:
    return BrokerConfig.from_properties(parse_properties(cluster.config_file(node_id).read_text()))[0]


def test_every_node_has_its_own_file_and_all_know_the_same_quorum(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, nodes=4, settings={"num.partitions": "7"})
    try:
        configs = [config_of(cluster, node_id) for node_id in (1, 2, 3, 4)]
        assert [config.node_id for config in configs] == [1, 2, 3, 4]
        assert [config.is_controller for config in configs] == [True, True, True, False]
        assert len({config.quorum_servers for config in configs}) == 1
        assert len(configs[0].quorum_servers) == 3
        assert {config.num_partitions for config in configs} == {7}
        assert [config.log_dirs for config in configs] == [(str(tmp_path / f"node-{each}"),) for each in (1, 2, 3, 4)]
        ports = [listener.port for config in configs for listener in (*config.listeners, *config.controller_listeners)]
        assert len({*ports}) == 7
        assert cluster.bootstrap.split(",") == [cluster[node_id].bootstrap for node_id in (1, 2, 3, 4)]
    finally:
        cluster.close()


def test_one_node_may_have_settings_of_its_own(tmp_path: Path) -> None:
    own = {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:1", "broker.session.timeout.ms": "500"}
    cluster = Cluster(tmp_path, settings={"broker.session.timeout.ms": "800"}, settings_of={1: own})
    try:
        assert config_of(cluster, 1).process_roles == ("controller",)
        assert [config_of(cluster, node_id).broker_session_timeout_ms for node_id in (1, 2, 3)] == [500, 800, 800]
    finally:
        cluster.close()


def test_folders_are_formatted_for_one_cluster_and_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, nodes=2)
    try:
        cluster.format()
        files = [tmp_path / f"node-{node_id}" / "meta.properties" for node_id in (1, 2)]
        first = [file.read_bytes() for file in files]
        cluster.format()
        assert [file.read_bytes() for file in files] == first
        metas = [read_meta_properties(SystemDisk(), str(file.parent)) for file in files]
        assert [(meta.cluster_id, meta.node_id) for meta in metas if meta] == [
            (cluster.layout.cluster_id, 1),
            (cluster.layout.cluster_id, 2),
        ]
        assert metas[0] is not None
        assert metas[0].directory_id == cluster.layout.voters[0].directory_id
    finally:
        cluster.close()


def test_static_voters_are_not_written_to_the_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, nodes=1, settings_of={1: {"controller.quorum.voters": "1@127.0.0.1:1"}})
    try:
        cluster.format()
        assert not (tmp_path / "node-1" / "__cluster_metadata-0").exists()
    finally:
        cluster.close()


def test_a_node_is_stopped_killed_paused_and_keeps_its_port(tmp_path: Path) -> None:
    with Cluster(tmp_path, nodes=1) as cluster:
        assert cluster.running == [1]
        port = cluster[1].port
        cluster.pause(1)
        wait_until(lambda: process_state(cluster[1].pid) == "T", "the process stands still")
        with Connection("127.0.0.1", port, timeout_s=0.2) as connection, pytest.raises(AnswerTimeoutError):
            connection.versions()
        cluster.resume(1)
        answers(port)
        cluster.kill(1)
        assert cluster.running == []
        cluster.start_node(1)
        answers(port)
        cluster.restart_node(1, {"num.partitions": "5"})
        answers(port)
        cluster.stop_node(1)
        cluster.start()
        assert cluster.log_text(1).count("barnabas ready") == 4
        assert cluster[1].port == port
    assert cluster.running == []
    assert cluster.log_text(1).rstrip().endswith("stopped cleanly")


def test_a_node_that_ended_by_itself_is_started_with_the_others(tmp_path: Path) -> None:
    with Cluster(tmp_path, nodes=1) as cluster:
        cluster[1].send(signal.SIGKILL)
        wait_until(lambda: not cluster[1].is_running, "the node is dead")
        cluster.start()
        answers(cluster[1].port)


def test_a_node_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, nodes=1)
    try:
        cluster.format()
        cluster.config_file(1).write_text(cluster.config_file(1).read_text() + "num.partitions=0\n")
        with pytest.raises(NodeError, match=r"(?s)before it was ready.*num\.partitions"):
            cluster.start()
    finally:
        cluster.close()


def answers(port: int) -> None:
    with Connection("127.0.0.1", port) as connection:
        assert connection.versions()


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
