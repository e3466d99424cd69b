"""Fresh topics for every run, through an ordinary admin client, and the count of what they hold."""

from __future__ import annotations

import contextlib
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ANSWER_SECONDS_MAX = 60.0
POLL_SECONDS = 0.1


class TopicError(RuntimeError):
    """A topic is not what the benchmark needs it to be."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of one broker."""

    name: str
    partitions: int
    admin: AdminClient

    @staticmethod
    def create(
        bootstrap: str,
        partitions: int,
        name: str | None = None,
        *,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> Topic:
        """Returns when every partition is served: Kafka names leaders before they have their logs."""
        topic = Topic.of(bootstrap, name or f"bench-{uuid.uuid4().hex}", partitions)
        new = NewTopic(topic.name, partitions, replicas, config=dict(settings or {}))
        topic.admin.create_topics([new])[topic.name].result(ANSWER_SECONDS_MAX)
        topic.await_served()
        return topic

    @staticmethod
    def of(bootstrap: str, name: str, partitions: int) -> Topic:
        """A topic that is there."""
        return Topic(name, partitions, _admin(bootstrap))

    def seen_from(self, bootstrap: str) -> Topic:
        """The same topic after its broker came back at another address."""
        return Topic.of(bootstrap, self.name, self.partitions)

    def id(self) -> str:
        """The topic's id in Kafka's text form; librdkafka writes the same 22 characters in another alphabet."""
        described = self.admin.describe_topics(TopicCollection([self.name]), request_timeout=ANSWER_SECONDS_MAX)
        topic_id = str(described[self.name].result(ANSWER_SECONDS_MAX).topic_id)
        return topic_id.translate(str.maketrans("+/", "-_"))

    def delete(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result(ANSWER_SECONDS_MAX)

    def record_count(self) -> int:
        """The sum of log end offsets: what the broker says it has, whatever the client believes."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(self.name, partition): latest for partition in range(self.partitions)}
        answers = self.admin.list_offsets(wanted, request_timeout=ANSWER_SECONDS_MAX)
        return sum(int(answer.result(ANSWER_SECONDS_MAX).offset) for answer in answers.values())

    def await_served(self) -> None:
        """The errors of a partition on its way up are several; all that matters is that they end."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                self.record_count()
                return
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise TopicError(f"not all {self.partitions} partitions of {self.name} are served") from error
                time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def fresh_topic(
    bootstrap: str, partitions: int, *, replicas: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[Topic]:
    topic = Topic.create(bootstrap, partitions, replicas=replicas, settings=settings)
    try:
        yield topic
    finally:
        topic.delete()


def standing_topic(bootstrap: str, partitions: int) -> Topic:
    """A topic that is made once and kept, where Kafka takes longer to make and delete it than a run takes."""
    name = f"bench-standing-{partitions}"
    admin = _admin(bootstrap)
    if name in admin.list_topics(timeout=ANSWER_SECONDS_MAX).topics:
        return Topic(name, partitions, admin)
    return Topic.create(bootstrap, partitions, name)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
