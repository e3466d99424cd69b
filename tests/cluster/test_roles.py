"""Nodes with one role: controllers that serve no clients, and brokers without a vote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from barnabas.client.broker_connection import Connection
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.envelopes import ForwardedClient, open_response, seal_request
from barnabas.protocol.errors import Error
from tests.cluster.clusters import (
    DEADLINE_S,
    QUICK,
    admin,
    consume,
    create_topic,
    format_folder,
    produce,
    status,
    topics,
    wait_until,
)
from tests.nodes import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nodes 1 to 3 are controllers, 4 is a broker, as their settings say."""
    with Cluster(tmp_path_factory.mktemp("roles"), nodes=4, controllers=(1, 2, 3), settings=QUICK) as cluster:
        yield cluster


def test_controllers_serve_no_clients_and_a_broker_has_no_vote(shared: Cluster) -> None:
    for voter in shared.layout.voters:
        assert f"barnabas ready: CONTROLLER://127.0.0.1:{voter.port}" in shared.log_text(voter.node_id)
    facts = status(shared)
    assert facts["quorum"]["voters"] == [1, 2, 3]
    assert facts["quorum"]["observers"] == [4]
    assert [node["roles"] for node in facts["nodes"]] == [["controller"]] * 3 + [["broker"]]


def test_a_broker_without_a_controller_has_topics_created_and_serves_them(shared: Cluster) -> None:
    client = admin(shared, 4)
    create_topic(client, "orders", 2)
    assert topics(client)["orders"] == 2
    produce(shared[4].bootstrap, "orders", [b"one", b"two"], 1)
    assert consume(shared[4].bootstrap, "orders", 2, 1) == [b"one", b"two"]
    refused = client.create_topics([NewTopic("orders", 2, 1)])["orders"].exception()
    assert refused is not None
    assert "TOPIC_ALREADY_EXISTS" in str(refused)
    client.delete_topics(["orders"])["orders"].result(DEADLINE_S)
    assert "orders" not in topics(client)


def test_settings_that_a_remote_controller_has_changed_are_described_at_once(shared: Cluster) -> None:
    client = admin(shared, 4)
    create_topic(client, "configured", 1)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "configured")
    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    client.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    described = client.describe_configs([resource])[resource].result(DEADLINE_S)
    assert described["retention.ms"].value == "12345"
    wrong = ConfigResource(ConfigResource.Type.TOPIC, "configured")
    wrong.add_incremental_config(ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET))
    refused = client.incremental_alter_configs([wrong])[wrong].exception(DEADLINE_S)
    assert "INVALID_CONFIG" in str(refused)


def test_controllers_tell_admin_clients_about_themselves(shared: Cluster) -> None:
    """KIP-919: tools connect to controllers directly."""
    ports = {voter.node_id: voter.port for voter in shared.layout.voters}
    leader = status(shared)["quorum"]["leader"]
    with Connection("127.0.0.1", ports[leader]) as controller:
        described = controller.send(m.DescribeClusterRequest(endpoint_type=2))
        assert {node.broker_id: node.port for node in described.brokers} == ports
        assert described.controller_id == leader
        quorum = controller.send(
            m.DescribeQuorumRequest(
                topics=[
                    m.DescribeQuorumRequest.TopicData(
                        topic_name="__cluster_metadata",
                        partitions=[m.DescribeQuorumRequest.PartitionData(partition_index=0)],
                    )
                ]
            )
        )
        assert quorum.topics[0].partitions[0].leader_id == leader


def test_every_controller_describes_settings_as_they_are_committed_and_its_own(shared: Cluster) -> None:
    """KIP-919: `kafka-configs --bootstrap-controller` asks whichever controller it likes, and one for its own."""
    create_topic(admin(shared, 4), "described", 1)
    for voter in shared.layout.voters:
        described = settings_of(voter.port, ResourceType.TOPIC, "described")
        wait_until(lambda: described().error_code == Error.NONE, "the controller knows the topic")  # noqa: B023
        assert {entry.name: entry.value for entry in described().configs}["retention.ms"] == "604800000"
        unknown = settings_of(voter.port, ResourceType.TOPIC, "nowhere")()
        assert unknown.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        own = settings_of(voter.port, ResourceType.BROKER, str(voter.node_id))()
        assert {entry.name: entry.value for entry in own.configs}["node.id"] == str(voter.node_id)
        refused = settings_of(voter.port, ResourceType.BROKER, "4")()
        assert refused.error_code == Error.INVALID_REQUEST
        assert f"expected {voter.node_id} or empty string, but received 4" in (refused.error_message or "")


def settings_of(
    port: int, kind: ResourceType, name: str
) -> Callable[[], m.DescribeConfigsResponse.DescribeConfigsResult]:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)

    def ask() -> m.DescribeConfigsResponse.DescribeConfigsResult:
        with Connection("127.0.0.1", port) as controller:
            answer: m.DescribeConfigsResponse = controller.send(m.DescribeConfigsRequest(resources=[resource]))
            return answer.results[0]

    return ask


def test_an_envelope_that_makes_no_sense_is_refused_as_kafka_refuses_it(shared: Cluster) -> None:
    leader = status(shared)["quorum"]["leader"]
    port = next(voter.port for voter in shared.layout.voters if voter.node_id == leader)
    client = ForwardedClient(0, 1, "client", "127.0.0.1")
    unregistration = codec.encode(m.UnregisterBrokerRequest(broker_id=99), 0)
    whole, nobody, nowhere = (seal_request(ApiKey.UNREGISTER_BROKER, unregistration, client) for _ in range(3))
    nobody.request_principal = b"\0\x07"
    nowhere.client_host_address = b"\1\2\3"
    for_brokers = seal_request(ApiKey.HEARTBEAT, codec.encode(m.HeartbeatRequest(group_id="g"), 0), client)
    with Connection("127.0.0.1", port) as controller:
        assert controller.send(for_brokers).error_code == Error.INVALID_REQUEST
        assert controller.send(nobody).error_code == Error.PRINCIPAL_DESERIALIZATION_FAILURE
        assert controller.send(nowhere).error_code == Error.INVALID_REQUEST
        enclosed = open_response(controller.send(whole), ApiKey.UNREGISTER_BROKER, client)
        answer: Any = codec.decode(enclosed.response_class, enclosed.data, 0, enclosed.body_offset)
        assert answer.error_code == Error.BROKER_ID_NOT_REGISTERED


def test_very_many_topics_are_created_through_a_broker_without_a_controller(shared: Cluster) -> None:
    request = m.CreateTopicsRequest
    names = [f"many-{number}" for number in range(1_500)]
    topic = request.CreatableTopic
    with Connection("127.0.0.1", shared[4].port, timeout_s=60) as broker:
        response = broker.send(
            request(
                topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in names],
                timeout_ms=60_000,
                validate_only=True,
            )
        )
    assert [(each.name, each.error_code) for each in response.topics] == [(name, Error.NONE) for name in names]
    assert all(each.configs for each in response.topics)


def test_another_controller_takes_over_while_brokers_go_on(shared: Cluster) -> None:
    first = status(shared)["quorum"]["leader"]
    shared.kill(first)
    create_topic(admin(shared, 4), "after-a-controller", 1)
    shared.start_node(first)
    wait_until(lambda: status(shared)["nodes"][first - 1]["lag"] == 0, "the controller that was killed has caught up")
    assert "registered again" not in shared.log_text(4)
    assert shared.log_text(4).count("is unfenced with epoch") == 1


def test_voters_that_every_file_names_form_a_quorum_as_well(tmp_path: Path) -> None:
    """The older way, kraft.version 0: the voters are not in the metadata log."""
    cluster = Cluster(tmp_path, settings=QUICK)
    voters = ",".join(f"{voter.node_id}@127.0.0.1:{voter.port}" for voter in cluster.layout.voters)
    for node_id in cluster.nodes:
        file = cluster.config_file(node_id)
        lines = [line for line in file.read_text().splitlines() if "bootstrap.servers" not in line]
        file.write_text("\n".join([*lines, f"controller.quorum.voters={voters}"]))
        format_folder(file, cluster.layout.cluster_id)
    with cluster:
        create_topic(admin(cluster, 3), "orders", 1)
        leader = status(cluster)["quorum"]["leader"]
        cluster.kill(leader)
        create_topic(admin(cluster, cluster.running[0]), "more", 1)
        cluster.start_node(leader)
        assert {"orders", "more"} <= set(topics(admin(cluster, leader)))
        assert status(cluster)["quorum"]["voters"] == [1, 2, 3]
