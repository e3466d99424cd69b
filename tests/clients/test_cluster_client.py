"""The client of pipelines against a real node: what it finds out, what it survives, and what it refuses."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from barnabas.client.broker_connection import Connection, VersionRange
from barnabas.client.client_settings import ClientSettings
from barnabas.client.cluster import GROUP_COORDINATOR, TRANSACTION_COORDINATOR, Cluster
from barnabas.client.offset_queries import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    delete_group,
    list_offsets,
    local_start,
)
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from tests.clients.adapter import MEMBER, Message, values
from tests.clients.members import settle
from tests.clients.proxy import CuttingProxy
from tests.clients.with_confluent import ConfluentClient, member_config
from tests.nodes import Node
from tests.peers import free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.clients.conftest import Begin
    from tests.clients.members import Members
    from tests.peers import Peer

    MakeNode = Callable[[Mapping[str, str]], Peer]

KAFKA_2_8 = {
    ApiKey.FETCH: (0, 12),
    ApiKey.LIST_OFFSETS: (0, 6),
    ApiKey.METADATA: (0, 11),
    ApiKey.OFFSET_COMMIT: (0, 8),
    ApiKey.OFFSET_FETCH: (0, 7),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
}
"""What a broker of Apache Kafka 2.8 speaks of what is used here."""


def settings_for(bootstrap: str, **options: str) -> ClientSettings:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return ClientSettings.from_options({"bootstrap.servers": bootstrap, "retry.backoff.ms": "20"} | given)


@pytest.fixture
def cluster(node: Peer) -> Iterator[Cluster]:
    with Cluster.connect(settings_for(node.bootstrap)) as connected:
        yield connected


@pytest.fixture
def group_cluster(group_node: Peer) -> Iterator[Cluster]:
    with Cluster.connect(settings_for(group_node.bootstrap)) as connected:
        yield connected


def ends(cluster: Cluster, topic: str, isolation_level: int = READ_UNCOMMITTED) -> list[int]:
    places = {(topic, partition): LATEST for partition in cluster.metadata([topic])[topic].partitions}
    found = list_offsets(cluster, places, isolation_level)
    return [at.offset for at in found.values() if at is not None]


def test_partitions_of_topics_are_found_and_new_ones_too(
    cluster: Cluster, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic, partitions=2)
    confluent.create_topic(f"{topic}-other", partitions=1)
    found = cluster.metadata([topic, f"{topic}-other"])
    assert {name: list(each.partitions) for name, each in found.items()} == {topic: [0, 1], f"{topic}-other": [0]}
    confluent.add_partitions(topic, 4)
    assert list(cluster.metadata([topic])[topic].partitions) == [0, 1, 2, 3]


def test_a_missing_topic_is_not_created_by_asking(cluster: Cluster, topic: str) -> None:
    for _ in range(2):
        with pytest.raises(KafkaError, match=f"topic '{topic}' does not exist: create it") as caught:
            cluster.metadata([topic])
        assert caught.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError, match=topic):
        list_offsets(cluster, {(topic, 0): LATEST})


def test_a_name_that_no_topic_can_have_is_refused(cluster: Cluster) -> None:
    with pytest.raises(KafkaError, match="topic 'not/a/topic'") as caught:
        cluster.metadata(["not/a/topic"])
    assert caught.value.error is Error.INVALID_TOPIC_EXCEPTION


def test_offsets_are_found_at_the_ends_and_by_time(cluster: Cluster, confluent: ConfluentClient, topic: str) -> None:
    confluent.create_topic(topic, partitions=2)
    start_ms = int(time.time() * 1000) - 10_000
    times = [start_ms, start_ms + 1_000, start_ms + 2_000]
    confluent.produce(topic, [Message(b"value", timestamp_ms=each) for each in times], partition=0)
    asked = {
        EARLIEST: (0, -1),
        LATEST: (3, -1),
        times[0] + 1: (1, times[1]),
        times[2]: (2, times[2]),
        EARLIEST_LOCAL: (0, -1),
    }
    for place, (offset, timestamp_ms) in asked.items():
        found = list_offsets(cluster, {(topic, 0): place})[topic, 0]
        assert found is not None
        assert found[:2] == (offset, timestamp_ms)
    assert list_offsets(cluster, {(topic, 0): times[2] + 1}) == {(topic, 0): None}
    both = list_offsets(cluster, {(topic, 1): LATEST, (topic, 0): LATEST})
    assert {place: at and at.offset for place, at in both.items()} == {(topic, 1): 0, (topic, 0): 3}


def test_for_readers_of_committed_data_a_partition_ends_before_an_open_transaction(
    group_cluster: Cluster, group_confluent: ConfluentClient, begin: Begin, topic: str, transactional_id: str
) -> None:
    group_confluent.create_topic(topic)
    group_confluent.produce(topic, values(2), partition=0)
    producer = begin(group_confluent, transactional_id)
    producer.send(topic, values(3), partition=0)
    assert ends(group_cluster, topic, READ_UNCOMMITTED) == [5]
    assert ends(group_cluster, topic, READ_COMMITTED) == [2]
    producer.commit()
    wait_until(lambda: ends(group_cluster, topic, READ_COMMITTED) == [6], "the transaction has ended there too")


def test_offsets_are_committed_for_a_group_and_read_back(
    group_cluster: Cluster, group_confluent: ConfluentClient, topic: str, group: str
) -> None:
    group_confluent.create_topic(topic, partitions=3)
    assert committed_offsets(group_cluster, group) == {}
    commit_offsets(group_cluster, group, {})
    commit_offsets(group_cluster, group, {(topic, 0): 5, (topic, 1): CommittedOffset(7, 0, "from a pipeline")})
    assert committed_offsets(group_cluster, group) == {
        (topic, 0): CommittedOffset(5),
        (topic, 1): CommittedOffset(7, 0, "from a pipeline"),
    }
    assert committed_offsets(group_cluster, group, [(topic, 1), (topic, 2)]).keys() == {(topic, 1)}
    assert group_confluent.committed_offsets(group) == {(topic, 0): 5, (topic, 1): 7}


def test_groups_are_deleted_with_their_offsets(
    group_cluster: Cluster, group_confluent: ConfluentClient, topic: str, group: str
) -> None:
    group_confluent.create_topic(topic, partitions=2)
    assert not delete_group(group_cluster, group)
    commit_offsets(group_cluster, group, {(topic, 0): 5, (topic, 1): 7})
    assert delete_group(group_cluster, group)
    assert committed_offsets(group_cluster, group) == {}


def test_a_group_with_members_keeps_its_offsets_from_others(
    group_cluster: Cluster,
    group_confluent: ConfluentClient,
    members: Members,
    topic: str,
    group: str,
) -> None:
    group_confluent.create_topic(topic)
    member = members.join(group_confluent, group, [topic])
    settle([member], member.assigned, "the member has its partition")
    with pytest.raises(KafkaError, match=rf"group '{group}': {topic}-0: .*the group has members"):
        commit_offsets(group_cluster, group, {(topic, 0): 1})
    with pytest.raises(KafkaError, match=rf"group '{group}': .*the group has members: stop them first"):
        delete_group(group_cluster, group)


def test_a_commit_for_a_topic_that_is_gone_names_it(group_cluster: Cluster, topic: str, group: str) -> None:
    with pytest.raises(KafkaError, match=f"group '{group}': {topic}-3: OffsetCommit"):
        commit_offsets(group_cluster, group, {(topic, 3): 1})


def test_offsets_that_a_transaction_may_still_change_are_waited_for(
    group_node: Peer,
    group_cluster: Cluster,
    group_confluent: ConfluentClient,
    begin: Begin,
    topic: str,
    group: str,
    transactional_id: str,
) -> None:
    group_confluent.create_topic(topic)
    commit_offsets(group_cluster, group, {(topic, 0): 1})
    producer = begin(group_confluent, transactional_id)
    producer.send(topic, values(1), partition=0)
    with contextlib.closing(confluent_kafka.Consumer(member_config(group_node.bootstrap, group, MEMBER))) as consumer:
        producer.send_offsets({(topic, 0): 2}, consumer.consumer_group_metadata())
    with pytest.raises(KafkaError, match=f"group '{group}': {topic}-0: .*a transaction .* is open"):
        committed_offsets(group_cluster, group, [(topic, 0)], timeout_ms=1_000)
    assert committed_offsets(group_cluster, group, require_stable=False)[topic, 0].offset == 1
    ending = threading.Timer(0.2, producer.commit)
    ending.start()
    assert committed_offsets(group_cluster, group, [(topic, 0)])[topic, 0].offset == 2
    ending.join()


def test_each_kind_of_coordinator_is_found(group_cluster: Cluster, group: str, transactional_id: str) -> None:
    for key, kind in ((group, GROUP_COORDINATOR), (transactional_id, TRANSACTION_COORDINATOR)):
        assert group_cluster.coordinator(key, kind).send(m.MetadataRequest(topics=[])).brokers


@pytest.fixture(params=["stop", "kill"])
def ending(request: pytest.FixtureRequest, fresh_node: Peer) -> Callable[[], None]:
    """The two ways in which a node ends."""
    return fresh_node.stop if request.param == "stop" else fresh_node.kill


def test_a_client_goes_on_after_a_restart(fresh_node: Peer, ending: Callable[[], None], topic: str, group: str) -> None:
    confluent = ConfluentClient(fresh_node.bootstrap)
    confluent.create_topic(topic, partitions=2)
    confluent.produce(topic, values(4), partition=1)
    with Cluster.connect(settings_for(fresh_node.bootstrap)) as cluster:
        commit_offsets(cluster, group, {(topic, 1): 3})
        for _ in range(2):
            ending()
            fresh_node.start()
            assert ends(cluster, topic) == [0, 4]
            assert committed_offsets(cluster, group)[topic, 1].offset == 3


def test_calls_that_begin_while_a_node_is_away_are_answered_when_it_is_back(
    fresh_node: Peer, ending: Callable[[], None], topic: str, group: str
) -> None:
    confluent = ConfluentClient(fresh_node.bootstrap)
    confluent.create_topic(topic)
    confluent.produce(topic, values(4), partition=0)
    with Cluster.connect(settings_for(fresh_node.bootstrap)) as cluster:
        assert ends(cluster, topic) == [4]
        ending()
        starting = threading.Timer(0.3, fresh_node.start)
        starting.start()
        assert ends(cluster, topic) == [4]
        commit_offsets(cluster, group, {(topic, 0): 4})
        starting.join()


def test_a_node_that_stays_away_is_an_error_at_the_deadline(fresh_node: Peer, topic: str) -> None:
    ConfluentClient(fresh_node.bootstrap).create_topic(topic)
    with Cluster.connect(settings_for(fresh_node.bootstrap)) as cluster:
        assert ends(cluster, topic) == [0]
        fresh_node.kill()
        started = time.monotonic()
        with pytest.raises(KafkaError, match=rf"cannot connect to {fresh_node.bootstrap}.*given up after"):
            list_offsets(cluster, {(topic, 0): LATEST}, timeout_ms=500)
        assert time.monotonic() - started < 2


def test_a_node_that_comes_back_at_another_of_the_bootstrap_servers_is_found(tmp_path: Path, topic: str) -> None:
    first, second = free_port(), free_port()
    data = tmp_path / "data"
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(Node(data, port=first))
        ConfluentClient(old.bootstrap).create_topic(topic)
        settings = settings_for(f"127.0.0.1:{first},127.0.0.1:{second}")
        with Cluster.connect(settings) as cluster:
            assert ends(cluster, topic) == [0]
            old.stop()
            stack.enter_context(Node(data, port=second))
            assert ends(cluster, topic) == [0]
            assert cluster.leader(topic, 0).port == second


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_right_over_a_line_that_breaks_all_the_time(
    tmp_path: Path, topic: str, group: str, seed: int
) -> None:
    with CuttingProxy(seed, request_bytes=(200, 2_000), response_bytes=(900, 4_000)) as proxy:
        listeners = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with Node(tmp_path / "data", settings=listeners, port=free_port()) as behind:
            proxy.target_port = behind.port
            proxy.calm()
            ConfluentClient(f"127.0.0.1:{proxy.port}").create_topic(topic, partitions=2)
            proxy.unleash()
            with Cluster.connect(settings_for(f"127.0.0.1:{proxy.port}", retry_backoff_ms="1")) as cluster:
                for offset in range(20):
                    commit_offsets(cluster, group, {(topic, 0): offset})
                    assert ends(cluster, topic) == [0, 0]
                    assert committed_offsets(cluster, group)[topic, 0].offset == offset
            assert proxy.cuts > 0


def test_a_broker_as_old_as_kafka_2_8_is_spoken_to_in_its_versions(
    group_node: Peer, group_confluent: ConfluentClient, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_confluent.create_topic(topic, partitions=2)
    group_confluent.produce(topic, values(3), partition=1)
    spoken: set[tuple[int, int]] = set()
    send = Connection.send_nowait

    def recorded(self: Connection, request: m.Message, version: int | None = None) -> int:
        api_key = request.api_key
        assert api_key is not None
        spoken.add((api_key, self.newest_version(api_key) if version is None else version))
        return send(self, request, version)

    monkeypatch.setattr(Connection, "send_nowait", recorded)
    monkeypatch.setattr(
        Connection, "versions", lambda _: {key: VersionRange(*versions) for key, versions in KAFKA_2_8.items()}
    )
    with Cluster.connect(settings_for(group_node.bootstrap)) as cluster:
        assert ends(cluster, topic, READ_COMMITTED) == [0, 3]
        assert local_start(cluster, (topic, 1)) == 0
        commit_offsets(cluster, group, {(topic, 0): 5, (topic, 1): 7})
        assert committed_offsets(cluster, group)[topic, 1].offset == 7
        assert committed_offsets(cluster, group, [(topic, 0)]) == {(topic, 0): CommittedOffset(5)}
        assert delete_group(cluster, group)
    assert spoken == {(key, newest) for key, (_, newest) in KAFKA_2_8.items() if key is not ApiKey.FETCH}
