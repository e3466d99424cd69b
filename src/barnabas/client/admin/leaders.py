"""Questions about partitions, each for the broker that leads them: what comes back says for each how it went.

A partition whose leader cannot be found fails alone, and the others have their answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.admin.outcomes import refusal
from barnabas.client.offset_queries import by_topic
from barnabas.client.retries import (
    LEADERSHIP_ERRORS,
    RETRIED,
    Attempts,
    RetriableError,
    as_kafka_error,
    failure_of,
    retrying,
)
from barnabas.net.frames import TRANSIENT
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.client.broker_connection import Connection
    from barnabas.client.cluster import Call, Cluster, TopicPartition


class PartitionAnswer(NamedTuple):
    """What an answer to a question about several partitions says of one of them."""

    place: TopicPartition
    error_code: int
    content: Any
    message: str | None = None


def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    call_for: Callable[[list[TopicPartition]], Call],
    read: Callable[[Any], Iterable[PartitionAnswer]],
) -> dict[TopicPartition, Any | KafkaError]:
    """What the leader of each partition says of it, or why it says nothing. Each broker is asked once for all its own.

    What may pass is tried again until the time is over.
    """
    wanted = list(dict.fromkeys(partitions))
    asked = _Asked(cluster, call_for, read)
    try:
        retrying(cluster.settings, lambda attempts: asked.attempt(wanted, attempts))
    except KafkaError as failure:
        lost = dict.fromkeys(wanted, failure) | asked.passing
        return {place: asked.found[place] if place in asked.found else lost[place] for place in wanted}
    return {place: asked.found[place] for place in wanted}


class _Asked:
    """What is known so far."""

    def __init__(
        self,
        cluster: Cluster,
        call_for: Callable[[list[TopicPartition]], Call],
        read: Callable[[Any], Iterable[PartitionAnswer]],
    ) -> None:
        self.found: dict[TopicPartition, Any | KafkaError] = {}
        self.passing: dict[TopicPartition, KafkaError] = {}
        """What the last try met that another may not meet."""
        self._cluster = cluster
        self._call_for = call_for
        self._read = read

    def attempt(self, wanted: list[TopicPartition], attempts: Attempts) -> None:
        self.passing.clear()
        missing = [place for place in wanted if place not in self.found]
        for connection, led in self._leaders(missing, attempts).items():
            try:
                response = self._cluster.ask(connection, self._call_for(led), attempts, _names(led))
            except TRANSIENT as failure:
                for topic in by_topic(led):
                    self._cluster.forget_topic(topic)
                self.passing.update(dict.fromkeys(led, as_kafka_error(failure)))
                continue
            for answer in self._read(response):
                self._take(answer, connection)
        if self.passing:
            raise next(iter(self.passing.values()))

    def _leaders(self, partitions: list[TopicPartition], attempts: Attempts) -> dict[Connection, list[TopicPartition]]:
        try:
            return self._cluster.leaders(partitions, attempts)
        except (KafkaError, *TRANSIENT):
            pass  # one of them has none, and the others are not to suffer for it
        by_leader: dict[Connection, list[TopicPartition]] = {}
        for place in partitions:
            try:
                (connection,) = self._cluster.leaders([place], attempts)
            except RetriableError as failure:
                self.passing[place] = failure
            except KafkaError as failure:
                self.found[place] = refusal(failure.error)
            except TRANSIENT as lost:
                self.passing[place] = as_kafka_error(lost)
            else:
                by_leader.setdefault(connection, []).append(place)
        return by_leader

    def _take(self, answer: PartitionAnswer, connection: Connection) -> None:
        error = Error(answer.error_code)
        if error in LEADERSHIP_ERRORS:
            self._cluster.forget_topic(answer.place[0])
        if error in RETRIED:
            self.passing[answer.place] = failure_of(error, f"{_names([answer.place])} at {connection.address}")
        else:
            self.found[answer.place] = refusal(answer.error_code, answer.message) or answer.content


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)
