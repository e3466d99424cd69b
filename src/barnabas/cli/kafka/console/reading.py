"""Records of topics by librdkafka, for the console consumer: as a member of a group, or without one.

Without a group the partitions are simply read: nothing is joined, nothing is committed, and nothing of the tool is left
in the cluster when it ends, where Java's tool leaves a group of a random name in the lists for a while. As a member it
commits what has been printed, and where it stands in partitions from which nothing has come yet: so that a group that
starts again gets just what it missed.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.cli.kafka.java.java_log import METADATA, NETWORK_CLIENT, log_error, log_warning
from barnabas.cli.kafka.java.java_times import TimeError, read_duration_ms
from barnabas.cli.kafka.rdkafka_events import reporter
from barnabas.cli.kafka.rdkafka_properties import CONSUMER, config_error, rdkafka_settings
from barnabas.cli.kafka.tool import ToolError
from barnabas.cli.kafka.topics.include_list import INTERNAL_TOPICS
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

    from confluent_kafka import Message

CONSUMER_CLASS: Final = "org.apache.kafka.clients.consumer"
EARLIEST, LATEST, NONE = "earliest", "latest", "none"
_BY_DURATION: Final = "by_duration:"
_BATCH_MAX: Final = 500
"""How many records are handed out at a time: as many as Java's client does."""
_METADATA_WAIT_S: Final = 0.5
_OFFSETS_WAIT_S: Final = 10.0
_FIRST: Final = -2
_END: Final = -1
"""What stands for times: the first record, and the place behind the last one."""
_MISSING_AGAIN_S: Final = 1.0
"""How soon a topic that is not there is looked for again."""
_PASSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
        KafkaError._PARTITION_EOF,  # noqa: SLF001 - its public name
    }
)
"""What will be there in a while, perhaps."""


class ReadError(Exception):
    """Nothing more can be read, as Java prints the exception."""


class Topics(NamedTuple):
    """Which topics are meant: one by its name, or those that a pattern matches."""

    name: str | None
    pattern: re.Pattern[str] | None
    has_internal: bool
    """Whether the pattern may match topics that the cluster keeps for itself."""

    def matching(self, names: Sequence[str]) -> list[str]:
        assert self.pattern is not None
        return [
            name
            for name in names
            if self.pattern.fullmatch(name) and (self.has_internal or name not in INTERNAL_TOPICS)
        ]


class Client:
    """A consumer of librdkafka, and what the properties say of it."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        given = rdkafka_settings(properties, CONSUMER)
        self.name = f"Consumer clientId={properties['client.id']}, groupId={properties['group.id']}"
        self.start = _StartOfTheLost(properties.get("auto.offset.reset", LATEST))
        self.refresh_s = int(properties.get("metadata.max.age.ms", 300_000)) / 1000
        defaults: dict[str, Any] = {
            "allow.auto.create.topics": True,  # as Java's
            "auto.offset.reset": self.start.rdkafka_name,
            "enable.auto.offset.store": False,  # what has been printed is committed, and nothing else
            "error_cb": reporter(self.name),
            "fetch.queue.backoff.ms": 10,  # the default is to pause for a second each time the queue is full
        }
        settings = defaults | given
        self.commits = bool(settings.get("enable.auto.commit", True))
        self.is_incremental = (
            settings.get("group.protocol", "").lower() == "consumer"
            or settings.get("partition.assignment.strategy") == "cooperative-sticky"
        )
        try:
            self.consumer = Consumer(settings)
        except KafkaException as failure:
            raise ToolError(
                "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer",
                hint=failure.args[0].str(),
            ) from None
        self._warned: set[str] = set()

    def topics(self, topics: Topics) -> dict[str, int] | None:
        """The topics that are meant and are there, with their numbers of partitions; None if nobody answers."""
        try:
            if topics.name is None:
                listed = self.consumer.list_topics(timeout=_METADATA_WAIT_S).topics
                wanted = topics.matching(list(listed))
            else:
                listed = self.consumer.list_topics(topics.name, timeout=_METADATA_WAIT_S).topics
                wanted = [topics.name]
        except KafkaException:
            self.consumer.poll(0)  # `error_cb` says what the matter is
            return None
        return {name: len(listed[name].partitions) for name in wanted if self.is_there(name, listed[name].error)}

    def is_there(self, topic: str, error: KafkaError | None) -> bool:
        """Whether a topic can be read; what is the matter is said once, and raised if it will not pass."""
        if error is None:
            return True
        code = Error(error.code()) if error.code() > 0 else Error.UNKNOWN_TOPIC_OR_PARTITION
        if topic not in self._warned:
            self._warned.add(topic)
            log_warning(
                f"[{self.name}] The metadata response from the cluster reported a recoverable issue with correlation "
                f"id 2 : {{{topic}={code.name}}}",
                NETWORK_CLIENT,
            )
            if code is Error.INVALID_TOPIC_EXCEPTION:
                log_error(f"[{self.name}] Metadata response reported invalid topics [{topic}]", METADATA)
        if code is Error.INVALID_TOPIC_EXCEPTION:
            raise ReadError(f"{exception_name(code)}: Invalid topics: [{topic}]")
        if code is Error.TOPIC_AUTHORIZATION_FAILED:
            raise ReadError(f"{exception_name(code)}: Not authorized to access topics: [{topic}]")
        return False

    def records(self, wait_s: float) -> list[Message]:
        """What has come; after a wait if nothing is there yet."""
        try:
            messages = self.consumer.consume(_BATCH_MAX, 0) or self.consumer.consume(1, wait_s)
        except KafkaException as failure:
            raise ReadError(self.exception(failure.args[0])) from None
        return [message for message in messages if self._is_record(message)]

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() in _PASSING:
            topic = message.topic()
            if topic is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                self.is_there(topic, error)
            return False
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
            raise ReadError(_no_offset(f"{message.topic()}-{message.partition()}"))
        if error.code() == KafkaError.TOPIC_EXCEPTION:
            self.is_there(message.topic() or "", error)
        if error.fatal() or error.code() > 0:
            raise ReadError(self.exception(error))
        return False  # a connection, which is made again

    def exception(self, error: KafkaError) -> str:
        if error.code() <= 0:
            return f"org.apache.kafka.common.KafkaException: {error.str()}"
        code = Error(error.code())
        return f"{exception_name(code)}: {message_of(code)}"


class _StartOfTheLost:
    """`auto.offset.reset`: where to begin in a partition without a place to go on from."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._before_ms = 0
        if text.startswith(_BY_DURATION):
            self._before_ms = self._duration(text.removeprefix(_BY_DURATION))
        elif text not in (EARLIEST, LATEST, NONE):
            self._refuse()
        self.rdkafka_name = {NONE: "error", EARLIEST: EARLIEST}.get(text, LATEST)

    def resolved(self, consumer: Consumer, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Partitions with the offsets at which they are begun: asked for at once, so that the first fetch has all."""
        if not places:
            return []
        if self._text == NONE:
            raise ReadError(_no_offset(", ".join(f"{each.topic}-{each.partition}" for each in places)))
        if self._text == EARLIEST:
            return _offsets_at(consumer, places, _FIRST)
        if self._text == LATEST:
            return _offsets_at(consumer, places, _END)
        found = _offsets_at(consumer, places, int(time.time() * 1000) - self._before_ms)
        without = [each for each in found if each.offset < 0]
        return [each for each in found if each.offset >= 0] + _offsets_at(consumer, without, _END)

    def _duration(self, text: str) -> int:
        try:
            duration_ms = read_duration_ms(text)
        except TimeError:
            self._refuse()
            raise
        if duration_ms < 0:
            self._refuse()
        return duration_ms

    def _refuse(self) -> None:
        raise config_error(
            "auto.offset.reset",
            self._text,
            f"Invalid value `{self._text}` for configuration auto.offset.reset. The value must be either 'earliest', "
            "'latest', 'none' or of the format 'by_duration:<PnDTnHnMn.nS.>'.",
        )


def _offsets_at(consumer: Consumer, places: Sequence[TopicPartition], timestamp: int) -> list[TopicPartition]:
    """Where partitions stood at a time, or at what stands for one in a request."""
    if not places:
        return []
    asked = [TopicPartition(each.topic, each.partition, timestamp) for each in places]
    return [
        TopicPartition(each.topic, each.partition, each.offset)
        for each in consumer.offsets_for_times(asked, timeout=_OFFSETS_WAIT_S)
    ]


class PartitionReader:
    """One partition from one place on."""

    def __init__(self, client: Client, topic: str, partition: int, offset: int) -> None:
        self._client = client
        client.consumer.assign([TopicPartition(topic, partition, offset)])

    def records(self, wait_s: float) -> list[Message]:
        return self._client.records(wait_s)

    def printed(self, messages: Sequence[Message]) -> None:
        """Nothing is committed."""

    def close(self) -> None:
        self._client.consumer.close()


class TopicReader:
    """All partitions of topics, without a group. Topics and partitions that come later are read as well."""

    def __init__(self, client: Client, topics: Topics) -> None:
        self._client = client
        self._topics = topics
        self._assigned: set[tuple[str, int]] = set()
        self._look_at = 0.0

    def records(self, wait_s: float) -> list[Message]:
        if time.monotonic() >= self._look_at:
            self._look()
        return self._client.records(min(wait_s, max(self._look_at - time.monotonic(), 0)))

    def printed(self, messages: Sequence[Message]) -> None:
        """Nothing is committed."""

    def close(self) -> None:
        self._client.consumer.close()

    def _look(self) -> None:
        counts = self._client.topics(self._topics)
        if counts is None:
            return
        pause_s = self._client.refresh_s if counts else min(_MISSING_AGAIN_S, self._client.refresh_s)
        self._look_at = time.monotonic() + pause_s
        new = [
            TopicPartition(topic, partition)
            for topic, count in counts.items()
            for partition in range(count)
            if (topic, partition) not in self._assigned
        ]
        if new:
            self._begin(new)

    def _begin(self, places: list[TopicPartition]) -> None:
        try:
            starts = self._client.start.resolved(self._client.consumer, places)
        except KafkaException:
            self._look_at = time.monotonic() + _MISSING_AGAIN_S  # nobody leads one of them yet
            return
        self._client.consumer.incremental_assign(starts)
        self._assigned.update((place.topic, place.partition) for place in starts)


class GroupReader:
    """The share of a member of a group."""

    def __init__(self, client: Client, topics: Topics) -> None:
        self._client = client
        self._topics = topics
        self._subscribed: list[str] = []
        self._look_at = 0.0
        self._failure: ReadError | None = None

    def records(self, wait_s: float) -> list[Message]:
        if time.monotonic() >= self._look_at:
            self._look()
        messages = self._client.records(wait_s)
        if self._failure is not None:
            raise self._failure
        return messages

    def printed(self, messages: Sequence[Message]) -> None:
        """These may be committed."""
        if self._client.commits:
            last = {(message.topic(), message.partition()): message for message in messages}
            self._store([_behind(message) for message in last.values()])

    def close(self) -> None:
        """Commit, and leave the group."""
        self._client.consumer.close()

    def _look(self) -> None:
        found = self._client.topics(self._topics)
        if found is None:
            return
        if self._topics.name is not None:
            # One that is not there yet is waited for as a member.
            self._look_at = math.inf
            self._subscribe([self._topics.name])
            return
        self._look_at = time.monotonic() + (self._client.refresh_s if found else _MISSING_AGAIN_S)
        if found and sorted(found) != self._subscribed:
            self._subscribe(sorted(found))

    def _subscribe(self, topics: list[str]) -> None:
        self._subscribed = topics
        self._client.consumer.subscribe(topics, on_assign=self._on_assign)

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        try:
            committed = consumer.committed(places, timeout=_OFFSETS_WAIT_S)
            known = [TopicPartition(each.topic, each.partition, each.offset) for each in committed if each.offset >= 0]
            new = self._client.start.resolved(consumer, [each for each in committed if each.offset < 0])
        except KafkaException as failure:
            self._failure = ReadError(self._client.exception(failure.args[0]))
            return
        except ReadError as failure:
            self._failure = failure
            return
        if self._client.is_incremental:
            consumer.incremental_assign(known + new)
        else:
            consumer.assign(known + new)
        # Where it begins is committed as well, as Java's client does: what comes while nobody reads is not lost then.
        if self._client.commits:
            self._store(new)

    def _store(self, places: list[TopicPartition]) -> None:
        if not places:
            return
        try:
            self._client.consumer.store_offsets(offsets=places)
        except KafkaException as failure:
            # A partition that somebody else has by now: where it goes on is not ours to say.
            if failure.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - its public name
                raise ReadError(self._client.exception(failure.args[0])) from None


Reader = PartitionReader | TopicReader | GroupReader


def logical_offset(offset: int | str) -> int:
    """An offset, `earliest` or `latest` as librdkafka has it."""
    return {EARLIEST: OFFSET_BEGINNING, LATEST: OFFSET_END}[offset] if isinstance(offset, str) else offset


def _behind(message: Message) -> TopicPartition:
    """Where a partition is gone on with after a record."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return TopicPartition(topic, partition, offset + 1, leader_epoch=message.leader_epoch())


def _no_offset(place: str) -> str:
    exception = f"{CONSUMER_CLASS}.NoOffsetForPartitionException"
    return f"{exception}: Undefined offset with no reset policy for partitions: [{place}]"
