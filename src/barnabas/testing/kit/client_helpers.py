"""What tests of Kafka applications need again and again: records in, records expected, groups waited for.

It is done by clients (confluent-kafka) that live as long as one call, so that a broker that was killed or has been
unreachable meanwhile is found again at once. Every wait has a limit, and what is not so within that fails as an
assertion does, with what is different.
"""

from __future__ import annotations

import functools
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient

WITHIN_S: Final = 10.0
_POLL_INTERVAL_S: Final = 0.02
_POLL_S: Final = 0.1
_NOT_CONTROLLER: Final = 41
_NOT_WRITTEN: Final = frozenset({3, 5, 6, 19, 56})
"""Errors of brokers that say for sure that a record was not written, and may be another time: the partition or its
leader is not known yet, too few replicas are in sync, no space on the disk."""
_SHOWN_MAX: Final = 20
"""How many records an error shows of those that are missing, or too many."""


class Record(NamedTuple):
    """A record to be produced, or one that was read."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    offset: int | None = None


class ClientHelpers(ABC):
    """What a broker and a cluster of brokers offer to tests. Text is UTF-8."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """What a client takes as `bootstrap.servers`."""

    @property
    def replication_factor(self) -> int:
        """That of topics that are created here, unless somebody says otherwise."""
        return 1

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        settings: Mapping[str, str] | None = None,
        within_s: float = WITHIN_S,
    ) -> str:
        """Creates a topic, and returns its name, which nobody else has if none is given. It can be used at once."""
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        name = name or unique_name()
        new = NewTopic(name, partitions, replication_factor or self.replication_factor, config=dict(settings or {}))
        admin = self._admin()

        def has_controller() -> bool:
            """There may be none for a moment, after a fault."""
            try:
                admin.create_topics([new], operation_timeout=within_s, request_timeout=within_s)[name].result(within_s)
            except KafkaException as failure:
                if failure.args[0].code() != _NOT_CONTROLLER:
                    raise
                return False
            return True

        await_true(has_controller, f"there is an active controller to create {name}", within_s)
        await_true(lambda: self._is_led(admin, name, partitions), f"every partition of {name} has a leader", within_s)
        return name

    def produce(
        self, topic: str, records: Iterable[str | bytes | Record], *, within_s: float = WITHIN_S
    ) -> list[Record]:
        """Returns when all replicas in sync have them, with where they are. What a broker cannot take now is sent
        again. What may have been written though nobody said so is not: it fails, and nothing is written twice."""
        from confluent_kafka import Producer

        deadline = time.monotonic() + within_s
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                # Not idempotent: librdkafka takes half a second to begin with that.
                "retries": 0,
                "linger.ms": 0,
                "message.timeout.ms": int(within_s * 1000),
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
            }
        )
        unwritten = [as_record(record) for record in records]
        written: list[Record] = []
        while unwritten:
            outcomes = _produce_once(producer, topic, unwritten, deadline)
            written += [_read(message) for error, message in outcomes if error is None]
            failed = [(error, message) for error, message in outcomes if error is not None]
            if any(error.code() not in _NOT_WRITTEN for error, _ in failed) or (failed and _is_over(deadline)):
                raise AssertionError(
                    f"{len(failed)} of {len(outcomes)} records for {topic} were not acknowledged within {within_s} s: "
                    f"{failed[0][0].str()}"
                )
            unwritten = [record for record, (error, _) in zip(unwritten, outcomes, strict=True) if error is not None]
            if unwritten:
                time.sleep(_POLL_INTERVAL_S)
        return written

    def consume(self, topic: str, count: int, *, within_s: float = WITHIN_S) -> list[Record]:
        """The records of a topic from its beginning, all that there are when there are at least `count`: those of
        each partition in their order, and only what is committed. They are read without a group."""
        deadline = time.monotonic() + within_s
        records = self._read_all(topic, count, deadline)
        if len(records) < count:
            raise AssertionError(
                f"{topic} has {len(records)} records after {within_s} s, not {count}: {_show(records)}"
            )
        return records

    def expect(self, topic: str, values: Iterable[str | bytes | None], *, within_s: float = WITHIN_S) -> list[Record]:
        """Waits until a topic has records of these values, and fails if they do not come in time, if there are others,
        or if those of a topic of one partition are in another order. Returns them."""
        expected = [as_bytes(value) for value in values]
        records = self._read_all(topic, len(expected), time.monotonic() + within_s)
        found = [record.value for record in records]
        missing, unexpected = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
        if missing or unexpected:
            raise AssertionError(
                f"{topic} does not have the expected records within {within_s} s; "
                f"missing: {_show(missing.elements())}; unexpected: {_show(unexpected.elements())}"
            )
        if found != expected and len(self._partitions(topic)) == 1:
            at = next(at for at, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other)
            raise AssertionError(
                f"{topic} has the expected records in another order, from offset {records[at].offset} on: "
                f"{_show(found[at:])} instead of {_show(expected[at:])}"
            )
        return records

    def wait_until_stable(self, group: str, *, members: int | None = None, within_s: float = WITHIN_S) -> None:
        """Waits until a group has members, or just so many, and each knows its partitions."""
        admin = self._admin()
        seen = "nothing"

        def is_stable() -> bool:
            nonlocal seen
            described = admin.describe_consumer_groups([group], request_timeout=within_s)[group].result(within_s)
            seen = f"{described.state.name} with {len(described.members)} members"
            has_enough = bool(described.members) if members is None else len(described.members) == members
            return described.state.name == "STABLE" and has_enough

        wanted = "" if members is None else f" with {members} members"
        await_true(is_stable, lambda: f"group {group} is stable{wanted}, it is {seen}", within_s)

    def lag(self, group: str, topic: str) -> dict[int, int]:
        """By partition, how far the offsets that a group has committed are behind the end. What it has not committed
        anything of, it has all before it."""
        committed = self._committed(group, topic)
        ends = self._offsets(topic, committed, latest=True)
        starts = self._offsets(topic, committed, latest=False)
        return {
            partition: ends[partition] - (starts[partition] if offset is None else max(offset, starts[partition]))
            for partition, offset in committed.items()
        }

    def wait_until_no_lag(self, group: str, topic: str, *, within_s: float = WITHIN_S) -> None:
        """Waits until a group has committed offsets behind which there is nothing to read in any partition. The
        markers at the end of transactions do not count."""
        behind: dict[int, int] = {}

        def has_none() -> bool:
            nonlocal behind
            behind = {partition: lag for partition, lag in self.lag(group, topic).items() if lag}
            return not behind or not self._has_records_behind(group, topic, behind)

        await_true(has_none, lambda: f"group {group} has no lag in {topic}, by partition it is {behind}", within_s)

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _is_led(self, admin: AdminClient, topic: str, partitions: int) -> bool:
        known = admin.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions
        return len(known) == partitions and all(each.leader >= 0 for each in known.values())

    def _consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": unique_name("no-group"),
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )

    def _partitions(self, topic: str) -> list[int]:
        known = self._admin().list_topics(topic, timeout=WITHIN_S).topics[topic]
        if known.error is not None:
            raise AssertionError(f"{topic}: {known.error}")
        return sorted(known.partitions)

    def _read_all(self, topic: str, count: int, deadline: float) -> list[Record]:
        """What there is in a topic when it is at least so much, or when the time is up."""
        # With its first offset, for which librdkafka would take half a second to ask.
        starts = self._offsets(topic, self._partitions(topic), latest=False)
        places = self._places(topic, starts)
        records: list[Record] = []
        consumer = self._consumer()
        try:
            for messages, is_at_end in _reading(consumer, places, deadline):
                records += map(_read, messages)
                if is_at_end and len(records) >= count:
                    break
        finally:
            consumer.close()
        return records

    def _has_records_behind(self, group: str, topic: str, partitions: Iterable[int]) -> bool:
        committed = self._committed(group, topic)
        starts = self._offsets(topic, partitions, latest=False)
        places = self._places(topic, {each: max(starts[each], committed[each] or 0) for each in partitions})
        consumer = self._consumer()
        try:
            for messages, is_at_end in _reading(consumer, places, time.monotonic() + WITHIN_S):
                if messages or is_at_end:
                    return bool(messages)
        finally:
            consumer.close()
        return True

    def _places(self, topic: str, offsets: Mapping[int, int]) -> list[TopicPartition]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    def _committed(self, group: str, topic: str) -> dict[int, int | None]:
        """By partition; None where the group has committed nothing."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, each) for each in self._partitions(topic)])
        admin = self._admin()  # which has to live until the answer is there
        told = admin.list_consumer_group_offsets([asked], request_timeout=WITHIN_S)[group].result(WITHIN_S)
        return {each.partition: each.offset if each.offset >= 0 else None for each in told.topic_partitions}

    def _offsets(self, topic: str, partitions: Iterable[int], *, latest: bool) -> dict[int, int]:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec

        spec: Any = OffsetSpec.latest() if latest else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): spec for partition in partitions}
        admin = self._admin()
        told = admin.list_offsets(asked, request_timeout=WITHIN_S)
        return {place.partition: offset.result(WITHIN_S).offset for place, offset in told.items()}


def _produce_once(
    producer: Producer, topic: str, records: Sequence[Record], deadline: float
) -> list[tuple[KafkaError | None, Any]]:
    """What became of each record, in their order."""
    outcomes: dict[int, tuple[KafkaError | None, Any]] = {}

    def on_delivery(at: int, error: KafkaError | None, message: Any) -> None:
        outcomes[at] = error, message

    for at, record in enumerate(records):
        while True:
            try:
                producer.produce(topic, on_delivery=functools.partial(on_delivery, at), **_arguments(record))
                break
            except BufferError:  # what librdkafka keeps is bounded
                producer.poll(_POLL_S)
        producer.poll(0)
    if producer.flush(max(deadline - time.monotonic(), 0)):
        producer.purge()  # which lets those that are under way fail, too
        producer.flush(_POLL_S)
    return [outcomes[at] for at in range(len(records))]


def _is_over(deadline: float) -> bool:
    return time.monotonic() > deadline


def unique_name(prefix: str = "topic") -> str:
    """A name that nobody else has, in any process."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def as_record(record: str | bytes | Record) -> Record:
    return record if isinstance(record, Record) else Record(as_bytes(record))


def await_true(condition: Callable[[], bool], what: str | Callable[[], str], within_s: float) -> None:
    """Waits until a condition holds; `what` says what that is, or is called to do so when the time is up."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what if isinstance(what, str) else what()}")
        time.sleep(_POLL_INTERVAL_S)


def _arguments(record: Record) -> dict[str, Any]:
    arguments: dict[str, Any] = {"value": record.value, "key": record.key}
    if record.headers:
        arguments["headers"] = list(record.headers)
    if record.partition is not None:
        arguments["partition"] = record.partition
    if record.timestamp_ms is not None:
        arguments["timestamp"] = record.timestamp_ms
    return arguments


def _reading(
    consumer: Consumer, places: Sequence[TopicPartition], deadline: float
) -> Iterator[tuple[list[Message], bool]]:
    """What comes of these partitions, step by step, and whether all of them have been read to the end; until the
    deadline."""
    from confluent_kafka import KafkaError, KafkaException

    consumer.assign(list(places))
    not_at_end: set[int | None] = {place.partition for place in places}
    while (left_s := deadline - time.monotonic()) > 0:
        messages = []
        wait_s = min(left_s, _POLL_S)
        while (message := consumer.poll(wait_s)) is not None:
            wait_s = 0
            error = message.error()
            if error is None:
                not_at_end.add(message.partition())
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name in librdkafka
                not_at_end.discard(message.partition())
            elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
                raise KafkaException(error)
        yield messages, not not_at_end


def _read(message: Any) -> Record:
    _, timestamp_ms = message.timestamp()
    return Record(
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.partition(),
        timestamp_ms,
        message.offset(),
    )


def _show(found: Iterable[object]) -> str:
    values = list(found)
    shown = ", ".join(map(repr, values[:_SHOWN_MAX])) or "none"
    return shown if len(values) <= _SHOWN_MAX else f"{shown} and {len(values) - _SHOWN_MAX} more"
