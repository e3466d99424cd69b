"""librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.clients.adapter import (
    CONSUMER,
    DEADLINE_S,
    MEMBER,
    PRODUCER,
    TURN_S,
    ClientError,
    ConsumerOptions,
    Delivery,
    DescribedGroup,
    DescribedMember,
    MemberOptions,
    Message,
    ProducerOptions,
    Received,
    Start,
)
from tests.clients.adapter import TopicPartition as Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

POLLED_MAX = 10_000
ADMIN_REQUEST_MS = 20_000
"""Less than a test waits, so that a request for a node that is gone, and that was not sent yet, fails and is not
just late."""
_SOCKET_SLACK_MS = 1_000
"""A node answers a produce that timed out there; the connection should not be given up just before."""
_START = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}
_QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}


def producer_config(bootstrap: str, options: ProducerOptions) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "acks": options.acks,
        "compression.type": options.codec,
        "enable.idempotence": options.idempotent,
        "linger.ms": options.linger_ms,
        "message.max.bytes": options.max_request_bytes,
        "request.timeout.ms": options.request_timeout_ms,
        "socket.timeout.ms": options.request_timeout_ms + _SOCKET_SLACK_MS,
        "message.timeout.ms": options.delivery_timeout_ms,
        "message.send.max.retries": options.retries,
        "topic.metadata.refresh.interval.ms": 1000,
        **_QUICK,
    }


def consumer_config(bootstrap: str, options: ConsumerOptions) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "assigned-by-hand",
        "enable.auto.commit": False,
        "fetch.min.bytes": options.fetch_min_bytes,
        "fetch.wait.max.ms": options.fetch_max_wait_ms,
        "fetch.max.bytes": options.fetch_max_bytes,
        "message.max.bytes": min(1_000_000, options.fetch_max_bytes),  # librdkafka wants it not above fetch.max.bytes
        "max.partition.fetch.bytes": options.max_partition_bytes,
        "auto.offset.reset": options.out_of_range,
        "isolation.level": options.isolation,
        "client.rack": options.rack,
        "topic.metadata.refresh.interval.ms": 1000,
        **_QUICK,
    }


def _raise(error: Any) -> None:
    raise ClientError(error.code(), error.str())


def _error(failure: KafkaException) -> ClientError:
    return ClientError(failure.args[0].code(), failure.args[0].str())


class ConfluentProducer:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(dict(config))

    def send(self, topic: str, messages: Sequence[Message], partition: int | None = None) -> list[Delivery]:
        outcomes: dict[int, Any] = {}

        def noting(number: int) -> Callable[[Any, Any], None]:
            return lambda error, delivered: outcomes.__setitem__(number, error or delivered)

        for number, message in enumerate(messages):
            extra: dict[str, Any] = {}
            if partition is not None:
                extra["partition"] = partition
            if message.timestamp_ms is not None:
                extra["timestamp"] = message.timestamp_ms
            try:
                self._producer.produce(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers),
                    on_delivery=noting(number),
                    **extra,
                )
            except KafkaException as failure:
                _raise(failure.args[0])
            self._producer.poll(0)
        unsent = self._producer.flush(DEADLINE_S)
        assert unsent == 0, f"{unsent} messages were neither delivered nor failed"
        for outcome in outcomes.values():
            if isinstance(outcome, confluent_kafka.KafkaError):
                _raise(outcome)
        return [Delivery(m.partition(), -1 if m.offset() is None else m.offset()) for _, m in sorted(outcomes.items())]

    def close(self) -> None:
        self._producer.purge()


class ConfluentConsumer:
    def __init__(self, consumer: confluent_kafka.Consumer, topic: str, partition: int, start: Start) -> None:
        self._consumer = consumer
        self._topic = topic
        self._partition = partition
        offset = start if isinstance(start, int) else _START[start]
        consumer.assign([TopicPartition(topic, partition, offset)])

    def __enter__(self) -> ConfluentConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def receive(self, count: int, deadline_s: float = DEADLINE_S) -> list[Received]:
        received: list[Received] = []
        deadline = time.monotonic() + deadline_s
        while len(received) < count and time.monotonic() < deadline:
            for message in self._consumer.consume(min(count - len(received), POLLED_MAX), 0.05):
                if message.error():
                    _raise(message.error())
                received.append(_received(message))
        return received

    def seek(self, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, self._partition, offset))


class ConfluentGroupConsumer:
    """librdkafka's background thread answers heartbeats and joins; only the callbacks wait for `poll`."""

    def __init__(self, config: Mapping[str, Any], topics: Sequence[str]) -> None:
        self.assignments: list[set[Partition]] = []
        self.revocations: list[set[Partition]] = []
        self.bare = confluent_kafka.Consumer(dict(config))
        self.bare.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self.assignments.append(_named(partitions)),
            on_revoke=lambda _, partitions: self.revocations.append(_named(partitions)),
        )

    def poll(self) -> list[Received]:
        messages = self.bare.consume(POLLED_MAX, TURN_S)
        for message in messages:
            if message.error():
                _raise(message.error())
        return [_received(message) for message in messages]

    def assigned(self) -> set[Partition]:
        return _named(self.bare.assignment())

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        wanted = {} if offsets is None else {"offsets": [TopicPartition(*of, at) for of, at in offsets.items()]}
        try:
            results = self.bare.commit(asynchronous=False, **wanted)
        except KafkaException as failure:
            raise _error(failure) from failure
        for result in results:
            if result.error is not None:
                _raise(result.error)

    def committed(self, topic: str, partition: int) -> int | None:
        (found,) = self.bare.committed([TopicPartition(topic, partition)], DEADLINE_S)
        if found.error is not None:
            _raise(found.error)
        return None if found.offset < 0 else found.offset

    def group_metadata(self) -> object:
        return self.bare.consumer_group_metadata()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.bare.seek(TopicPartition(topic, partition, offset))

    def pause(self, topic: str, partition: int) -> None:
        self.bare.pause([TopicPartition(topic, partition)])

    def resume(self, topic: str, partition: int) -> None:
        self.bare.resume([TopicPartition(topic, partition)])

    def close(self) -> None:
        self.bare.close()


class ConfluentTransactionalProducer:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self.bare = confluent_kafka.Producer(dict(config))
        self._call(self.bare.init_transactions, DEADLINE_S)

    def begin(self) -> None:
        self._call(self.bare.begin_transaction)

    def send(self, topic: str, messages: Sequence[Message], partition: int = 0) -> None:
        errors: list[Any] = []
        for message in messages:
            self._call(
                self.bare.produce,
                topic,
                message.value,
                message.key,
                partition,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        unsent = self._call(self.bare.flush, DEADLINE_S)
        assert unsent == 0, f"{unsent} messages were neither delivered nor failed"
        for error in errors:
            _raise(error)

    def send_offsets(self, offsets: Mapping[Partition, int], group_metadata: object) -> None:
        wanted = [TopicPartition(*of, at) for of, at in offsets.items()]
        self._call(self.bare.send_offsets_to_transaction, wanted, group_metadata, DEADLINE_S)

    def commit(self) -> None:
        self._call(self.bare.commit_transaction, DEADLINE_S)

    def abort(self) -> None:
        self._call(self.bare.abort_transaction, DEADLINE_S)

    def close(self) -> None:
        self.bare.purge()

    def _call(self, what: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return what(*arguments, **named)
        except SystemError as failure:
            # A fatal error that comes while a delivery report is handed over is raised inside of that.
            if not isinstance(failure.__cause__, KafkaException):
                raise
            raise _error(failure.__cause__) from failure
        except KafkaException as failure:
            raise _error(failure) from failure


def _named(partitions: Iterable[TopicPartition]) -> set[Partition]:
    return {(each.topic, each.partition) for each in partitions}


def member_config(bootstrap: str, group: str, options: MemberOptions) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": options.client_id,
        "group.protocol": options.protocol,
        "max.poll.interval.ms": options.max_poll_interval_ms,
        "enable.auto.commit": options.auto_commit_interval_ms is not None,
        "auto.offset.reset": "earliest",
        "isolation.level": options.isolation,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 500,
        **_QUICK,
    }
    if options.protocol == "classic":
        config |= {
            "partition.assignment.strategy": options.assignor,
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": 100,
        }
    if options.remote_assignor is not None:
        config["group.remote.assignor"] = options.remote_assignor
    if options.auto_commit_interval_ms is not None:
        config["auto.commit.interval.ms"] = options.auto_commit_interval_ms
    if options.instance_id is not None:
        config["group.instance.id"] = options.instance_id
    return config


def _received(message: Any) -> Received:
    kind, timestamp_ms = message.timestamp()
    return Received(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=timestamp_ms,
        timestamp_type=kind - confluent_kafka.TIMESTAMP_CREATE_TIME,
    )


class ConfluentClient:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin_client: AdminClient | None = None

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int | None = None,
        options: ProducerOptions = PRODUCER,
    ) -> list[Delivery]:
        return self.producer(options).send(topic, messages, partition)

    def producer(self, options: ProducerOptions = PRODUCER) -> ConfluentProducer:
        return ConfluentProducer(producer_config(self._bootstrap, options) | {"partitioner": "murmur2_random"})

    def bare_producer(self, config: Mapping[str, Any]) -> confluent_kafka.Producer:
        """librdkafka's own producer, for a test that watches single deliveries."""
        return confluent_kafka.Producer({"bootstrap.servers": self._bootstrap, **_QUICK, **config})

    def consumer(
        self, topic: str, start: Start, *, partition: int = 0, options: ConsumerOptions = CONSUMER
    ) -> ConfluentConsumer:
        consumer = confluent_kafka.Consumer(consumer_config(self._bootstrap, options))
        return ConfluentConsumer(consumer, topic, partition, start)

    def offset_range(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = confluent_kafka.Consumer(consumer_config(self._bootstrap, CONSUMER))
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_S)
        finally:
            consumer.close()
        return low, high

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = confluent_kafka.Consumer(consumer_config(self._bootstrap, CONSUMER))
        try:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], DEADLINE_S)
        finally:
            consumer.close()
        return None if found.offset < 0 else found.offset

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        _await(self._admin().create_topics([topic]).values())

    def delete_topic(self, name: str) -> None:
        _await(self._admin().delete_topics([name]).values())

    def add_partitions(self, topic: str, total: int) -> None:
        _await(self._admin().create_partitions([NewPartitions(topic, total)]).values())

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> int:
        (deleted,) = _await(self._admin().delete_records([TopicPartition(topic, partition, offset)]).values())
        return int(deleted.low_watermark)

    def topic_names(self) -> set[str]:
        return set(self._admin().list_topics(timeout=DEADLINE_S).topics)

    def partition_count(self, topic: str) -> int:
        described = self._admin().list_topics(topic, timeout=DEADLINE_S).topics[topic]
        if described.error is not None:
            _raise(described.error)
        return len(described.partitions)

    def metadata_error(self, topic: str) -> int:
        """The error code in the metadata of one topic."""
        error = self._admin().list_topics(topic, timeout=DEADLINE_S).topics[topic].error
        return 0 if error is None else error.code()

    def topic_config(self, topic: str) -> dict[str, str | None]:
        (config,) = _await(self._admin().describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values())
        return {name: entry.value for name, entry in config.items()}

    def alter_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _await(self._admin().incremental_alter_configs([resource]).values())

    def group_consumer(
        self, group: str, topics: Sequence[str], options: MemberOptions = MEMBER
    ) -> ConfluentGroupConsumer:
        return ConfluentGroupConsumer(member_config(self._bootstrap, group, options), topics)

    def transactional_producer(self, transactional_id: str, timeout_ms: int = 60_000) -> ConfluentTransactionalProducer:
        config = producer_config(self._bootstrap, PRODUCER) | {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            # librdkafka wants neither above it
            "message.timeout.ms": min(timeout_ms, PRODUCER.delivery_timeout_ms),
            "socket.timeout.ms": min(timeout_ms, PRODUCER.request_timeout_ms),
            "request.timeout.ms": min(timeout_ms, PRODUCER.request_timeout_ms),
            "enable.idempotence": True,
        }
        return ConfluentTransactionalProducer(config)

    def group_names(self) -> set[str]:
        (listed,) = _await([self._admin().list_consumer_groups()])
        assert listed.errors == []
        return {each.group_id for each in listed.valid}

    def describe_group(self, group: str) -> DescribedGroup:
        (described,) = _await(self._admin().describe_consumer_groups([group]).values())
        return DescribedGroup(
            state=described.state.name.title().replace("_", ""),
            assignor=described.partition_assignor,
            members={
                each.member_id: DescribedMember(
                    each.client_id,
                    each.group_instance_id,
                    each.host,
                    frozenset(_named(each.assignment.topic_partitions)),
                )
                for each in described.members
            },
        )

    def committed_offsets(self, group: str) -> dict[Partition, int]:
        wanted = ConsumerGroupTopicPartitions(group)
        (found,) = _await(self._admin().list_consumer_group_offsets([wanted]).values())
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions}

    def delete_group(self, group: str) -> None:
        _await(self._admin().delete_consumer_groups([group]).values())

    def alter_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*of, at) for of, at in offsets.items()])
        (altered,) = _await(self._admin().alter_consumer_group_offsets([wanted]).values())
        for each in altered.topic_partitions:
            if each.error is not None:
                _raise(each.error)

    def _admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = AdminClient(
                {"bootstrap.servers": self._bootstrap, "socket.timeout.ms": ADMIN_REQUEST_MS, **_QUICK}
            )
        return self._admin_client


def _await(futures: Iterable[Any]) -> list[Any]:
    try:
        return [future.result(DEADLINE_S) for future in futures]
    except KafkaException as failure:
        raise _error(failure) from failure
