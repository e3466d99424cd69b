"""What `barnabas topic` shows of Kafka's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.cli import main, topic_command
from barnabas.cli.cluster_connection import error_text, how_to_start, require_partitions, topic_error_text
from barnabas.cli.command_line import CommandError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import METADATA_TOPIC_ID

if TYPE_CHECKING:
    from barnabas.cli.cluster_connection import Topic

Partition = m.MetadataResponse.MetadataResponsePartition


def orders() -> Topic:
    return m.MetadataResponse.MetadataResponseTopic(
        name="orders",
        topic_id=METADATA_TOPIC_ID,
        partitions=[
            Partition(partition_index=1, leader_id=-1, replica_nodes=[2, 3], isr_nodes=[], offline_replicas=[2, 3]),
            Partition(partition_index=0, leader_id=1, leader_epoch=4, replica_nodes=[1, 2], isr_nodes=[1]),
        ],
    )


def test_partitions_are_shown_in_order_with_what_is_missing() -> None:
    assert topic_command.partition_rows(orders()) == [(0, 1, 4, "1,2", "1", "-"), (1, "none", -1, "2,3", "", "2,3")]


def test_the_heading_names_the_settings_in_order() -> None:
    configs: dict[str, str | None] = {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert topic_command.heading(orders(), configs) == (
        "orders  id AAAAAAAAAAAAAAAAAAAAAQ  partitions 2  replication 2  "
        "configs cleanup.policy=compact,retention.ms=1000"
    )
    assert topic_command.heading(orders(), {}).endswith("configs none")


def test_json_has_counts_and_every_partition() -> None:
    facts = topic_command.describe_facts(orders(), {})
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


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (Error.UNKNOWN_TOPIC_OR_PARTITION, "topic 'orders' does not exist (`barnabas topic list` lists topics"),
        (Error.INVALID_TOPIC_EXCEPTION, "'orders' is not a valid topic name"),
        (Error.TOPIC_AUTHORIZATION_FAILED, "topic 'orders': TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_what_is_wrong_with_a_topic_is_said_in_words(code: Error, text: str) -> None:
    found = orders()
    found.error_code = code
    assert topic_error_text(found).startswith(text)


@pytest.mark.parametrize(("count", "there"), [(1, "1 partition (0)"), (3, "3 partitions (0 … 2)")])
def test_a_partition_that_a_topic_does_not_have_is_answered_with_those_it_has(count: int, there: str) -> None:
    require_partitions("orders", count, range(count))
    with pytest.raises(CommandError) as refusal:
        require_partitions("orders", count, [99, 0, count])
    assert str(refusal.value) == f"topic 'orders' has {there}, but no partition {count}"


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("127.0.0.1:9092", "`barnabas start` starts a node"),
        ("localhost:1", "`barnabas start --listen localhost:1` starts a node there"),
        ("broker.example:9092", "is a node running there? use --bootstrap-server to connect to another one"),
        ("127.0.0.1:1,127.0.0.1:2", "is a node running there? use --bootstrap-server to connect to another one"),
    ],
)
def test_where_nobody_answers_the_command_that_helps_is_named(address: str, advice: str) -> None:
    assert how_to_start(address) == advice


def test_every_action_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name in topic_command.ACTIONS:
        with pytest.raises(SystemExit) as end:
            main.main(["topic", name, "--help"])
        assert end.value.code == 0
        assert f"usage: barnabas topic {name}" in capsys.readouterr().out
