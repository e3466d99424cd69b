"""Three files of the ZooKeeper era that name the same `zookeeper.connect` form one cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from barnabas.testing.cluster_processes import reserved_port
from barnabas.testing.node_process import Node
from tests.cluster.clusters import DEADLINE_S, consume, create_topic, produce, wait_until

if TYPE_CHECKING:
    from pathlib import Path

FOUNDER = "is the only voter of this cluster"


def test_whoever_comes_first_founds_the_cluster_and_the_others_join_it(tmp_path: Path) -> None:
    reservations = [reserved_port() for _ in range(4)]
    ports = [each.getsockname()[1] for each in reservations]
    meeting = reservations.pop(0)
    meeting.close()  # the nodes look whether anybody has it
    nodes = {number: era_node(tmp_path, number, ports[number + 1], ports[0]) for number in range(3)}
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports[1:])
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        for node in nodes.values():
            node.launch()
        for node in nodes.values():
            node.wait_until_ready()
        founders = [number for number, node in nodes.items() if FOUNDER in node.log_text()]
        assert len(founders) == 1
        assert "a single point of failure" in nodes[founders[0]].log_text()
        assert sorted(client.list_topics(timeout=DEADLINE_S).brokers) == [0, 1, 2]
        create_topic(client, "many", 6)
        for partition in range(6):
            produce(bootstrap, "many", [b"here"], partition)

        # A broker that comes back before the founder waits for it, and founds no second cluster.
        for node in nodes.values():
            node.kill()
        others = [node for number, node in nodes.items() if number not in founders]
        for node in others:
            node.launch()
        wait_until(lambda: all("no answer from the metadata quorum" in node.log_text() for node in others), "they wait")
        nodes[founders[0]].start()
        for node in others:
            node.wait_until_ready()
        assert [FOUNDER in node.log_text() for node in others] == [False, False]
        for partition in range(6):
            assert consume(bootstrap, "many", 1, partition) == [b"here"]
    finally:
        for node in nodes.values():
            node.kill()
        for reservation in reservations:
            reservation.close()


def era_node(folder: Path, number: int, port: int, meeting_port: int) -> Node:
    file = folder / f"server{number}.properties"
    file.write_text(
        f"broker.id={number}\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={folder / f'logs-{number}'}\n"
        f"zookeeper.connect=localhost:{meeting_port}\nnum.partitions=1\nbroker.session.timeout.ms=1500\n"
        "broker.heartbeat.interval.ms=200\n"
    )
    return Node(folder / f"logs-{number}", port=port, config_file=file)
