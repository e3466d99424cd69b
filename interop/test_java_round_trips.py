"""The Java client writes, reads and administers topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interop.clusters import ON_BOTH

if TYPE_CHECKING:
    from interop.programs import Program


@ON_BOTH
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(java: Program, topic: str, codec: str) -> None:
    seen = java.run("round-trip", topic=topic, codec=codec)
    assert len(seen["sent"]) == 300
    assert seen["received"] == seen["sent"]


def test_a_topic_is_made_described_enlarged_filled_and_deleted(java: Program, topic: str) -> None:
    assert java.run("topic", topic=topic) == {
        "created_again": "TopicExistsException",
        "listed": True,
        "partitions": 2,
        "has_id": True,
        "leader_is_replica": True,
        "end_offset": 10,
        "start_offset": 0,
        "described_when_gone": "UnknownTopicOrPartitionException",
    }


def test_configs_are_set_appended_to_deleted_and_checked(java: Program, topic: str) -> None:
    assert java.run("configs", topic=topic) == {
        "before": ["604800000", "DEFAULT_CONFIG"],
        "set": ["3600000", "DYNAMIC_TOPIC_CONFIG"],
        "appended": ["delete,compact", "DYNAMIC_TOPIC_CONFIG"],
        "deleted": ["604800000", "DEFAULT_CONFIG"],
        "refused": "InvalidConfigurationException",
        "broker_id": True,
    }
