"""What `barnabas topic` shows of Kafka's answers."""

from __future__ import annotations

import pytest

from barnabas.cli import main, topic
from barnabas.cli.wire import error_text
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import METADATA_TOPIC_ID

Partition = m.MetadataResponse.MetadataResponsePartition


def orders() -> topic.Topic:
    return m.MetadataResponse.MetadataResponseTopic(
        name="orders",
        topic_id=METADATA_TOPIC_ID,
        partitions=[
            Partition(partition_index=1, leader_id=-1, replica_nodes=[2, 3], isr_nodes=[], offline_replicas=[2, 3]),
            Partition(partition_index=0, leader_id=1, leader_epoch=4, replica_nodes=[1, 2], isr_nodes=[1]),
        ],
    )


def test_partitions_are_shown_in_order_with_what_is_missing() -> None:
    assert topic.partition_rows(orders()) == [(0, 1, 4, "1,2", "1", "-"), (1, "none", -1, "2,3", "", "2,3")]


def test_the_heading_names_the_settings_in_order() -> None:
    configs: dict[str, str | None] = {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert topic.heading(orders(), configs) == (
        "orders  id AAAAAAAAAAAAAAAAAAAAAQ  partitions 2  replication 2  "
        "configs cleanup.policy=compact,retention.ms=1000"
    )
    assert topic.heading(orders(), {}).endswith("configs none")


def test_json_has_counts_and_every_partition() -> None:
    facts = topic.describe_facts(orders(), {})
    assert (facts["name"], facts["partition_count"], facts["replication_factor"]) == ("orders", 2, 2)
    assert facts["partitions"] == [
        {"partition": 0, "leader": 1, "leader_epoch": 4, "replicas": [1, 2], "in_sync": [1], "offline": []},
        {"partition": 1, "leader": -1, "leader_epoch": -1, "replicas": [2, 3], "in_sync": [], "offline": [2, 3]},
    ]


@pytest.mark.parametrize(
    ("code", "message", "text"),
    [
        (Error.INVALID_CONFIG, "Unknown topic config name: x", "INVALID_CONFIG: Unknown topic config name: x"),
        (Error.UNKNOWN_TOPIC_OR_PARTITION, None, "UNKNOWN_TOPIC_OR_PARTITION"),
        (31_000, None, "error code 31000"),
    ],
)
def test_an_error_is_shown_with_its_name_and_the_brokers_words(code: int, message: str | None, text: str) -> None:
    assert error_text(code, message) == text


def test_a_mistyped_action_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["topic", "descibe"]) == 2
    assert "did you mean 'describe'?" in capsys.readouterr().err


def test_every_action_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name in topic.ACTIONS:
        with pytest.raises(SystemExit) as end:
            main.main(["topic", name, "--help"])
        assert end.value.code == 0
        assert f"usage: barnabas topic {name}" in capsys.readouterr().out
