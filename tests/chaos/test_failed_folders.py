"""A device that does not keep what it was given, or cannot be read: the data folder on it goes, and the node only if
it must.

A real sync is made to fail without rights or special devices: the name of a segment is given to `/dev/null`, which the
system refuses to sync. The node, which has the segment open, goes on writing to it.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.log.folder.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS, TopicPartition, read_offsets
from barnabas.log.folder.meta_properties import META_PROPERTIES
from barnabas.ports import SystemDisk
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.nodes import Node, NodeError
from tests.peers import SETTINGS, wait_until
from tests.wire.batches import batch
from tests.wire.connection import Connection
from tests.wire.requests import LATEST, Topic, create_topic, fetch_request, list_offsets, produce
from tests.wire.test_log_dirs import describe as describe_folders
from tests.wire.test_log_dirs import sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

SYNCED_EACH_TIME = {"flush.messages": "1"}
Shown = tuple[Error, int, list[int], list[int]]
"""Error, leader, in-sync and offline replicas of a partition."""
SERVED: Shown = (Error.NONE, 1, [1], [])
OFFLINE: Shown = (Error.LEADER_NOT_AVAILABLE, -1, [], [1])
Damage = Callable[[Path], None]
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
        shown = {each.log_dir: (each.error_code, len(sizes(each))) for each in describe_folders(connection, None)}
        assert shown == {str(folders[0]): (Error.NONE, 2), str(folders[1]): (Error.KAFKA_STORAGE_ERROR, 0)}
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


@pytest.mark.parametrize(
    ("is_of_data", "which"), [(True, "the last folder of log.dirs"), (False, "metadata")], ids=["data", "metadata"]
)
def test_a_node_stops_when_its_only_folder_for_partitions_or_that_of_the_metadata_log_beside_it_fails(
    tmp_path: Path, folders: list[Path], topic: str, which: str, *, is_of_data: bool
) -> None:
    data, metadata = folders
    settings = {"log.dirs": str(data), "metadata.log.dir": str(metadata)}
    node = Node(tmp_path / "none", settings=CHECKPOINTED_OFTEN | settings, log_file=tmp_path / "node.log")
    node.start()
    try:
        with Connection(node.port) as connection:
            made = create_topic(connection, topic, config=SYNCED_EACH_TIME)
            if is_of_data:
                make_sync_fail(data / f"{topic}-0")
                assert produce(connection, made, batch()).error_code == Error.KAFKA_STORAGE_ERROR
            else:
                make_sync_fail(metadata / "__cluster_metadata-0")
        wait_until(lambda: not node.is_running, "the node stops by itself")
        assert node.end(signal.SIGTERM) == 1
    finally:
        node.kill()
    (complaint,) = [line for line in node.log_text().splitlines() if "stopping the node" in line]
    assert which in complaint
    assert "[Errno 22]" in complaint
    assert (data / CLEAN_SHUTDOWN).exists() is not is_of_data


# ── folders that are bad when the node starts ────────────────────────────────────────────────────────────────────


def rewrite_meta(pattern: str, replacement: str) -> Damage:
    def rewrite(folder: Path) -> None:
        file = folder / META_PROPERTIES
        file.write_text(re.sub(pattern, replacement, file.read_text()))

    return rewrite


def replace_by_file(folder: Path) -> None:
    folder.rename(folder.with_name("aside"))
    folder.write_text("no folder")


def replace_meta_by_folder(folder: Path) -> None:
    (folder / META_PROPERTIES).unlink()
    (folder / META_PROPERTIES).mkdir()


def replace_recovery_points_by_folder(folder: Path) -> None:
    (folder / RECOVERY_POINTS).unlink()
    (folder / RECOVERY_POINTS).mkdir()


DAMAGES: dict[str, Damage] = {
    "no folder": replace_by_file,
    "unreadable identity": replace_meta_by_folder,
    "identity of a later version": rewrite_meta("version=1", "version=7"),
    "identity without a node": rewrite_meta("node.id=.*\n", ""),
    "identity with a node that is no number": rewrite_meta("node.id=.*", "node.id=x"),
    "identity without a cluster": rewrite_meta("cluster.id=.*\n", ""),
    "malformed directory id": rewrite_meta("directory.id=.*", "directory.id=%%%"),
    "malformed properties": rewrite_meta("version=1", r"version=1\na=\\u12"),
    "unreadable checkpoint": replace_recovery_points_by_folder,
}


@pytest.mark.parametrize(
    ("damage", "ending"),
    [*((damage, "stop") for damage in DAMAGES.values()), (replace_by_file, "kill")],
    ids=[*DAMAGES, "no folder after a kill"],
)
def test_a_node_starts_without_a_folder_that_is_bad_and_serves_the_rest(
    node: Node, folders: list[Path], topic: str, damage: Damage, ending: str
) -> None:
    with Connection(node.port) as connection:
        made = create_topic(connection, topic, partitions=4)
        lost = [index for index in range(4) if (folders[1] / f"{topic}-{index}").exists()]
        for index in range(4):
            assert produce(connection, made, batch([b"before"]), partition=index).error_code == Error.NONE
        wait_until((folders[1] / RECOVERY_POINTS).exists, "the recovery points are written")
    getattr(node, ending)()
    intact = folders[1].with_name("intact")
    shutil.copytree(folders[1], intact)
    damage(folders[1])

    node.start()
    with Connection(node.port) as connection:
        assert describe(connection, made) == [OFFLINE if index in lost else SERVED for index in range(4)]
        for index in range(4):
            expected = Error.KAFKA_STORAGE_ERROR if index in lost else Error.NONE
            assert errors_of(connection, made, index) == {expected}
        later = create_topic(connection, f"{topic}-later", partitions=3)
        assert describe(connection, later) == [SERVED] * 3
        assert list(folders[1].glob(f"{later.name}-*")) == []
        assert all(not (folders[0] / f"{topic}-{index}").exists() for index in lost)
    assert re.search(f"ERROR.*{folders[1]}.* offline", node.log_text())
    node.stop()

    if folders[1].is_file():
        folders[1].unlink()
    else:
        shutil.rmtree(folders[1])
    intact.rename(folders[1])
    node.start()
    with Connection(node.port) as connection:
        assert describe(connection, made) == [SERVED] * 4
        for index in lost:
            assert list_offsets(connection, made, LATEST, partition=index).offset == 1
            assert errors_of(connection, made, index) == {Error.NONE}


REFUSALS: dict[str, tuple[Damage, str]] = {
    "of another node": (rewrite_meta("node.id=.*", "node.id=9"), "belongs to node 9, but this is node 1"),
    "of another cluster": (rewrite_meta("cluster.id=.*", "cluster.id=" + "A" * 22), "different clusters"),
    "without a version": (rewrite_meta("version=.*\n", ""), "has no version"),
}


@pytest.mark.parametrize(("damage", "complaint"), REFUSALS.values(), ids=REFUSALS)
def test_a_folder_of_somebody_else_is_no_failed_one_and_keeps_the_node_from_starting(
    node: Node, folders: list[Path], damage: Damage, complaint: str
) -> None:
    node.stop()
    damage(folders[1])
    with pytest.raises(NodeError, match=complaint):
        node.start()


def test_a_copied_folder_keeps_the_node_from_starting(node: Node, folders: list[Path]) -> None:
    node.stop()
    shutil.copy(folders[0] / META_PROPERTIES, folders[1] / META_PROPERTIES)
    with pytest.raises(NodeError, match=r"have the same directory\.id"):
        node.start()


@pytest.mark.parametrize("damage", [replace_by_file, replace_meta_by_folder], ids=["no folder", "unreadable identity"])
def test_without_the_folder_of_the_metadata_log_no_node_starts(node: Node, folders: list[Path], damage: Damage) -> None:
    node.stop()
    damage(folders[0])
    with pytest.raises(NodeError, match=f"{folders[0]}.*(Not a directory|File exists|Is a directory)"):
        node.start()
