"""DescribeLogDirs says what is in the folders of a broker."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import batch
from tests.wire.connection import Connection
from tests.wire.requests import BROKER_RESOURCE, Topic, create_topic, produce

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeNode
    from tests.peers import Peer

LATEST = 5
WITH_SPACE = 4


def describe(
    connection: Connection, wanted: dict[str, list[int]] | None, version: int = LATEST
) -> list[m.DescribeLogDirsResponse.DescribeLogDirsResult]:
    request = m.DescribeLogDirsRequest
    topics = None
    if wanted is not None:
        topics = [request.DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    answer = connection.call(request(topics=topics), version, m.DescribeLogDirsResponse)
    assert answer.error_code == Error.NONE
    return answer.results


def sizes(result: m.DescribeLogDirsResponse.DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, LATEST + 1))
def test_a_partition_is_as_large_as_its_batches(
    connection: Connection, node: Peer, wire_topic: Topic, version: int
) -> None:
    written = batch()
    for _ in range(3):
        produce(connection, wire_topic, written)
    (folder,) = describe(connection, {wire_topic.name: [0]}, version)
    assert folder.error_code == Error.NONE
    assert folder.log_dir == str(node.data_dir)
    assert sizes(folder) == {(wire_topic.name, 0): 3 * len(written)}
    (partition,) = folder.topics[0].partitions
    assert (partition.offset_lag, partition.is_future_key) == (0, False)


def test_the_space_of_the_volume_is_told(connection: Connection, node: Peer) -> None:
    (folder,) = describe(connection, {}, WITH_SPACE)
    usage = shutil.disk_usage(node.data_dir)
    assert folder.total_bytes == usage.total
    assert 0 < folder.usable_bytes <= usage.total
    (before,) = describe(connection, {}, WITH_SPACE - 1)
    assert (before.total_bytes, before.usable_bytes) == (-1, -1)


def test_all_partitions_are_described_if_none_is_named(connection: Connection, topic: str) -> None:
    create_topic(connection, topic, partitions=3)
    (folder,) = describe(connection, None)
    assert {(topic, index) for index in range(3)} <= set(sizes(folder))


def test_what_does_not_exist_is_left_out_and_what_is_named_twice_is_described_once(
    connection: Connection, wire_topic: Topic
) -> None:
    (folder,) = describe(connection, {wire_topic.name: [0, 7, 0, -1], "no-such-topic": [0], "no name!": [0]})
    assert [topic.name for topic in folder.topics] == [wire_topic.name]
    assert [partition.partition_index for partition in folder.topics[0].partitions] == [0]


def test_no_topic_is_described_if_none_is_asked_for(connection: Connection, wire_topic: Topic) -> None:
    (nothing,) = describe(connection, {})
    (nothing_of_it,) = describe(connection, {wire_topic.name: []})
    assert nothing.topics == nothing_of_it.topics == []


def test_a_large_request_is_answered_like_a_small_one(connection: Connection, wire_topic: Topic) -> None:
    produce(connection, wire_topic, batch())
    (folder,) = describe(connection, {"no-such-topic": list(range(5000)), wire_topic.name: list(range(5000))})
    assert sizes(folder) == {(wire_topic.name, 0): len(batch())}


def cordon(connection: Connection, paths: str) -> None:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=paths)
    broker = request.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=[config])
    (answer,) = connection.call(request(resources=[broker]), 1, m.IncrementalAlterConfigsResponse).responses
    assert answer.error_code == Error.NONE, answer.error_message


def test_a_cordoned_folder_gets_no_new_partitions(make_node: MakeNode, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    node = make_node({"log.dirs": ",".join(map(str, folders))})
    with Connection(node.port) as connection:
        cordon(connection, str(folders[0]))

        def cordoned() -> dict[str, bool]:
            return {each.log_dir: each.is_cordoned for each in describe(connection, {})}

        wait_until(lambda: cordoned() == {str(folders[0]): True, str(folders[1]): False}, "one folder is cordoned")
        create_topic(connection, "placed", partitions=4)
        found = {each.log_dir: len(sizes(each)) for each in describe(connection, {"placed": list(range(4))})}
        assert found == {str(folders[0]): 0, str(folders[1]): 4}

        cordon(connection, "*")
        wait_until(lambda: all(cordoned().values()), "both are cordoned")
        request = m.CreateTopicsRequest
        refused = request.CreatableTopic(name="refused", num_partitions=1, replication_factor=1)

        def outcome() -> int:
            asked = request(topics=[refused], timeout_ms=30_000, validate_only=True)
            return connection.call(asked, 7, m.CreateTopicsResponse).topics[0].error_code

        wait_until(lambda: outcome() == Error.INVALID_REPLICATION_FACTOR, "no broker takes new replicas")
