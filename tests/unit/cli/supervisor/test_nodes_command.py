"""`barnabas start --nodes`, with real nodes as far as they run together."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas.cli import main
from barnabas.cli.command_line import CommandError
from barnabas.cli.supervisor.home import Home, free_ports
from barnabas.client.broker_connection import Connection
from barnabas.log.folder.meta_properties import read_meta_properties
from barnabas.ports import SystemDisk
from barnabas.raft.consensus.log_history import BOOTSTRAP
from barnabas.raft.folder.snapshots import read_snapshot
from tests.peers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.config.cluster_layout import Layout


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "barnabas", "start", "--data-dir", str(folder / "data"), *words]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        return subprocess.Popen(command, stdout=out, stderr=err)


def ready_address(folder: Path) -> tuple[str, int]:
    pattern = re.compile(r"^barnabas ready: ([^:\n]+):(\d+)\n", re.MULTILINE)
    wait_until(lambda: pattern.search((folder / "out").read_text()), "the cluster is ready")
    found = pattern.search((folder / "out").read_text())
    assert found is not None
    return found[1], int(found[2])


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def test_a_cluster_of_one_serves_survives_a_kill_and_keeps_its_port(tmp_path: Path) -> None:
    process = start(tmp_path, "--nodes", "1", "--listen", "127.0.0.1:0", "--set", "num.partitions=3")
    try:
        host, port = ready_address(tmp_path)
        with Connection(host, port) as connection:
            assert connection.versions()
        (child,) = children_of(process.pid)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: (tmp_path / "err").read_text().count("barnabas ready") == 2, "the node is back")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    log = (tmp_path / "err").read_text()
    assert "was ended by SIGKILL; starting it again in 1 s" in log
    assert log.rstrip().endswith("stopped cleanly")
    process = start(tmp_path, "--nodes", "1")
    try:
        assert ready_address(tmp_path) == (host, port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main.main(["start", *words]) in (1, 2)
    return capsys.readouterr().err


def prepare(home: Home, nodes: int, listen: tuple[str, int] | None = None) -> Layout:
    """What the command does before it starts any node."""
    layout = home.layout(nodes, listen, ("127.0.0.1", 19_092))
    home.remember(layout)
    home.format_nodes(layout)
    return layout


def test_folders_of_nodes_are_formatted_for_one_cluster_and_remembered(tmp_path: Path) -> None:
    data, disk = str(tmp_path / "data"), SystemDisk()
    layouts = []
    for _ in range(2):
        home = Home(data)
        layouts.append(prepare(home, 4))
        home.write_configs(home.configs(layouts[-1], {}))
        home.close()
    assert layouts[0] == layouts[1]
    metas = [read_meta_properties(disk, f"{data}/node-{node_id}") for node_id in range(1, 5)]
    assert [(meta.cluster_id, meta.node_id) for meta in metas if meta] == [
        (layouts[0].cluster_id, node_id) for node_id in range(1, 5)
    ]
    for node_id in range(1, 5):
        voters = read_snapshot(disk, f"{data}/node-{node_id}/__cluster_metadata-0", BOOTSTRAP).voters
        assert [voter.id for voter in voters] == [1, 2, 3]
        assert [voter.directory_id for voter in voters] == [meta.directory_id for meta in metas[:3] if meta]


@pytest.mark.parametrize("memory", ["has.served=true\n", ""], ids=["served", "earlier version"])
def test_a_folder_of_a_node_that_is_gone_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], memory: str
) -> None:
    data = tmp_path / "data"
    home = Home(str(data))
    layout = prepare(home, 2)
    home.close()
    remembered = data / "cluster.properties"
    remembered.write_text(remembered.read_text().replace("has.served=false\n", memory))
    shutil.rmtree(data / "node-2")
    before = sorted(data.rglob("*"))
    said = refusal(capsys, "--nodes", "2", "--data-dir", str(data))
    assert f"{data}/node-2 of node 2 is empty or gone: mount or restore it" in said
    assert f"--cluster-id={layout.cluster_id} --no-initial-controllers`" in said
    assert sorted(data.rglob("*")) == before


def test_a_node_with_partitions_has_served_even_if_nobody_could_note_it(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    prepare(home, 2)
    (tmp_path / "node-1" / "orders-0").mkdir()
    shutil.rmtree(tmp_path / "node-2")
    with pytest.raises(CommandError, match="node-2 of node 2 is empty or gone"):
        prepare(home, 2)
    home.close()


def test_what_was_not_formatted_in_a_first_start_is_formatted_in_the_next(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    layout = prepare(home, 2)
    shutil.rmtree(tmp_path / "node-2")
    assert prepare(home, 2) == layout
    assert (tmp_path / "node-2" / "meta.properties").exists()
    home.close()


def test_a_cluster_that_never_served_is_laid_out_anew(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    first = prepare(home, 4)
    home.write_configs(home.configs(first, {}))
    second = prepare(home, 3, ("127.0.0.1", 19_600))
    assert second.client_ports == (19_600, 19_601, 19_602)
    assert not (tmp_path / "node-4.properties").exists()
    assert not (tmp_path / "node-4" / "meta.properties").exists()
    for voter in second.voters:
        meta = read_meta_properties(SystemDisk(), f"{tmp_path}/node-{voter.node_id}")
        assert meta is not None
        assert (meta.cluster_id, meta.directory_id) == (second.cluster_id, voter.directory_id)
        folder = f"{tmp_path}/node-{voter.node_id}/__cluster_metadata-0"
        voters = read_snapshot(SystemDisk(), folder, BOOTSTRAP).voters
        assert [each.endpoints[0].port for each in voters] == [19_603, 19_604, 19_605]
    (tmp_path / "node-1" / "orders-0").mkdir()
    with pytest.raises(CommandError, match=r"has a cluster that listens at 127\.0\.0\.1:19600"):
        prepare(home, 3, ("127.0.0.1", 19_092))
    home.close()


def test_a_start_that_failed_does_not_bind_the_folder_to_its_ports(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(tmp_path, "--nodes", "1", "--listen", f"127.0.0.1:{port}")
        assert process.wait(30) == 1
    assert "Address already in use" in (tmp_path / "err").read_text()
    process = start(tmp_path, "--nodes", "1", "--listen", "nosuch.invalid:19600")
    assert process.wait(30) == 1
    process = start(tmp_path, "--nodes", "1", "--listen", "127.0.0.1:0")
    try:
        assert ready_address(tmp_path)[1] != port
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    process = start(tmp_path, "--nodes", "1", "--listen", f"127.0.0.1:{port}")
    assert process.wait(30) == 1
    assert "its nodes know each other by these ports" in (tmp_path / "err").read_text()


def test_free_ports_are_all_different() -> None:
    assert len({*free_ports("127.0.0.1", 20)}) == 25


def test_a_folder_that_is_in_use_or_of_one_node_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\n")
    assert "has the data of one node: start it without --nodes" in refusal(
        capsys, "--nodes", "1", "--data-dir", str(data)
    )
    other = str(tmp_path / "other")
    script = (
        f"from barnabas.cli.supervisor.home import Home; home = Home({other!r}); print('locked', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert "is in use by another process" in refusal(capsys, "--nodes", "1", "--data-dir", other)


def test_a_folder_of_a_cluster_is_not_started_as_one_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.properties").write_text("")
    assert "has a cluster of several nodes: start it with --nodes" in refusal(capsys, "--data-dir", str(tmp_path))
    assert not (tmp_path / "meta.properties").exists()


@pytest.mark.parametrize(("nodes", "warnings"), [("1", 0), ("2", 1)])
def test_a_file_that_leaves_internal_topics_on_single_nodes_is_obeyed_with_one_warning(
    tmp_path: Path, nodes: str, warnings: int
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n")
    process = start(tmp_path, "--nodes", nodes, "--listen", "127.0.0.1:0", "--config", str(file))
    try:
        wait_until(lambda: "barnabas ready: " in (tmp_path / "out").read_text(), "the cluster is ready", deadline_s=60)
        assert "offsets.topic.replication.factor=1\n" in (tmp_path / "data" / "node-1.properties").read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    lines = [line for line in (tmp_path / "err").read_text().splitlines() if "is on one node only" in line]
    assert len(lines) == warnings
    for line in lines:
        assert "offsets.topic.replication.factor is 1 and transaction.state.log.replication.factor is 1" in line
        assert "there are 2 replicas" in line


def test_the_file_that_remembers_is_named_when_it_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.properties").write_text("version=1\n")
    said = refusal(capsys, "--nodes", "1", "--data-dir", str(tmp_path))
    assert f"{tmp_path}/cluster.properties has no client.ports" in said


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--set", "node.id=4"], "--set node.id cannot be used with --nodes"),
        (["--set", "num.partitions=0"], "Invalid value 0 for configuration num.partitions"),
        (["--listen", "127.0.0.1:65535"], "need ports up to 65536"),
        (["--config", "/nonexistent"], "cannot read /nonexistent"),
    ],
)
def test_what_cannot_work_is_refused_before_a_node_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert complaint in refusal(capsys, "--nodes", "1", "--data-dir", str(tmp_path / "data"), *words)
    assert [path.name for path in (tmp_path / "data").glob("*")] in ([], [".lock"])
