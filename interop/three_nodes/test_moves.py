"""Kafka's tool moves replicas between our three nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.clients.adapter import values
from tests.peers import wait_until

from interop.kafka_tools import KafkaTools

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.with_confluent import ConfluentClient

    from interop.clusters import ThreeNodes


def test_kafka_reassign_partitions_moves_replicas_between_brokers(
    three_nodes: ThreeNodes, client: ConfluentClient, topic: str, tmp_path: Path
) -> None:
    tools = KafkaTools(three_nodes.bootstrap)
    client.create_topic(topic)
    client.produce(topic, values(10))
    for replicas in ([1, 2], [3], [2, 1, 3]):
        plan = tmp_path / "plan.json"
        moved = {"topic": topic, "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        of_plan = ("--reassignment-json-file", str(plan))
        started = tools.run("kafka-reassign-partitions", *of_plan, "--execute", "--throttle", "10000000")
        assert f"Successfully started partition reassignment for {topic}-0" in started
        completed = f"Reassignment of partition {topic}-0 is completed."
        wait_until(
            lambda of_plan=of_plan, completed=completed: (  # type: ignore[misc]
                completed in tools.run("kafka-reassign-partitions", *of_plan, "--verify")
            ),
            "the move is completed",
        )
        described = tools.run("kafka-topics", "--describe", "--topic", topic)
        assert f"Replicas: {','.join(map(str, replicas))}\t" in described
        assert client.offset_range(topic) == (0, 10)
