"""What the admin clients of kafka-python and confluent-kafka ask beyond the calls that every library has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient
from kafka.errors import LogDirNotFoundError, NoError

from tests.clients.adapter import values
from tests.clients.with_confluent import ConfluentClient
from tests.clients.with_kafka_python import KafkaPythonClient
from tests.peers import running, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import Peer, PeerKind

PREFERRED, UNCLEAN = 0, 1
UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED = 3, 84


@pytest.fixture
def admin(node: Peer) -> Iterator[Any]:
    admin = kafka.KafkaAdminClient(bootstrap_servers=node.bootstrap)
    yield admin
    admin.close()


def test_log_dirs_are_described(admin: Any, node: Peer, topic: str) -> None:
    client = KafkaPythonClient(node.bootstrap)
    client.create_topic(topic, partitions=2)
    client.produce(topic, values(10), partition=1)
    (broker,) = admin.describe_log_dirs({topic: [0, 1]})
    (folder,) = broker["log_dirs"]
    assert folder["log_dir"] == str(node.data_dir)
    (found,) = folder["topics"]
    sizes = {each["partition_index"]: each["partition_size"] for each in found["partitions"]}
    assert sizes[0] == 0
    assert sizes[1] > 10


def test_resources_with_settings_are_listed(admin: Any, node: Peer, topic: str) -> None:
    KafkaPythonClient(node.bootstrap).create_topic(topic)
    wait_until(lambda: topic in admin.list_config_resources()["topic"], "the topic is listed")
    assert admin.list_config_resources(["BROKER"]) == {"broker": ["1"]}


def test_feature_updates_are_validated(admin: Any) -> None:
    def levels() -> dict[str, Any]:
        return {name: each.get("finalized") for name, each in admin.describe_features().items()}

    before = levels()
    assert before["metadata.version"] == (30, 30)
    admin.update_features({"group.version": ("SAFE_DOWNGRADE", 0)}, validate_only=True)
    assert levels() == before


def test_an_election_of_the_preferred_leader_is_not_needed_on_one_node(admin: Any, node: Peer, topic: str) -> None:
    KafkaPythonClient(node.bootstrap).create_topic(topic, partitions=2)
    answer = admin.elect_leaders(PREFERRED, {topic: [0, 1]})
    assert answer.error_code == 0
    (elected,) = answer.replica_election_results
    assert {each.partition_id: each.error_code for each in elected.partition_result} == {
        0: ELECTION_NOT_NEEDED,
        1: ELECTION_NOT_NEEDED,
    }


def test_confluent_kafka_is_told_that_no_election_is_needed(node: Peer, topic: str) -> None:
    ConfluentClient(node.bootstrap).create_topic(topic, partitions=2)
    partitions = [confluent_kafka.TopicPartition(topic, index) for index in (0, 1, 7)]
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    answer = admin.elect_leaders(ElectionType.PREFERRED, partitions).result(30)
    codes = {partition.partition: error.code() for partition, error in answer.items()}
    assert codes == {0: ELECTION_NOT_NEEDED, 1: ELECTION_NOT_NEEDED, 7: UNKNOWN_TOPIC_OR_PARTITION}


def test_the_quorum_is_described(admin: Any) -> None:
    described = admin.describe_metadata_quorum()
    (topic,) = described["topics"]
    (partition,) = topic["partitions"]
    assert topic["topic_name"] == "__cluster_metadata"
    (voter,) = partition["current_voters"]
    assert partition["leader_id"] == voter["replica_id"] == 1
    assert 0 < partition["high_watermark"] <= voter["log_end_offset"]


def test_an_election_among_unclean_replicas_is_refused_where_the_leader_is_there(
    admin: Any, node: Peer, topic: str
) -> None:
    KafkaPythonClient(node.bootstrap).create_topic(topic)
    answer = admin.elect_leaders(UNCLEAN, {topic: [0, 7]}, raise_errors=False)
    (elected,) = answer.replica_election_results
    assert {each.partition_id: each.error_code for each in elected.partition_result} == {
        0: ELECTION_NOT_NEEDED,
        7: UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_replicas_go_to_other_folders(peer_kind: PeerKind, tmp_path: Path) -> None:
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    with running(peer_kind, tmp_path, {"log.dirs": ",".join(folders)}) as broker:
        client = KafkaPythonClient(broker.bootstrap)
        client.create_topic("moved", partitions=2)
        client.produce("moved", values(10), partition=1)
        admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        replica = kafka.TopicPartitionReplica("moved", 1, 1)

        def place() -> str:
            """The folder in which the partition is, and not only a copy on its way."""
            (described,) = admin.describe_log_dirs({"moved": [1]})
            (found,) = (
                each["log_dir"]
                for each in described["log_dirs"]
                for topic in each["topics"]
                for partition in topic["partitions"]
                if not partition["is_future_key"]
            )
            return str(found)

        (target,) = set(folders) - {place()}
        assert admin.alter_replica_log_dirs({replica: str(tmp_path / "three")}) == {replica: LogDirNotFoundError}
        assert admin.alter_replica_log_dirs({replica: target}) == {replica: NoError}
        wait_until(lambda: place() == target, "the replica is where it was sent")
        admin.close()
        assert client.offset_range("moved", 1) == (0, 10)


def test_no_reassignments_are_listed_where_there_is_one_broker(admin: Any, node: Peer, topic: str) -> None:
    KafkaPythonClient(node.bootstrap).create_topic(topic)
    partition = kafka.TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({partition: [1]}) == {partition: None}
    assert admin.list_partition_reassignments() == {}
    assert admin.list_partition_reassignments({topic: [0]}) == {}
