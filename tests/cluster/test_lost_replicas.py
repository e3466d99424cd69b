"""How much may fail: what is written when followers are away, when too few replicas are in sync, and when none is left.

The quorum is a node of its own, so that brokers can be killed in any number.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from barnabas.client.broker_connection import Connection
from barnabas.protocol import messages as m
from barnabas.testing.several_nodes import HOST
from tests.clients.adapter import ClientError, Message, ProducerOptions, consume, values
from tests.clients.conftest import LIBRARIES
from tests.cluster.clusters import (
    DEADLINE_S,
    QUICK,
    admin,
    create_replicated,
    create_topic,
    described,
    leader_of,
    make_whole,
    running,
    wait_until,
)
from tests.cluster.writers import IDEMPOTENT
from tests.nodes import Cluster
from tests.wire.requests import LATEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.clients.adapter import Client, Delivery, Producer

CONTROLLER = 1
BROKERS = (2, 3, 4)
DEBUGGING_CONSUMER = -2
NOT_ENOUGH_REPLICAS = 19
ONCE = ProducerOptions(request_timeout_ms=1_000, delivery_timeout_ms=1_100, retries=0)
"""Says soon what the matter is."""
TO_THE_LEADER = ProducerOptions(acks=1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("lost-replicas")
    with Cluster(folder, nodes=4, voters=1, controllers=[CONTROLLER], settings=QUICK) as started:
        yield started


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[list[Client]]:
    """The three libraries. What a test has ended runs again after it."""
    yield [library(running(cluster)) for library in LIBRARIES]
    make_whole(cluster)


@pytest.fixture
def topics(clients: list[Client], topic: str) -> list[str]:
    """A name for a topic of each library."""
    return [f"{topic}-{client.name}" for client in clients]


class Waiting:
    """A record that is sent with acks=all in a thread of its own, for as long as that takes."""

    def __init__(self, producer: Producer, topic: str, value: bytes) -> None:
        self.outcome: list[Delivery] | Exception | None = None
        self._thread = threading.Thread(target=self._send, args=(producer, topic, value), name="waiting")
        self._thread.start()

    def delivered(self) -> list[Delivery]:
        self._thread.join()
        assert isinstance(self.outcome, list), self.outcome
        return self.outcome

    def _send(self, producer: Producer, topic: str, value: bytes) -> None:
        try:
            self.outcome = producer.send(topic, [Message(value)], 0)
        except Exception as failure:  # the test's thread looks at it
            self.outcome = failure


def read(client: Client, topic: str) -> list[bytes | None]:
    _, end = client.offset_range(topic)
    return [record.value for record in consume(client, topic, end)]


def is_refused(client: Client, topic: str) -> bool:
    """Whether a record is refused because too few replicas are in sync."""
    try:
        client.produce(topic, values(1), partition=0, options=ONCE)
    except ClientError as refused:
        return refused.code == NOT_ENOUGH_REPLICAS
    return False


def test_a_leader_that_crashes_takes_with_it_what_it_alone_acknowledged(
    cluster: Cluster, clients: list[Client], topics: list[str]
) -> None:
    """With acks=all, the record was not acknowledged before others had it, and is there, once."""
    bait = f"{topics[0]}-bait"
    create_replicated(cluster, bait, assignment=[[2, 3, 4]])
    for client, topic in zip(clients, topics, strict=True):
        create_replicated(cluster, topic, assignment=[[2, 3, 4]], min_insync_replicas="2")
        client.produce(topic, [Message(b"replicated")], partition=0)
    with contextlib.ExitStack() as closing:
        hasty = [opened(closing, client, topic, TO_THE_LEADER) for client, topic in zip(clients, topics, strict=True)]
        careful = [opened(closing, client, topic, IDEMPOTENT) for client, topic in zip(clients, topics, strict=True)]
        before = [client.offset_range(topic)[1] for client, topic in zip(clients, topics, strict=True)]
        cluster.pause(3)
        cluster.pause(4)
        answer_waiting_followers(hasty[0], bait)
        for producer, topic, end in zip(hasty, topics, before, strict=True):
            assert [each.offset for each in producer.send(topic, [Message(b"lost")], 0)] == [end]
        waiting = [Waiting(producer, topic, b"safe") for producer, topic in zip(careful, topics, strict=True)]
        wait_until(
            lambda: (
                log_ends(cluster, 2, topics) == [end + 2 for end in before]
                or all(described(cluster, topic, at=2)[0].isrs == [2] for topic in topics)
            ),
            "the leader has both records, or is alone, and takes no more with acks=all",
        )
        assert [each.outcome for each in waiting] == [None] * len(waiting)
        cluster.kill(2)
        cluster.resume(3)
        cluster.resume(4)
        for each, client, topic, end in zip(waiting, clients, topics, before, strict=True):
            assert [delivery.offset for delivery in each.delivered()] == [end]
            assert leader_of(cluster, topic) in (3, 4)
            assert read(client, topic)[-2:] == [b"opened", b"safe"]
    make_whole(cluster)
    for client, topic in zip(clients, topics, strict=True):
        assert read(client, topic)[-2:] == [b"opened", b"safe"]
        assert f"truncating {topic}-0 from" in cluster.log_text(2)


def answer_waiting_followers(producer: Producer, topic: str) -> None:
    """A follower that was stopped while it waited finds an answer when it goes on. These records are in it, and what
    comes after them is not."""
    for number in range(3):
        producer.send(topic, [Message(b"%d" % number)], 0)


def opened(closing: contextlib.ExitStack, client: Client, topic: str, options: ProducerOptions) -> Producer:
    """A producer that is connected to the leader."""
    producer = closing.enter_context(contextlib.closing(client.producer(options)))
    producer.send(topic, [Message(b"opened")], 0)
    return producer


def log_ends(cluster: Cluster, node_id: int, topics: Sequence[str]) -> list[int]:
    """Where the logs end for their leader, whoever else has them: so it tells anybody who is no consumer."""
    asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    wanted = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked]) for topic in topics]
    with Connection(HOST, cluster[node_id].port) as connection:
        answer = connection.send(m.ListOffsetsRequest(replica_id=DEBUGGING_CONSUMER, topics=wanted))
    return [topic.partitions[0].offset for topic in answer.topics]


def test_one_broker_may_be_away_and_with_two_nothing_is_written_but_everything_read(
    cluster: Cluster, clients: list[Client], topics: list[str]
) -> None:
    """Three replicas, of which two must be in sync."""
    for client, topic in zip(clients, topics, strict=True):
        create_replicated(cluster, topic, assignment=[[2, 3, 4]], min_insync_replicas="2")
        client.produce(topic, values(3, prefix="all"), partition=0)
    cluster.kill(4)
    for client, topic in zip(clients, topics, strict=True):
        client.produce(topic, values(3, prefix="two"), partition=0)
    cluster.kill(3)
    wait_until(lambda: all(described(cluster, topic)[0].isrs == [2] for topic in topics), "one replica is in sync")
    written = [message.value for prefix in ("all", "two") for message in values(3, prefix=prefix)]
    for client, topic in zip(clients, topics, strict=True):
        assert is_refused(client, topic)
        assert read(client, topic) == written
    cluster.start_node(3)
    for client, topic in zip(clients, topics, strict=True):
        client.produce(topic, values(3, prefix="again"), partition=0, options=IDEMPOTENT)
        assert read(client, topic) == [*written, *(message.value for message in values(3, prefix="again"))]


def test_a_partition_without_its_last_replica_in_sync_is_offline_or_truncated(
    cluster: Cluster, clients: list[Client], topics: list[str]
) -> None:
    """Offline until that one returns; with unclean elections, another leads, without what it had not got."""
    for client, topic in zip(clients, topics, strict=True):
        for name, is_unclean in ((topic, "false"), (f"{topic}-unclean", "true")):
            create_replicated(cluster, name, assignment=[[2, 3, 4]], unclean_leader_election_enable=is_unclean)
            client.produce(name, values(3, prefix="everywhere"), partition=0)
    everywhere = [message.value for message in values(3, prefix="everywhere")]
    last = [message.value for message in values(2, prefix="last")]
    names = [name for topic in topics for name in (topic, f"{topic}-unclean")]
    cluster.kill(3, 4)
    wait_until(lambda: all(described(cluster, name)[0].isrs == [2] for name in names), "one replica is in sync")
    for client, topic in zip(clients, topics, strict=True):
        for name in (topic, f"{topic}-unclean"):
            client.produce(name, values(2, prefix="last"), partition=0)
            assert read(client, name) == [*everywhere, *last]
    cluster.kill(2)
    cluster.start_node(3)
    wait_until(lambda: all(leader_of(cluster, f"{topic}-unclean") == 3 for topic in topics), "another one leads")
    for client, topic in zip(clients, topics, strict=True):
        assert read(client, f"{topic}-unclean") == everywhere
        client.produce(f"{topic}-unclean", values(1, prefix="new"), partition=0, options=IDEMPOTENT)
        assert leader_of(cluster, topic) == -1
        with pytest.raises(ClientError):
            client.produce(topic, values(1), partition=0, options=ONCE)
    cluster.start_node(2)
    wait_until(lambda: all(leader_of(cluster, topic) == 2 for topic in topics), "the last replica in sync leads again")
    make_whole(cluster)
    for client, topic in zip(clients, topics, strict=True):
        assert read(client, topic) == [*everywhere, *last]
        assert read(client, f"{topic}-unclean") == [*everywhere, b"new-0"]
        assert f"truncating {topic}-unclean-0 from" in cluster.log_text(2)


def test_without_a_quorum_records_flow_and_nothing_is_decided(
    cluster: Cluster, clients: list[Client], topics: list[str]
) -> None:
    for topic in topics:
        create_replicated(cluster, topic, assignment=[[2, 3, 4], [3, 4, 2]])
    # What a broker has not heard of by then, it does not hear of before the quorum is back.
    wait_until(lambda: all(described(cluster, topic, at) for topic in topics for at in BROKERS), "all know the topics")
    cluster.kill(CONTROLLER)
    for client, topic in zip(clients, topics, strict=True):
        client.produce(topic, values(3), partition=0)
        assert read(client, topic) == [message.value for message in values(3)]
    with pytest.raises(KafkaException):
        create_topic(admin(cluster, 4), "undecided", 1, deadline_s=2)
    cluster.kill(3)
    for topic in topics:
        assert leader_of(cluster, topic, 1) == 3
        assert described(cluster, topic)[1].isrs == [3, 4, 2]
    cluster.start_node(CONTROLLER)
    wait_until(lambda: all(leader_of(cluster, topic, 1) == 4 for topic in topics), "another one leads", DEADLINE_S)
