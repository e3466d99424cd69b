"""What kafka-python's admin client asks beyond the calls that every library has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kafka
import pytest

from tests.clients.adapter import values
from tests.clients.with_kafka_python import KafkaPythonClient
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import Peer


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
