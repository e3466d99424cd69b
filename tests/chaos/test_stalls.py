"""Nobody can keep a node from serving the others: no request holds an event loop for longer than 50 ms.

A turn of the loop is measured by the processor time of its thread (`watched_node`), which says the same on a machine
that has other work. Each request comes while a neighbour asks for something cheap over and over.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.api.registry import ROUTES, register_all
from barnabas.controller.controller_api import CONTROLLER_ROUTES
from barnabas.controller.decisions.broker_registrations import LISTED_MAX
from barnabas.metadata.versions import SUPPORTED_FEATURES
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from tests.chaos.hostile_controller_requests import FOR_CONTROLLERS
from tests.chaos.hostile_requests import (
    HOSTILE,
    KNOWN_GROUP,
    KNOWN_PARTITIONS,
    KNOWN_TOPIC,
    Hostile,
    by,
    ids,
    metadata,
    names,
)
from tests.chaos.watched_node import WatchedNode
from tests.peers import SETTINGS, free_port, resident_bytes
from tests.wire.connection import HOST, ClosedError, Connection
from tests.wire.groups import await_coordinator
from tests.wire.requests import create_topic, list_offsets, produce
from tests.wire.transactions import await_transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY_HOSTILE = HOSTILE + FOR_CONTROLLERS
TURN_S_MAX = 0.050
CHANCES = 3
CHANGE_NOTHING = ("alter-", "describe-", "fetch-", "incremental-alter-", "list-", "metadata-", "offset-fetch-")
"""Requests that ask for something, or only have it validated."""
ANSWER_DEADLINE_S = 120.0
MEMORY_BYTES_MAX = 1024 * 1024 * 1024
"""What the node may have grown to after the largest requests, of 100 MiB each."""


def test_there_is_a_hostile_request_of_every_api() -> None:
    register_all()
    assert set(ROUTES) - {hostile.api_key for hostile in HOSTILE} == set()
    assert set(CONTROLLER_ROUTES) - {hostile.api_key for hostile in FOR_CONTROLLERS} == set()


class Ground:
    """A node with a listener for clients and one for controllers, a topic and the coordinators' topics."""

    def __init__(self, node: WatchedNode, controller_port: int) -> None:
        self.node = node
        self.controller_port = controller_port
        self._failures = 0

    def check_nothing_failed(self) -> None:
        """A request that cannot be answered is refused in so many words. One that nobody has thought of is not."""
        before = self._failures
        failures = [line for line in self.node.log_text().splitlines() if "internal error" in line]
        self._failures = len(failures)
        assert failures[before:] == []

    def port_of(self, hostile: Hostile) -> int:
        return self.controller_port if hostile.is_for_controller else self.node.port


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    port, controller_port = free_port(), free_port()
    listeners = f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}"
    folder = tmp_path_factory.mktemp("stalls")
    settings = {
        **SETTINGS,
        "listeners": listeners,
        "auto.create.topics.enable": "false",
        "barnabas.client.telemetry.dir": str(folder / "telemetry"),
    }
    node = WatchedNode(folder / "data", port=port, settings=settings)
    with node, Connection(port) as connection:
        await_coordinator(connection, KNOWN_GROUP)
        await_transactions(connection, "t")
        create_topic(connection, KNOWN_TOPIC, KNOWN_PARTITIONS)
        yield Ground(node, controller_port)


class Neighbour:
    """Asks for something cheap all the time; knows the longest wait for an answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answers = 0
        self.worst_s = 0.0

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(ANSWER_DEADLINE_S)

    def _ask(self) -> None:
        with Connection(self._port, ANSWER_DEADLINE_S) as connection:
            while not self._is_over.wait(0.002) or not self.answers:
                asked_at = time.perf_counter()
                connection.call(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse)
                self.worst_s = max(self.worst_s, time.perf_counter() - asked_at)
                self.answers += 1


def send_and_wait(port: int, frame: bytes) -> int | None:
    """The size of the answer; None if the connection was closed instead."""
    with Connection(port, ANSWER_DEADLINE_S) as connection:
        try:
            connection.send_bytes(frame)
            return len(connection.receive_frame())
        except ClosedError:
            return None


def check_turns(ground: Ground, what: str, neighbour: Neighbour) -> None:
    assert neighbour.answers, f"{what}: nobody else was served"
    turns = ground.node.longest_turns_s()
    print(f"{what}: worst answer to a neighbour {neighbour.worst_s * 1e3:.0f} ms, longest turns {turns}")
    assert max(turns.values()) <= TURN_S_MAX, f"{what} held an event loop: {turns}"


def each(hostile: Hostile) -> str:
    return hostile.name


@pytest.mark.parametrize("hostile", EVERY_HOSTILE, ids=each)
def test_no_request_holds_an_event_loop(ground: Ground, hostile: Hostile) -> None:
    """On a busy machine the same work takes up to twice the time, and garbage may be collected just then. What holds a
    loop does so each time: so a request that changes nothing, and costs as much again, has more than one chance."""
    frame = hostile.make(hostile.count)
    ground.node.longest_turns_s()
    what = hostile.name.removeprefix("controller:").removeprefix("forwarded-")
    for chances_left in reversed(range(CHANCES if what.startswith(CHANGE_NOTHING) else 1)):
        with Neighbour(ground.port_of(hostile)) as neighbour:
            send_and_wait(ground.port_of(hostile), frame)
        ground.check_nothing_failed()
        try:
            check_turns(ground, hostile.name, neighbour)
            return
        except AssertionError:
            if not chances_left:
                raise


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("hostile", EVERY_HOSTILE, ids=each)
def test_no_request_of_many_megabytes_holds_an_event_loop(ground: Ground, hostile: Hostile) -> None:
    frame = hostile.make(hostile.full_count)
    ground.node.longest_turns_s()
    with Neighbour(ground.port_of(hostile)) as neighbour:
        send_and_wait(ground.port_of(hostile), frame)
    check_turns(ground, hostile.name, neighbour)
    ground.check_nothing_failed()
    assert resident_bytes(ground.node.pid) <= MEMORY_BYTES_MAX


def test_many_large_requests_at_once_share_the_turns_that_one_has(ground: Ground) -> None:
    topic = m.MetadataRequest.MetadataRequestTopic
    frame = by(metadata(lambda count: [topic(name=name) for name in names(count)]), 1)(20_000)
    ground.node.longest_turns_s()
    with Neighbour(ground.node.port) as neighbour, ExitStack() as stack:
        connections = [stack.enter_context(Connection(ground.node.port, ANSWER_DEADLINE_S)) for _ in range(10)]
        for connection in connections:
            connection.send_bytes(frame)
        assert len({len(connection.receive_frame()) for connection in connections}) == 1
    check_turns(ground, "ten requests at once", neighbour)


def test_looking_for_a_time_in_a_batch_that_expands_a_thousandfold_holds_nobody(ground: Ground) -> None:
    """A batch of a few kilobytes with 200,000 records in it, the last of which is asked for."""
    count, start_ms = 200_000, 1_700_000_000_000
    records = [Record(value=b"", timestamp=start_ms + number // (count - 1)) for number in range(count)]
    data = build_batch(records, codec=Codec.ZSTD)
    with Connection(ground.node.port) as connection:
        topic = create_topic(connection, "times", config={"retention.ms": "-1"})  # the records are years old
        assert produce(connection, topic, data).error_code == Error.NONE
        ground.node.longest_turns_s()
        with Neighbour(ground.node.port) as neighbour:
            found = list_offsets(connection, topic, start_ms + 1)
    assert (found.error_code, found.offset) == (Error.NONE, count - 1)
    check_turns(ground, "a look-up by time", neighbour)


def test_requests_behind_a_large_one_are_answered_after_it(ground: Ground) -> None:
    hostile = next(each for each in HOSTILE if each.name == "describe-groups")
    with Connection(ground.node.port, ANSWER_DEADLINE_S) as connection:
        connection.send_bytes(hostile.make(5000))
        connection.send(m.ApiVersionsRequest(), 0)
        sizes = [len(connection.receive_frame()) for _ in range(2)]
    assert sizes[0] > sizes[1]


def test_heartbeats_come_in_time_while_topics_are_created_by_the_thousand(ground: Ground) -> None:
    request = m.CreateTopicsRequest
    topics = [request.CreatableTopic(name=f"made-{n}", num_partitions=1, replication_factor=1) for n in range(1000)]
    ground.node.longest_turns_s()
    with Neighbour(ground.controller_port) as neighbour, Connection(ground.node.port, ANSWER_DEADLINE_S) as connection:
        made = connection.call(request(topics=topics, timeout_ms=60_000), 7, m.CreateTopicsResponse)
        assert {topic.error_code for topic in made.topics} == {Error.NONE}
        assert [topic.name for topic in made.topics] == [topic.name for topic in topics]
    check_turns(ground, "the creation of a thousand topics", neighbour)


def test_brokers_with_as_many_folders_as_may_be_hold_nobody_up_when_folders_fail(ground: Ground) -> None:
    """Whatever they say has failed: a broker may name folders that it does not have."""
    request = m.BrokerRegistrationRequest
    folders = ids(100 + 2 * LISTED_MAX)[100:]
    with Connection(ground.controller_port, ANSWER_DEADLINE_S) as controller:
        for broker_id, own in ((8, folders[:LISTED_MAX]), (9, folders[LISTED_MAX:])):
            registration = request(
                broker_id=broker_id,
                cluster_id=cluster_id(ground),
                incarnation_id=ids(broker_id)[-1],
                listeners=[request.Listener(name=name, host="h", port=1) for name in names(LISTED_MAX)],
                features=[
                    request.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in SUPPORTED_FEATURES.items()
                ],
                log_dirs=own,
            )
            ground.node.longest_turns_s()
            with Neighbour(ground.controller_port) as neighbour:
                registered = controller.call(registration, 4, m.BrokerRegistrationResponse)
            assert registered.error_code == Error.NONE
            check_turns(ground, "the registration of a broker with a thousand folders", neighbour)
            failed = [*ids(112 + 12 * LISTED_MAX)[112 + 2 * LISTED_MAX :], *own[:10]]
            heartbeat = m.BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=registered.broker_epoch, offline_log_dirs=failed
            )
            with Neighbour(ground.controller_port) as neighbour:
                answered = controller.call(heartbeat, 1, m.BrokerHeartbeatResponse)
            assert answered.error_code == Error.NONE
            check_turns(ground, "the failure of ten thousand folders", neighbour)


def cluster_id(ground: Ground) -> str:
    with Connection(ground.node.port) as connection:
        return connection.call(m.DescribeClusterRequest(), 1, m.DescribeClusterResponse).cluster_id


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_topic_of_thousands_of_partitions_comes_and_goes_unnoticed(ground: Ground) -> None:
    """As many as one request may ask for."""
    count = 9999
    created = m.CreateTopicsRequest.CreatableTopic(name="vast", num_partitions=count, replication_factor=1)
    deleted = m.DeleteTopicsRequest.DeleteTopicState(name="vast")
    with Connection(ground.node.port, ANSWER_DEADLINE_S) as connection:
        ground.node.longest_turns_s()
        with Neighbour(ground.controller_port) as neighbour:
            request = m.CreateTopicsRequest(topics=[created], timeout_ms=100_000)
            made = connection.call(request, 7, m.CreateTopicsResponse)
        assert [topic.error_code for topic in made.topics] == [Error.NONE]
        check_turns(ground, f"the creation of {count} partitions", neighbour)
        with Neighbour(ground.node.port) as neighbour:
            gone = connection.call(
                m.DeleteTopicsRequest(topics=[deleted], timeout_ms=100_000), 6, m.DeleteTopicsResponse
            )
        assert [topic.error_code for topic in gone.responses] == [Error.NONE]
        check_turns(ground, f"the deletion of {count} partitions", neighbour)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_topic_grows_by_thousands_of_partitions_and_all_leaders_are_elected_unnoticed(ground: Ground) -> None:
    growth = m.CreatePartitionsRequest.CreatePartitionsTopic(name="growing", count=10_000, assignments=None)
    with (
        Connection(ground.node.port, ANSWER_DEADLINE_S) as connection,
        Connection(ground.controller_port, ANSWER_DEADLINE_S) as controller,
    ):
        create_topic(connection, "growing")
        ground.node.longest_turns_s()
        with Neighbour(ground.controller_port) as neighbour:
            request = m.CreatePartitionsRequest(topics=[growth], timeout_ms=100_000)
            grown = connection.call(request, 3, m.CreatePartitionsResponse)
        assert [topic.error_code for topic in grown.results] == [Error.NONE]
        check_turns(ground, "the growth by 9,999 partitions", neighbour)
        with Neighbour(ground.controller_port) as neighbour:
            elected = controller.call(m.ElectLeadersRequest(timeout_ms=1000), 2, m.ElectLeadersResponse)
        assert elected.error_code == Error.NONE
        check_turns(ground, "the election of all leaders", neighbour)
        # Without it the node stops sooner: each of its logs would be synced.
        topics = [m.DeleteTopicsRequest.DeleteTopicState(name="growing")]
        connection.call(m.DeleteTopicsRequest(topics=topics, timeout_ms=60_000), 6, m.DeleteTopicsResponse)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_offsets_of_very_many_groups_are_listed_and_deleted_with_their_topic_unnoticed(ground: Ground) -> None:
    groups, at_once = 20_000, 200
    with Connection(ground.node.port, ANSWER_DEADLINE_S) as connection:
        create_topic(connection, "followed")
        for start in range(0, groups, at_once):
            for number in range(start, start + at_once):
                connection.send(commit_of_one(f"follower-{number}", "followed"), 8)
            for _ in range(at_once):
                connection.receive_frame()
        ground.node.longest_turns_s()
        with Neighbour(ground.node.port) as neighbour:
            listed = connection.call(m.ListGroupsRequest(), 5, m.ListGroupsResponse)
        assert len(listed.groups) >= groups
        check_turns(ground, "a list of 20,000 groups", neighbour)
        with Neighbour(ground.node.port) as neighbour:
            topics = [m.DeleteTopicsRequest.DeleteTopicState(name="followed")]
            connection.call(m.DeleteTopicsRequest(topics=topics, timeout_ms=60_000), 6, m.DeleteTopicsResponse)
        check_turns(ground, "the deletion of a topic with offsets of 20,000 groups", neighbour)


def commit_of_one(group_id: str, topic: str) -> m.OffsetCommitRequest:
    request = m.OffsetCommitRequest
    partitions = [request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    return request(group_id=group_id, topics=[request.OffsetCommitRequestTopic(name=topic, partitions=partitions)])
