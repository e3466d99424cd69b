"""`barnabas start` as a person or a service manager sees it: what it prints, what it refuses, how it ends."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas.client.broker_connection import Connection
from barnabas.protocol import messages as m
from barnabas.testing.several_nodes import reserved_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT_S = 60.0
START = [sys.executable, "-m", "barnabas", "start"]
ANY_PORT = ["--listen", "127.0.0.1:0"]
READY = re.compile(r"barnabas ready: (\S+)\n")
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARNING|ERROR) +\S+ +\S.*")


@contextlib.contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A node that is ready, and the addresses that it says; killed at the end unless the test has stopped it."""
    process = subprocess.Popen([*START, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready is not None, line + process.communicate(timeout=TIMEOUT_S)[1]
        yield process, ready[1].split(",")
    finally:
        process.kill()
        process.communicate()


def refused(*words: str) -> str:
    """What a node that must not start says about it: one line, after which it is gone."""
    done = subprocess.run([*START, *words], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, "")
    complaint = [line for line in done.stderr.splitlines() if not LOG_LINE.fullmatch(line)]
    assert len(complaint) == 1, done.stderr
    return complaint[0]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def cluster_id(address: str) -> str | None:
    with Connection("127.0.0.1", port_of(address)) as connection:
        response: m.DescribeClusterResponse = connection.send(m.DescribeClusterRequest())
        return response.cluster_id


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: signal.Signals(number).name)
def test_the_ready_line_is_all_there_is_on_stdout_and_the_log_is_lines(tmp_path: Path, number: signal.Signals) -> None:
    with started("--data-dir", str(tmp_path / "data"), *ANY_PORT) as (process, addresses):
        assert [address.rpartition(":")[0] for address in addresses] == ["PLAINTEXT://127.0.0.1"]
        assert port_of(addresses[0]) > 0
        assert cluster_id(addresses[0]) is not None
        process.send_signal(number)
        out, log = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, "")
    assert [line for line in log.splitlines() if not LOG_LINE.fullmatch(line)] == []


def test_every_listener_for_clients_is_announced_and_answers(tmp_path: Path) -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,LAN://127.0.0.1:0"
    protocols = "PLAINTEXT:PLAINTEXT,LAN:PLAINTEXT,CONTROLLER:PLAINTEXT"
    settings = ["--set", f"listeners={listeners}", "--set", f"listener.security.protocol.map={protocols}"]
    with started("--data-dir", str(tmp_path / "data"), *settings) as (_, addresses):
        assert [address.partition("://")[0] for address in addresses] == ["PLAINTEXT", "LAN"]
        for address in addresses:
            with Connection("127.0.0.1", port_of(address)) as connection:
                response: m.MetadataResponse = connection.send(m.MetadataRequest(topics=[]))
                assert [broker.port for broker in response.brokers] == [port_of(address)]


def test_a_folder_keeps_its_cluster_id_over_restarts(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with started("--data-dir", str(tmp_path / "data"), *ANY_PORT) as (process, addresses):
            seen.append(cluster_id(addresses[0]))
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)
    assert seen[0] == seen[1]


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        complaint = refused("--data-dir", str(tmp_path / "data"), "--listen", address)
    assert complaint == f"barnabas: cannot listen on PLAINTEXT://{address}: Address already in use"


def test_a_folder_in_use_is_named_and_its_owner_goes_on(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with started("--data-dir", folder, *ANY_PORT) as (_, addresses):
        assert f"{folder} is in use by another process" in refused("--data-dir", folder, *ANY_PORT)
        assert cluster_id(addresses[0]) is not None


def test_the_folder_of_another_node_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started("--data-dir", str(folder), *ANY_PORT) as (process, _):
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    complaint = refused("--data-dir", str(folder), *ANY_PORT, "--set", "node.id=7")
    assert "belongs to node 1, but this is node 7: set node.id=1" in complaint
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_metadata_log_that_is_damaged_before_its_end_is_refused_by_place_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for _ in range(2):
        with started("--data-dir", str(folder), *ANY_PORT) as (process, _):
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)
    log = folder / "__cluster_metadata-0" / "00000000000000000000.log"
    written = bytearray(log.read_bytes())
    second_batch = 12 + int.from_bytes(written[8:12])
    written[second_batch + 70] ^= 0xFF
    log.write_bytes(written)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert f"{log} is damaged at position {second_batch}, where offset 3 should be" in refused(
        "--data-dir", str(folder), *ANY_PORT
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_folder_that_does_not_say_whose_it_is_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    assert "meta.properties has no cluster.id" in refused("--data-dir", str(tmp_path), *ANY_PORT)


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert str(file) in refused("--data-dir", str(file), *ANY_PORT)


def test_the_properties_file_that_comes_with_kafka_starts_a_node(tmp_path: Path) -> None:
    """With other ports and another folder than that of Kafka 4.3, and else its lines about who the node is."""
    with socket.create_server(("", 0)) as first, socket.create_server(("", 0)) as second:
        port, controller_port = first.getsockname()[1], second.getsockname()[1]
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.bootstrap.servers=localhost:{controller_port}\n"
        f"listeners=PLAINTEXT://:{port},CONTROLLER://:{controller_port}\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        f"advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map="
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    with started("--config", str(file)) as (_, addresses):
        assert addresses == [f"PLAINTEXT://localhost:{port}"]
        assert cluster_id(addresses[0]) is not None


ELSEWHERE = ("controller.listener.names=CONTROLLER", "controller.quorum.bootstrap.servers=192.0.2.7:9093")


@pytest.mark.parametrize(
    "settings",
    [
        ["process.roles=broker", "listeners=PLAINTEXT://127.0.0.1:0", *ELSEWHERE],
        ["process.roles=controller", "listeners=CONTROLLER://127.0.0.1:0", *ELSEWHERE],
        ["controller.quorum.voters=1@localhost:9093,2@other:9093"],
        ["controller.quorum.bootstrap.servers=192.0.2.7:9093"],
    ],
    ids=lambda settings: settings[0],
)
def test_a_node_that_needs_others_is_not_formatted_by_itself(tmp_path: Path, settings: list[str]) -> None:
    words = [word for setting in ["node.id=1", *settings] for word in ("--set", setting)]
    complaint = refused("--data-dir", str(tmp_path / "data"), *ANY_PORT, *words)
    assert "No readable meta.properties files found" in complaint
    assert "barnabas format --cluster-id CLUSTER_ID --config FILE" in complaint
    assert not (tmp_path / "data").exists()


def test_a_properties_file_of_the_zookeeper_era_starts_a_node_with_warnings(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    with reserved_port() as free:
        port = free.getsockname()[1]
    connect = f"zookeeper.connect=localhost:{port}\nzookeeper.connection.timeout.ms=6000\n"
    file.write_text(f"broker.id=3\n{connect}log.dirs={tmp_path / 'data'}\nnum.partitions=2\n")
    with started("--config", str(file), *ANY_PORT) as (process, addresses):
        with Connection("127.0.0.1", port_of(addresses[0])) as connection:
            response: m.MetadataResponse = connection.send(m.MetadataRequest(topics=[]))
        assert [broker.node_id for broker in response.brokers] == [3]
        process.terminate()
        _, log = process.communicate(timeout=TIMEOUT_S)
    assert re.search(r"WARNING .*ZooKeeper is not used", log)
    assert re.search(r"WARNING .*node 3 is the only voter of this cluster.* a single point of failure", log)
