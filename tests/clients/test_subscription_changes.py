"""A consumer of the next-generation protocol whose application changes its mind: it subscribes to fewer topics, and
unsubscribes before it has polled for the revocation that this brings."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from confluent_kafka import KafkaException

from tests.clients.adapter import DEADLINE_S, MemberOptions, TopicPartition
from tests.clients.with_confluent import member_config
from tests.peers import wait_until
from tests.wire.connection import Connection
from tests.wire.consumer_groups import describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.clients.with_confluent import ConfluentClient
    from tests.peers import Peer, PeerKind

TOPICS, PARTITIONS = 20, 2
ROUNDS = 3


class Application:
    """One consumer, polled by nobody but the test."""

    def __init__(self, node: Peer, group: str) -> None:
        self.owned: set[TopicPartition] = set()
        self._consumer = confluent_kafka.Consumer(
            member_config(node.bootstrap, group, MemberOptions(protocol="consumer"))
        )

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def poll(self) -> None:
        message = self._consumer.poll(0.02)
        if message is not None and message.error() is not None:
            raise KafkaException(message.error())

    def hear_the_coordinator(self, topic: str) -> None:
        """Returns when everything is handled that the coordinator said before: this is answered after it."""
        self._consumer.committed([confluent_kafka.TopicPartition(topic, 0)], DEADLINE_S)

    def close(self) -> None:
        self._consumer.close()

    def _on_assign(self, _: object, partitions: Sequence[confluent_kafka.TopicPartition]) -> None:
        self.owned |= {(each.topic, each.partition) for each in partitions}

    def _on_revoke(self, _: object, partitions: Sequence[confluent_kafka.TopicPartition]) -> None:
        self.owned -= {(each.topic, each.partition) for each in partitions}


@pytest.fixture
def application(group_node: Peer, group: str) -> Iterator[Application]:
    with contextlib.closing(Application(group_node, group)) as made:
        yield made


def test_a_consumer_that_unsubscribes_with_a_revocation_pending_can_subscribe_again(
    application: Application,
    group_node: Peer,
    group_confluent: ConfluentClient,
    topic: str,
    group: str,
    peer_kind: PeerKind,
) -> None:
    """librdkafka leaves the group, and then sends the new topics as if it were a member, with epoch 0. On Kafka the
    answer to that is fatal."""
    topics = [f"{topic}-{number}" for number in range(TOPICS)]
    for name in topics:
        group_confluent.create_topic(name, PARTITIONS)
    everything = {(name, partition) for name in topics for partition in range(PARTITIONS)}
    wait_until(lambda: group_confluent.topic_names() >= set(topics), "the broker has heard of all topics")

    def state() -> str:
        with Connection(group_node.port) as connection:  # librdkafka knows fewer states
            return describe(connection, group).group_state

    def has_left() -> bool:
        application.poll()
        return state() == "Empty"

    def owns_everything() -> bool:
        application.poll()
        return application.owned == everything

    def subscribe_to_everything() -> None:
        application.subscribe(topics)
        wait_until(owns_everything, "the consumer has all partitions", poll_s=0)

    def change_its_mind() -> None:
        application.subscribe(topics[: TOPICS // 2])
        wait_until(lambda: state() == "Reconciling", "the consumer is told to give up half of them")
        application.hear_the_coordinator(topics[0])
        application.unsubscribe()
        wait_until(has_left, "the consumer has left the group", poll_s=0)
        application.hear_the_coordinator(topics[0])

    subscribe_to_everything()
    with pytest.raises(KafkaException, match="Invalid request") if peer_kind == "kafka" else contextlib.nullcontext():
        for _ in range(ROUNDS):
            change_its_mind()
            subscribe_to_everything()
