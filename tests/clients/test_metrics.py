"""`/metrics`, `/health` and `/ready` of a node, as Prometheus and a probe ask for them, while clients work."""

from __future__ import annotations

import http.client
import json
import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.clients.adapter import Client, Message, consume, values
from tests.nodes import Node, NodeError
from tests.peers import HOST, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAMPLE = re.compile(r"([a-z_:0-9A-Z]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
FIRST = "kafka_network_requestmetrics_"
TOPICS = "kafka_server_brokertopicmetrics_"


class Watched(NamedTuple):
    """A node, and where it is watched."""

    bootstrap: str
    port: int

    def get(self, path: str, method: str = "GET") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        connection.request(method, path)
        return connection.getresponse()

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        answer = self.get("/metrics")
        assert answer.status == 200
        found = {}
        for line in answer.read().decode().splitlines():
            if not line.startswith("#"):
                sample = SAMPLE.fullmatch(line)
                assert sample is not None, line
                found[sample[1], frozenset(LABEL.findall(sample[2] or ""))] = float(sample[3])
        return found

    def value(self, name: str, **labels: str) -> float:
        """One sample; 0 where it is not there."""
        return self.samples().get((name, frozenset(labels.items())), 0.0)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    port = free_port()
    settings = {"barnabas.metrics.listener": f"{HOST}:{port}", "group.initial.rebalance.delay.ms": "0"}
    with Node(tmp_path_factory.mktemp("watched") / "data", settings=settings) as node:
        yield Watched(node.bootstrap, port)


def test_what_is_written_and_read_is_counted_by_topic(watched: Watched, library: type[Client], topic: str) -> None:
    client = library(watched.bootstrap)
    client.create_topic(topic, partitions=1)
    client.produce(topic, [Message(b"x" * 1000) for _ in range(20)])
    consume(client, topic, 20)
    assert watched.value(f"{TOPICS}messagesin_total", topic=topic) == 20
    assert 20_000 < watched.value(f"{TOPICS}bytesin_total", topic=topic) < 25_000
    assert watched.value(f"{TOPICS}bytesout_total", topic=topic) >= 20_000
    assert watched.value("kafka_log_log_logendoffset", topic=topic, partition="0") == 20
    assert watched.value("kafka_log_log_size", topic=topic, partition="0") > 20_000
    assert "kafka_log_logcleanermanager_uncleanable_partitions_count" in {name for name, _ in watched.samples()}


def test_requests_are_counted_by_version_and_timed_by_phase(
    watched: Watched, library: type[Client], topic: str
) -> None:
    client = library(watched.bootstrap)
    client.create_topic(topic, partitions=1)
    before = watched.samples()
    for number in range(5):
        client.produce(topic, values(1, prefix=str(number)))
    after = watched.samples()

    def produced(samples: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> float:
        return sum(
            value
            for (name, labels), value in samples.items()
            if name == f"{FIRST}requests_total" and ("request", "Produce") in labels
        )

    assert produced(after) - produced(before) == 5
    for phase in ("requestqueuetimems", "localtimems", "remotetimems", "responsesendtimems", "totaltimems"):
        assert after[f"{FIRST}{phase}_count", frozenset({("request", "Produce")})] > 0
    total = frozenset({("request", "Produce"), ("quantile", "0.50")})
    assert 0 < after[f"{FIRST}totaltimems", total] < 10_000


def test_the_time_in_which_a_fetch_waits_for_records_is_remote(
    watched: Watched, library: type[Client], topic: str
) -> None:
    client = library(watched.bootstrap)
    client.create_topic(topic, partitions=1)
    with client.consumer(topic, "beginning") as consumer:
        assert consumer.receive(1, deadline_s=2.0) == []

    def waited_ms() -> float:
        return watched.value(f"{FIRST}remotetimems", request="FetchConsumer", quantile="0.999")

    wait_until(lambda: waited_ms() > 100, "a fetch has waited for as long as the client lets it")


def test_errors_are_counted_by_api_and_name(watched: Watched, library: type[Client], topic: str) -> None:
    client = library(watched.bootstrap)
    client.create_topic(topic)
    name, labels = f"{FIRST}errors_total", {"request": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}
    before = watched.value(name, **labels)
    with pytest.raises(Exception, match=r"(?i)exist"):
        client.create_topic(topic)
    assert watched.value(name, **labels) == before + 1


def test_the_lag_of_a_group_is_what_it_has_not_committed(
    watched: Watched, library: type[Client], topic: str, group: str
) -> None:
    client = library(watched.bootstrap)
    client.create_topic(topic, partitions=1)
    client.produce(topic, values(10))
    member = client.group_consumer(group, [topic])
    wait_until(lambda: member.poll() or member.assigned(), "the member has its partition")
    member.commit({(topic, 0): 4})
    labels = {"group": group, "consumergroup": group, "topic": topic, "partition": "0"}
    assert watched.value("kafka_consumergroup_current_offset", **labels) == 4
    assert watched.value("kafka_consumergroup_lag", **labels) == 6
    assert watched.value("kafka_consumergroup_group_lag_seconds", **labels) >= 0
    member.commit({(topic, 0): 10})
    member.close()
    assert watched.value("kafka_consumergroup_lag", **labels) == 0
    assert watched.value("kafka_consumergroup_group_lag_seconds", **labels) == 0


def test_the_state_of_broker_controller_and_process_is_there(watched: Watched) -> None:
    samples = {name: value for (name, labels), value in watched.samples().items() if not labels}
    assert samples["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert samples["kafka_controller_kafkacontroller_offlinepartitionscount"] == 0
    assert samples["kafka_controller_kafkacontroller_activebrokercount"] == 1
    assert samples["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert samples["kafka_server_replicamanager_partitioncount"] == samples["kafka_server_replicamanager_leadercount"]
    assert samples["kafka_server_raft_metrics_high_watermark"] > 0
    assert 0 <= samples["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"] <= 1
    assert samples["process_resident_memory_bytes"] > 10_000_000
    assert samples["process_cpu_seconds_total"] > 0


def test_what_logs_waiting_requests_groups_and_connections_come_to_is_there(
    watched: Watched, library: type[Client], topic: str, group: str
) -> None:
    client = library(watched.bootstrap)
    client.create_topic(topic, partitions=1)
    client.produce(topic, values(3))
    member = client.group_consumer(group, [topic])
    wait_until(lambda: member.poll() or member.assigned(), "the member has its partition")
    samples = watched.samples()

    def value(name: str, **labels: str) -> float:
        return samples[name, frozenset(labels.items())]

    in_sync = {"topic": topic, "partition": "0"}
    assert value("kafka_cluster_partition_insyncreplicascount", **in_sync) == 1
    assert value("kafka_cluster_partition_atminisr", **in_sync) == 1
    assert value("kafka_cluster_partition_underminisr", **in_sync) == 0
    assert value("kafka_log_logmanager_offlinelogdirectorycount") == 0
    assert value("kafka_log_logcleaner_deadthreadcount") == 0
    assert value(f"{TOPICS}totalproducerequests_total") > 0
    assert value("kafka_coordinator_group_groupmetadatamanager_numgroups") >= 1
    assert value("kafka_consumergroup_members", group=group, consumergroup=group) == 1
    assert value("kafka_server_raft_metrics_current_state", state="leader") == 1
    assert value("barnabas_quorum_replica_lag", replica="1", kind="voter") == 0
    assert value("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT") >= 1
    assert value("barnabas_event_loop_longest_turn_seconds", loop="broker") < 60
    assert value("kafka_server_kafkaserver_brokerstate") == 3
    assert value("kafka_controller_kafkacontroller_brokerregistrationstate", broker="1") == 30
    fetches = {"delayedOperation": "Fetch"}
    wait_until(
        lambda: (
            watched.value("kafka_server_delayedoperationpurgatory_numdelayedoperations", **fetches) > 0
            or not member.poll()
        ),
        "a fetch waits",
    )
    member.close()


def test_probes_are_told_that_the_node_is_ready(watched: Watched) -> None:
    answer = watched.get("/ready")
    assert (answer.status, json.loads(answer.read())["ready"]) == (200, True)
    assert watched.get("/health").status == 200
    assert watched.get("/nothing").status == 404
    assert watched.get("/metrics", "POST").status == 405


def test_a_port_that_is_taken_and_an_address_that_is_none_are_named(tmp_path: Path, watched: Watched) -> None:
    for value, complaint in ((f"{HOST}:{watched.port}", "in use"), ("here", "expected HOST:PORT")):
        with (
            pytest.raises(NodeError) as refused,
            Node(tmp_path / "data", settings={"barnabas.metrics.listener": value}),
        ):
            pass
        assert complaint in str(refused.value)
        assert "Traceback" not in str(refused.value)
