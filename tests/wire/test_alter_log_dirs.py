"""AlterReplicaLogDirs moves replicas between the folders of a broker, while they are written and read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import running, wait_until
from tests.wire.batches import base_offsets, batch
from tests.wire.connection import Connection
from tests.wire.requests import BROKER_RESOURCE, Topic, create_topic, fetch, produce
from tests.wire.test_log_dirs import cordon, describe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import Peer, PeerKind

VERSIONS = range(1, 3)
LATEST = 2


LARGE = batch([bytes(100_000)])


class TwoFolders(NamedTuple):
    node: Peer
    folders: tuple[Path, Path]


@pytest.fixture(scope="module")
def two_folders(peer_kind: PeerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoFolders]:
    root = tmp_path_factory.mktemp("two-folders")
    folders = root / "one", root / "two"
    settings = {"log.dirs": ",".join(map(str, folders)), "log.segment.delete.delay.ms": "1000"}
    with running(peer_kind, root, settings) as node:
        yield TwoFolders(node, folders)


@pytest.fixture
def connection(two_folders: TwoFolders) -> Iterator[Connection]:
    with Connection(two_folders.node.port) as connection:
        yield connection


def alter(
    connection: Connection, wanted: dict[str, dict[str, list[int]]], version: int = LATEST
) -> dict[tuple[str, int], Error]:
    request = m.AlterReplicaLogDirsRequest
    dirs = [
        request.AlterReplicaLogDir(
            path=path,
            topics=[request.AlterReplicaLogDirTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        for path, topics in wanted.items()
    ]
    answer = connection.call(request(dirs=dirs), version, m.AlterReplicaLogDirsResponse)
    return {
        (topic.topic_name, each.partition_index): Error(each.error_code)
        for topic in answer.results
        for each in topic.partitions
    }


def write(connection: Connection, topic: Topic, records: bytes) -> int:
    """Returns the offset."""
    answer = produce(connection, topic, records)
    assert answer.error_code == Error.NONE
    return answer.base_offset


def read_offsets(connection: Connection, topic: Topic) -> list[int]:
    """Those of all batches, from the first one on."""
    found: list[int] = []
    while offsets := base_offsets(fetch(connection, topic, offset=len(found)).records):
        found += offsets
    return found


def delete_topic(connection: Connection, name: str) -> None:
    request = m.DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    (answer,) = connection.call(request, 5, m.DeleteTopicsResponse).responses
    assert answer.error_code == Error.NONE


class Place(NamedTuple):
    folder: str
    is_future: bool


def places(connection: Connection, topic: str, index: int = 0) -> set[Place]:
    return {
        Place(folder.log_dir, partition.is_future_key)
        for folder in describe(connection, {topic: [index]})
        for described in folder.topics
        for partition in described.partitions
    }


def home(connection: Connection, topic: str, index: int = 0) -> str:
    """Where the replica is, once there is only one of it."""
    found: set[Place] = set()

    def is_settled() -> bool:
        found.clear()
        found.update(places(connection, topic, index))
        return len(found) == 1 and not next(iter(found)).is_future

    wait_until(is_settled, f"{topic}-{index} is in one place")
    return next(iter(found)).folder


def other_folder(two: TwoFolders, path: str) -> str:
    (other,) = {str(folder) for folder in two.folders} - {path}
    return other


def set_throttle(connection: Connection, rate: int | None) -> None:
    request = m.IncrementalAlterConfigsRequest
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    config = request.AlterableConfig(
        name=name, config_operation=rate is None, value=None if rate is None else str(rate)
    )
    broker = request.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=[config])
    (answer,) = connection.call(request(resources=[broker]), 1, m.IncrementalAlterConfigsResponse).responses
    assert answer.error_code == Error.NONE, answer.error_message


@pytest.fixture
def throttled(connection: Connection) -> Iterator[None]:
    """Moves come to a halt after a little, until they are no longer throttled."""
    set_throttle(connection, 1)
    yield
    set_throttle(connection, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replica_moves_with_all_its_records(
    connection: Connection, two_folders: TwoFolders, topic: str, version: int
) -> None:
    created = create_topic(connection, topic)
    before = [write(connection, created, batch()) for _ in range(20)]
    source = home(connection, topic)
    target = other_folder(two_folders, source)
    read = read_offsets(connection, created)
    assert alter(connection, {target: {topic: [0]}}, version) == {(topic, 0): Error.NONE}
    wait_until(lambda: places(connection, topic) == {Place(target, False)}, "the replica has moved")
    assert read_offsets(connection, created) == read
    assert write(connection, created, batch()) > before[-1]
    assert [each.name for each in two_folders.folders[0].parent.glob(f"*/{topic}-0")] == [f"{topic}-0"]
    wait_until(lambda: not list(two_folders.folders[0].parent.glob(f"*/{topic}-0.*")), "nothing is left of the old one")


def test_a_replica_that_is_there_already_stays(connection: Connection, topic: str) -> None:
    create_topic(connection, topic)
    source = home(connection, topic)
    assert alter(connection, {source: {topic: [0]}}) == {(topic, 0): Error.NONE}
    assert places(connection, topic) == {Place(source, False)}


def test_what_cannot_be_moved_is_refused(connection: Connection, two_folders: TwoFolders, topic: str) -> None:
    create_topic(connection, topic)
    path = str(two_folders.folders[0])
    assert alter(connection, {"/no/such/folder": {topic: [0], "no-such-topic": [1]}}) == {
        (topic, 0): Error.LOG_DIR_NOT_FOUND,
        ("no-such-topic", 1): Error.LOG_DIR_NOT_FOUND,
    }
    assert alter(connection, {path + "/": {topic: [0]}}) == {(topic, 0): Error.LOG_DIR_NOT_FOUND}
    assert alter(connection, {path: {topic: [7, -1]}}) == {
        (topic, 7): Error.UNKNOWN_TOPIC_OR_PARTITION,
        (topic, -1): Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert alter(connection, {}) == {}
    assert alter(connection, {path: {"x" * 249: [0]}}) == {("x" * 249, 0): Error.INVALID_TOPIC_EXCEPTION}
    assert alter(connection, {path: {"x" * 213: [0]}}) == {("x" * 213, 0): Error.UNKNOWN_TOPIC_OR_PARTITION}


def test_of_two_folders_for_one_replica_the_last_one_counts(
    connection: Connection, two_folders: TwoFolders, topic: str
) -> None:
    create_topic(connection, topic)
    source = home(connection, topic)
    target = other_folder(two_folders, source)
    assert alter(connection, {source: {topic: [0, 0]}, target: {topic: [0]}}) == {(topic, 0): Error.NONE}
    wait_until(lambda: places(connection, topic) == {Place(target, False)}, "the replica has moved")


def test_a_topic_that_does_not_exist_yet_is_made_in_the_preferred_folder(
    connection: Connection, two_folders: TwoFolders, topic: str
) -> None:
    for index, path in enumerate([*two_folders.folders, *two_folders.folders]):
        assert alter(connection, {str(path): {topic: [index]}}) == {(topic, index): Error.UNKNOWN_TOPIC_OR_PARTITION}
    create_topic(connection, topic, partitions=4)
    found = [home(connection, topic, index) for index in range(4)]
    assert found == [*map(str, two_folders.folders)] * 2


@pytest.mark.usefixtures("throttled")
def test_a_move_can_be_seen_redirected_and_throttled(
    connection: Connection, two_folders: TwoFolders, topic: str
) -> None:
    created = create_topic(connection, topic)
    for _ in range(30):
        write(connection, created, LARGE)
    source = home(connection, topic)
    target = other_folder(two_folders, source)
    assert alter(connection, {target: {topic: [0]}}) == {(topic, 0): Error.NONE}
    moving = {Place(source, False), Place(target, True)}
    assert places(connection, topic) == moving
    (name,) = [each.name for each in two_folders.folders[0].parent.glob(f"*/{topic}-0.*")]
    assert name.endswith("-future")
    (future,) = [
        partition
        for folder in describe(connection, {topic: [0]})
        for described in folder.topics
        for partition in described.partitions
        if partition.is_future_key
    ]
    assert 0 < future.offset_lag <= 30
    assert future.partition_size < 3_000_000
    assert alter(connection, {target: {topic: [0]}}) == {(topic, 0): Error.NONE}, "it is on its way already"
    assert places(connection, topic) == moving
    assert alter(connection, {source: {topic: [0]}}) == {(topic, 0): Error.NONE}, "it is called off"
    wait_until(lambda: places(connection, topic) == {Place(source, False)}, "the copy is gone")
    assert alter(connection, {target: {topic: [0]}}) == {(topic, 0): Error.NONE}
    set_throttle(connection, None)
    wait_until(lambda: places(connection, topic) == {Place(target, False)}, "the replica has moved")


@pytest.mark.usefixtures("throttled")
def test_a_topic_that_is_deleted_meanwhile_leaves_nothing(
    connection: Connection, two_folders: TwoFolders, topic: str
) -> None:
    created = create_topic(connection, topic)
    for _ in range(30):
        write(connection, created, LARGE)
    target = other_folder(two_folders, home(connection, topic))
    assert alter(connection, {target: {topic: [0]}}) == {(topic, 0): Error.NONE}
    delete_topic(connection, topic)
    wait_until(lambda: not places(connection, topic), "the replica is gone")
    wait_until(lambda: not list(two_folders.folders[0].parent.glob(f"*/{topic}-0*")), "no file is left")


def test_a_replica_moves_while_it_is_written(connection: Connection, two_folders: TwoFolders, topic: str) -> None:
    created = create_topic(connection, topic)
    for _ in range(10):
        write(connection, created, LARGE)
    target = other_folder(two_folders, home(connection, topic))
    assert alter(connection, {target: {topic: [0]}}) == {(topic, 0): Error.NONE}
    deadline = time.monotonic() + 30
    written = 10
    while places(connection, topic) != {Place(target, False)}:
        assert write(connection, created, batch()) == written
        written += 1
        assert time.monotonic() < deadline
    assert write(connection, created, batch()) == written
    assert len(read_offsets(connection, created)) == written + 1


def test_a_cordoned_folder_takes_no_replica(connection: Connection, two_folders: TwoFolders, topic: str) -> None:
    create_topic(connection, topic)
    source = home(connection, topic)
    target = other_folder(two_folders, source)
    cordon(connection, target)
    try:
        wait_until(lambda: any(each.is_cordoned for each in describe(connection, {})), "the folder is cordoned")
        assert alter(connection, {target: {topic: [0], "no-such-topic": [0]}, source: {topic: [1]}}) == {
            (topic, 0): Error.INVALID_REPLICA_ASSIGNMENT,
            ("no-such-topic", 0): Error.INVALID_REPLICA_ASSIGNMENT,
            (topic, 1): Error.UNKNOWN_TOPIC_OR_PARTITION,
        }
        cordon(connection, "*")
        wait_until(lambda: all(each.is_cordoned for each in describe(connection, {})), "both are cordoned")
        assert alter(connection, {source: {topic: [0]}}) == {(topic, 0): Error.INVALID_REPLICA_ASSIGNMENT}
    finally:
        cordon(connection, "")
