"""The progress of streaming queries as that of consumer groups, as librdkafka's consumer sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer
from pyspark.errors import StreamingQueryException

from barnabas.client.client_settings import ClientSettings
from barnabas.client.cluster import Cluster
from barnabas.spark.read.group_progress import GroupProgress
from tests.peers import wait_until
from tests.spark.pipelines import Batches, run_to_end, running, source
from tests.spark.topics import commit, committed, create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.peers import Peer


@pytest.fixture
def cluster(group_node: Peer) -> Iterator[Cluster]:
    with Cluster(ClientSettings.from_options({"bootstrap.servers": group_node.bootstrap})) as connected:
        yield connected


def test_a_query_that_reads_what_is_available_now_has_committed_all_of_it_when_it_ends(
    spark: SparkSession, group_node: Peer, topic: str, group: str, tmp_path: Path
) -> None:
    create_topic(group_node, topic, partitions=2)
    produce(group_node, topic, range(5), 0)
    produce(group_node, topic, range(3), 1)
    options = {"subscribe": topic, "kafka.group.id": group, "maxOffsetsPerTrigger": "4"}
    seen = Batches()
    run_to_end(source(spark, group_node, startingOffsets="earliest", **options), seen, tmp_path)
    assert len(seen.batches) > 1
    assert committed(group_node, group, topic, 2) == [5, 3]


def test_a_batch_is_committed_when_it_is_finished_not_when_the_next_one_is_due(
    spark: SparkSession, group_node: Peer, topic: str, group: str, tmp_path: Path
) -> None:
    create_topic(group_node, topic)
    produce(group_node, topic, range(5))
    options = {"subscribe": topic, "kafka.group.id": group, "startingOffsets": "earliest"}
    with running(source(spark, group_node, **options), Batches(), tmp_path, processingTime="1 hour"):
        wait_until(lambda: committed(group_node, group, topic) == [5], "the group has reached the end of the topic")


def test_the_last_batch_before_a_stop_is_committed(
    spark: SparkSession, group_node: Peer, topic: str, group: str, tmp_path: Path
) -> None:
    create_topic(group_node, topic)
    produce(group_node, topic, range(5))
    options = {"subscribe": topic, "kafka.group.id": group, "startingOffsets": "earliest"}
    with running(source(spark, group_node, **options), Batches(), tmp_path, once=True) as query:
        query.awaitTermination()
    wait_until(lambda: committed(group_node, group, topic) == [5], "the group has reached the end of the topic")


def test_a_batch_that_fails_is_not_committed(
    spark: SparkSession, group_node: Peer, topic: str, group: str, tmp_path: Path
) -> None:
    create_topic(group_node, topic)
    produce(group_node, topic, range(6))
    options = {"subscribe": topic, "kafka.group.id": group, "maxOffsetsPerTrigger": "2"}

    def fail_at_the_third(rows: DataFrame, batch_id: int) -> None:
        if batch_id == 2:
            raise ValueError("no more")

    with pytest.raises(StreamingQueryException, match="no more"):
        run_to_end(source(spark, group_node, startingOffsets="earliest", **options), fail_at_the_third, tmp_path)
    assert committed(group_node, group, topic) == [4]


def test_a_group_that_cannot_be_committed_to_does_not_stop_the_query(
    spark: SparkSession, group_node: Peer, topic: str, group: str, tmp_path: Path
) -> None:
    create_topic(group_node, topic)
    produce(group_node, topic, range(5))
    member = Consumer(
        {"bootstrap.servers": group_node.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    member.subscribe([topic])
    try:
        wait_until(lambda: member.poll(0.1) is not None, "the group has a member")
        seen = Batches()
        options = {"subscribe": topic, "kafka.group.id": group, "startingOffsets": "earliest"}
        run_to_end(source(spark, group_node, **options), seen, tmp_path)
        assert len(seen.values) == 5
    finally:
        member.close()


def test_a_new_query_may_start_where_a_group_has_come_to_and_takes_it_on(
    spark: SparkSession, group_node: Peer, topic: str, group: str, tmp_path: Path
) -> None:
    create_topic(group_node, topic, partitions=2)
    produce(group_node, topic, range(5), 0)
    produce(group_node, topic, range(5, 8), 1)
    commit(group_node, group, {(topic, 0): 3})
    seen = Batches()
    options = {"subscribe": topic, "kafka.group.id": group, "startingOffsets": "group"}
    run_to_end(source(spark, group_node, **options), seen, tmp_path)
    assert sorted(seen.values) == ["3", "4", "5", "6", "7"]
    assert committed(group_node, group, topic, 2) == [5, 3]


def test_each_source_of_a_query_has_its_own_group(
    spark: SparkSession, group_node: Peer, topic: str, group: str, tmp_path: Path
) -> None:
    rows = []
    for name, count in (("a", 3), ("b", 5)):
        create_topic(group_node, f"{topic}-{name}")
        produce(group_node, f"{topic}-{name}", range(count))
        options = {"subscribe": f"{topic}-{name}", "kafka.group.id": f"{group}-{name}"}
        rows.append(source(spark, group_node, startingOffsets="earliest", **options))
    with running(rows[0].union(rows[1]), Batches(), tmp_path, processingTime="1 hour"):
        wait_until(lambda: committed(group_node, f"{group}-a", f"{topic}-a") == [3], "the first group is at the end")
        wait_until(lambda: committed(group_node, f"{group}-b", f"{topic}-b") == [5], "the second group is at the end")


def test_a_group_is_brought_forward_and_never_back_by_who_hears_of_progress_later(
    group_node: Peer, cluster: Cluster, topic: str, group: str
) -> None:
    create_topic(group_node, topic, partitions=2)
    progress = GroupProgress(group, lambda: cluster)
    progress.has_reached({(topic, 0): 5, (topic, 1): 5})
    commit(group_node, group, {(topic, 0): 9})
    progress.has_reached({(topic, 0): 7, (topic, 1): 7})
    assert committed(group_node, group, topic, 2) == [9, 7]
    progress.stands_at({(topic, 0): 1, (topic, 1): 8})
    assert committed(group_node, group, topic, 2) == [1, 8]


def test_a_commit_that_failed_is_not_tried_again_at_once(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.read.group_progress.COMMIT_TIMEOUT_MS", 300)
    progress = GroupProgress(group, lambda: cluster)
    for _ in range(3):
        progress.stands_at({(topic, 0): 5})
    assert caplog.text.count(f"cannot commit the progress of group '{group}'; the query continues") == 1


def test_a_commit_that_was_put_off_after_a_failure_is_made_up_for_at_the_end(
    group_node: Peer, cluster: Cluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.read.group_progress.COMMIT_TIMEOUT_MS", 300)
    progress = GroupProgress(group, lambda: cluster)
    progress.has_reached({(topic, 0): 5})  # there is no such topic yet
    create_topic(group_node, topic)
    progress.has_reached({(topic, 0): 7})
    assert committed(group_node, group, topic) == [-1001]
    progress.ends()
    assert committed(group_node, group, topic) == [7]
