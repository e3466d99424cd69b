"""A device that does not keep what it was given: the data folder on it goes, and the node only if it must.

A real sync is made to fail without rights or special devices: the name of a segment is given to `/dev/null`, which the
system refuses to sync. The node, which has the segment open, goes on writing to it.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from barnabas.log.folder.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS, TopicPartition, read_offsets
from barnabas.ports import SystemDisk
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.node_process import Node
from tests.peers import SETTINGS, wait_until
from tests.wire.batches import batch
from tests.wire.connection import Connection
from tests.wire.requests import LATEST, Topic, create_topic, fetch_request, list_offsets, produce

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SYNCED_EACH_TIME = {"flush.messages": "1"}
Shown = tuple[Error, int, list[int], list[int]]
"""Error, leader, in-sync and offline replicas of a partition."""
SERVED: Shown = (Error.NONE, 1, [1], [])
OFFLINE: Shown = (Error.LEADER_NOT_AVAILABLE, -1, [], [1])
CHECKPOINTED_OFTEN = {**SETTINGS, "log.flush.offset.checkpoint.interval.ms": "50"}


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """The first is that of the metadata log."""
    return [tmp_path / "first", tmp_path / "second"]


@pytest.fixture
def node(tmp_path: Path, folders: list[Path]) -> Iterator[Node]:
    log_dirs = {"log.dirs": ",".join(map(str, folders))}
    node = Node(tmp_path / "none", settings=CHECKPOINTED_OFTEN | log_dirs, log_file=tmp_path / "node.log")
    node.start()
    yield node
    node.kill()


def make_sync_fail(folder: Path) -> tuple[Path, Path]:
    """The next sync of a partition's first segment fails. Returns what was put aside, and where it was."""
    segment = folder / f"{0:020}.log"
    aside = folder.parent.parent / "segment"
    segment.rename(aside)
    segment.symlink_to("/dev/null")
    return aside, segment


def describe(connection: Connection, topic: Topic) -> list[Shown]:
    """What Metadata says of each partition."""
    wanted = m.MetadataRequest.MetadataRequestTopic(name=topic.name)
    (answer,) = connection.call(m.MetadataRequest(topics=[wanted]), 8, m.MetadataResponse).topics
    partitions = sorted(answer.partitions, key=lambda partition: partition.partition_index)
    return [
        (Error(each.error_code), each.leader_id, list(each.isr_nodes), list(each.offline_replicas))
        for each in partitions
    ]


def errors_of(connection: Connection, topic: Topic, partition: int) -> set[Error]:
    """What a producer, a reader and whoever asks for offsets are told."""
    fetched = connection.call(fetch_request(topic, 12, partition=partition), 12, m.FetchResponse)
    codes = (
        produce(connection, topic, batch(), partition=partition).error_code,
        fetched.responses[0].partitions[0].error_code,
        list_offsets(connection, topic, LATEST, partition=partition).error_code,
    )
    return {Error(code) for code in codes}


def recovery_points(folder: Path) -> dict[TopicPartition, int]:
    return read_offsets(SystemDisk(), str(folder / RECOVERY_POINTS))


def test_a_folder_whose_sync_fails_goes_offline_and_the_rest_of_the_node_goes_on(
    node: Node, folders: list[Path], topic: str
) -> None:
    with Connection(node.port) as connection:
        made = create_topic(connection, topic, partitions=4, config=SYNCED_EACH_TIME)
        lost = [index for index in range(4) if (folders[1] / f"{topic}-{index}").exists()]
        kept = [index for index in range(4) if index not in lost]
        assert len(lost) == 2
        for index in range(4):
            assert produce(connection, made, batch([b"synced"]), partition=index).error_code == Error.NONE
        synced = {TopicPartition(topic, index): 1 for index in lost}
        wait_until(lambda: recovery_points(folders[1]) == synced, "the recovery points are written")

        aside, segment = make_sync_fail(folders[1] / f"{topic}-{lost[0]}")
        refused = produce(connection, made, batch([b"not synced"]), partition=lost[0])
        assert Error(refused.error_code) is Error.KAFKA_STORAGE_ERROR
        wait_until(
            lambda: describe(connection, made) == [OFFLINE if index in lost else SERVED for index in range(4)],
            "the partitions have no leader",
        )
        # The device is well again, as it seems; what it has dropped it does not bring back.
        segment.unlink()
        aside.rename(segment)
        for index in lost:
            assert errors_of(connection, made, index) == {Error.KAFKA_STORAGE_ERROR}
        for index in kept:
            assert errors_of(connection, made, index) == {Error.NONE}
        later = create_topic(connection, f"{topic}-later", partitions=3)
        assert describe(connection, later) == [SERVED] * 3
        assert list(folders[1].glob(f"{later.name}-*")) == []
    assert f"{folders[1]} has failed and is offline with its 2 partitions: [Errno 22]" in node.log_text()

    node.stop()
    assert [(folder / CLEAN_SHUTDOWN).exists() for folder in folders] == [True, False]
    assert recovery_points(folders[1]) == synced

    node.start()
    with Connection(node.port) as connection:
        assert describe(connection, made) == [SERVED] * 4
        for index in range(4):
            assert errors_of(connection, made, index) == {Error.NONE}


@pytest.fixture(params=[1, 2], ids=["alone", "beside another"])
def some_folders(request: pytest.FixtureRequest, folders: list[Path]) -> list[Path]:
    return folders[: request.param]


@pytest.mark.parametrize("is_of_data", [True, False], ids=["data", "metadata"])
def test_a_node_whose_metadata_log_is_on_the_failed_device_stops_and_says_why(
    tmp_path: Path, some_folders: list[Path], topic: str, *, is_of_data: bool
) -> None:
    log_dirs = {"log.dirs": ",".join(map(str, some_folders))}
    node = Node(tmp_path / "none", settings=CHECKPOINTED_OFTEN | log_dirs, log_file=tmp_path / "node.log")
    failing = some_folders[0]
    node.start()
    try:
        with Connection(node.port) as connection:
            made = create_topic(connection, topic, partitions=2, config=SYNCED_EACH_TIME)
            if is_of_data:
                index = next(index for index in range(2) if (failing / f"{topic}-{index}").exists())
                make_sync_fail(failing / f"{topic}-{index}")
                assert produce(connection, made, batch(), partition=index).error_code == Error.KAFKA_STORAGE_ERROR
            else:
                make_sync_fail(failing / "__cluster_metadata-0")
        wait_until(lambda: not node.is_running, "the node stops by itself")
        assert node.end(signal.SIGTERM) == 1
    finally:
        node.kill()
    (complaint,) = [line for line in node.log_text().splitlines() if "stopping the node" in line]
    assert str(failing) in complaint
    assert "[Errno 22]" in complaint
    assert not (failing / CLEAN_SHUTDOWN).exists()
    assert all((folder / CLEAN_SHUTDOWN).exists() for folder in some_folders[1:])
