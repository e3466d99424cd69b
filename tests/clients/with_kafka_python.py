"""kafka-python."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import kafka
import kafka.errors
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.net.inet import KafkaNetSocket
from kafka.structs import OffsetAndMetadata

from tests.clients.adapter import (
    CONSUMER,
    DEADLINE_S,
    MEMBER,
    PRODUCER,
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
    import socket
    from collections.abc import Callable, Iterable, Mapping, Sequence

_QUICK = {
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 20,
    "proxy_url": "closing://",
}
_POLL_MS = 500
_JOIN_MS = 5000
"""How long a poll lasts at least if the member joins its group in it. The answer to a join that comes between two polls
is lost: either the member joins once more, which is a rebalance for the others, or it thinks it has joined and falls
silent."""
_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class _ClosingSocket(KafkaNetSocket):  # type: ignore[misc]
    """There is no proxy. By itself, the library does not close a socket that it could not connect."""

    SCHEMES = ("closing",)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


def _error(failure: BaseException) -> ClientError:
    return ClientError(getattr(failure, "errno", -1), str(failure))


class KafkaPythonProducer:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def send(self, topic: str, messages: Sequence[Message], partition: int | None = None) -> list[Delivery]:
        try:
            futures = [
                self._producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            self._producer.flush(DEADLINE_S)
            delivered = [future.get(DEADLINE_S) for future in futures]
        except kafka.errors.KafkaError as failure:
            raise _error(failure) from failure
        return [Delivery(metadata.partition, metadata.offset) for metadata in delivered]

    def close(self) -> None:
        self._producer.close(DEADLINE_S)


class KafkaPythonConsumer:
    def __init__(self, consumer: Any, topic: str, partition: int, start: Start) -> None:
        self._consumer = consumer
        self._assigned = TopicPartition(topic, partition)
        consumer.assign([self._assigned])
        if start == "beginning":
            consumer.seek_to_beginning(self._assigned)
        elif start == "end":
            consumer.seek_to_end(self._assigned)
        else:
            consumer.seek(self._assigned, start)

    def __enter__(self) -> KafkaPythonConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def receive(self, count: int, deadline_s: float = DEADLINE_S) -> list[Received]:
        received: list[Received] = []
        deadline = time.monotonic() + deadline_s
        try:
            while len(received) < count and time.monotonic() < deadline:
                polled = self._consumer.poll(50, max_records=count - len(received))
                received += [_received(record) for records in polled.values() for record in records]
        except kafka.errors.KafkaError as failure:
            raise _error(failure) from failure
        return received

    def seek(self, offset: int) -> None:
        self._consumer.seek(self._assigned, offset)


class _Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: KafkaPythonGroupConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._consumer.assignments.append(_named(assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._consumer.revocations.append(_named(revoked))


class KafkaPythonGroupConsumer:
    """Heartbeats go out by themselves, everything else while it is polled."""

    def __init__(self, consumer: Any, topics: Sequence[str]) -> None:
        self.assignments: list[set[Partition]] = []
        self.revocations: list[set[Partition]] = []
        self._consumer = consumer
        coordinator = consumer._coordinator
        ensure_active_group = coordinator.ensure_active_group
        coordinator.ensure_active_group = lambda timeout_ms: ensure_active_group(max(timeout_ms, _JOIN_MS))
        pattern = [topic for topic in topics if topic.startswith("^")]
        wanted = {"pattern": "|".join(pattern)} if pattern else {"topics": list(topics)}
        for topic in wanted.get("topics", ()):
            consumer.partitions_for_topic(topic)  # a leader that does not know a topic yet assigns nothing of it
        consumer.subscribe(listener=_Listener(self), **wanted)

    def poll(self) -> list[Received]:
        try:
            polled = self._consumer.poll(_POLL_MS)
        except kafka.errors.KafkaError as failure:
            raise _error(failure) from failure
        return [_received(record) for records in polled.values() for record in records]

    def assigned(self) -> set[Partition]:
        return _named(self._consumer.assignment())

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        wanted = None
        if offsets is not None:
            wanted = {TopicPartition(*of): OffsetAndMetadata(at, "", -1) for of, at in offsets.items()}
        try:
            self._consumer.commit(wanted, DEADLINE_S * 1000)
        except kafka.errors.KafkaError as failure:
            raise _error(failure) from failure

    def committed(self, topic: str, partition: int) -> int | None:
        found: int | None = self._consumer.committed(TopicPartition(topic, partition))
        return found

    def group_metadata(self) -> object:
        metadata: object = self._consumer.group_metadata()
        return metadata

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition), offset)

    def pause(self, topic: str, partition: int) -> None:
        self._consumer.pause(TopicPartition(topic, partition))

    def resume(self, topic: str, partition: int) -> None:
        self._consumer.resume(TopicPartition(topic, partition))

    def close(self) -> None:
        self._consumer.close(timeout_ms=DEADLINE_S * 1000)


class KafkaPythonTransactionalProducer:
    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._call(producer.init_transactions)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, messages: Sequence[Message], partition: int = 0) -> None:
        futures = [self._call(self._producer.send, topic, each.value, each.key, None, partition) for each in messages]
        self._call(self._producer.flush, DEADLINE_S)
        for future in futures:
            self._call(future.get, DEADLINE_S)

    def send_offsets(self, offsets: Mapping[Partition, int], group_metadata: object) -> None:
        wanted = {TopicPartition(*of): OffsetAndMetadata(at, "", -1) for of, at in offsets.items()}
        self._call(self._producer.send_offsets_to_transaction, wanted, group_metadata)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(0)

    def _call(self, what: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return what(*arguments)
        except kafka.errors.KafkaError as failure:
            raise _error(failure) from failure


def _named(partitions: Iterable[TopicPartition]) -> set[Partition]:
    return {(each.topic, each.partition) for each in partitions}


def _received(record: Any) -> Received:
    return Received(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type=record.timestamp_type,
    )


class KafkaPythonClient:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int | None = None,
        options: ProducerOptions = PRODUCER,
    ) -> list[Delivery]:
        with contextlib.closing(self.producer(options)) as producer:
            return producer.send(topic, messages, partition)

    def producer(self, options: ProducerOptions = PRODUCER) -> KafkaPythonProducer:
        return KafkaPythonProducer(
            kafka.KafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks=options.acks,
                compression_type=None if options.codec == "none" else options.codec,
                enable_idempotence=options.idempotent,
                linger_ms=options.linger_ms,
                max_request_size=options.max_request_bytes,
                request_timeout_ms=options.request_timeout_ms,
                delivery_timeout_ms=options.delivery_timeout_ms,
                retries=options.retries,
                **_QUICK,
            )
        )

    def consumer(
        self, topic: str, start: Start, *, partition: int = 0, options: ConsumerOptions = CONSUMER
    ) -> KafkaPythonConsumer:
        return KafkaPythonConsumer(self._consumer(options), topic, partition, start)

    def offset_range(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer(CONSUMER)
        asked = TopicPartition(topic, partition)
        try:
            return consumer.beginning_offsets([asked])[asked], consumer.end_offsets([asked])[asked]
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = self._consumer(CONSUMER)
        asked = TopicPartition(topic, partition)
        try:
            found = consumer.offsets_for_times({asked: timestamp_ms})[asked]
        finally:
            consumer.close()
        return None if found is None else found.offset

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        topic = {"num_partitions": partitions, "replication_factor": replication_factor, "configs": dict(config or {})}
        answer = self._admin("create_topics", {name: topic}, raise_errors=False)
        _check(answer["topics"])

    def delete_topic(self, name: str) -> None:
        _check(self._admin("delete_topics", [name], raise_errors=False)["topics"])

    def add_partitions(self, topic: str, total: int) -> None:
        answer = self._admin("create_partitions", {topic: total}, raise_errors=False)
        _check([result.to_dict() for result in answer.results])

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> int:
        (deleted,) = self._admin("delete_records", {TopicPartition(topic, partition): offset}).values()
        return int(deleted["low_watermark"])

    def topic_names(self) -> set[str]:
        return set(self._admin("list_topics"))

    def partition_count(self, topic: str) -> int:
        described = self._admin("describe_topics", [topic])
        _check(described)
        return len(described[0]["partitions"])

    def topic_config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        config = self._admin("describe_configs", [resource], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in config.items()}

    def alter_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))
        outcome = self._admin("alter_configs", [resource], raise_on_unknown=False)["topic"][topic]
        if outcome != "OK":
            raise _told(outcome)

    def group_consumer(
        self, group: str, topics: Sequence[str], options: MemberOptions = MEMBER
    ) -> KafkaPythonGroupConsumer:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            client_id=options.client_id,
            group_instance_id=options.instance_id,
            partition_assignment_strategy=[_ASSIGNORS[options.assignor]],
            session_timeout_ms=options.session_timeout_ms,
            max_poll_interval_ms=options.max_poll_interval_ms,
            heartbeat_interval_ms=300,
            enable_auto_commit=options.auto_commit_interval_ms is not None,
            auto_commit_interval_ms=options.auto_commit_interval_ms or 5_000,
            auto_offset_reset="earliest",
            isolation_level=options.isolation,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=500,
            **_QUICK,
        )
        return KafkaPythonGroupConsumer(consumer, topics)

    def transactional_producer(
        self, transactional_id: str, timeout_ms: int = 60_000
    ) -> KafkaPythonTransactionalProducer:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            enable_idempotence=True,
            max_block_ms=DEADLINE_S * 1000,
            **_QUICK,
        )
        return KafkaPythonTransactionalProducer(producer)

    def group_names(self) -> set[str]:
        return {each["group_id"] for each in self._admin("list_groups")}

    def describe_group(self, group: str) -> DescribedGroup:
        described = self._admin("describe_groups", [group])[group]
        if described["error"] is not None:
            raise _told(described["error"])
        return DescribedGroup(
            state=described["group_state"],
            assignor=described["protocol_data"],
            members={each["member_id"]: _described_member(each) for each in described["members"]},
        )

    def committed_offsets(self, group: str) -> dict[Partition, int]:
        found = self._admin("list_group_offsets", {group: None})[group]
        return {(of.topic, of.partition): at.offset for of, at in found.items()}

    def delete_group(self, group: str) -> None:
        _refuse(self._admin("delete_groups", [group]))

    def alter_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        wanted = {TopicPartition(*of): OffsetAndMetadata(at, "", -1) for of, at in offsets.items()}
        _refuse(self._admin("alter_group_offsets", group, wanted))

    def delete_offsets(self, group: str, partitions: Iterable[Partition]) -> None:
        _refuse(self._admin("delete_group_offsets", group, [TopicPartition(*each) for each in partitions]))

    def _consumer(self, options: ConsumerOptions) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,  # with a group, even poll() of partitions assigned by hand waits for a coordinator
            enable_auto_commit=False,
            fetch_min_bytes=options.fetch_min_bytes,
            fetch_max_wait_ms=options.fetch_max_wait_ms,
            fetch_max_bytes=options.fetch_max_bytes,
            max_partition_fetch_bytes=options.max_partition_bytes,
            auto_offset_reset="none" if options.out_of_range == "error" else options.out_of_range,
            isolation_level=options.isolation,
            client_rack=options.rack,
            metadata_max_age_ms=1000,
            **_QUICK,
        )

    def _admin(self, call: str, *arguments: Any, **options: Any) -> Any:
        admin = kafka.KafkaAdminClient(bootstrap_servers=self._bootstrap, **_QUICK)
        try:
            return getattr(admin, call)(*arguments, **options)
        except kafka.errors.KafkaError as failure:
            raise _error(failure) from failure
        finally:
            admin.close()


def _check(results: Sequence[Mapping[str, Any]]) -> None:
    for result in results:
        if result["error_code"]:
            raise ClientError(result["error_code"], result.get("error_message") or "")


def _refuse(errors: Mapping[Any, Any]) -> None:
    """The library gives an error as its class, or as the name of that."""
    for outcome in errors.values():
        error = getattr(kafka.errors, outcome, kafka.errors.NoError) if isinstance(outcome, str) else outcome
        if error.errno:
            raise ClientError(error.errno, error.__name__)


def _told(error: str) -> ClientError:
    """An error of which the library gives the text alone."""
    return ClientError(int(error.removeprefix("[Error ").partition("]")[0]), error)


def _described_member(member: Mapping[str, Any]) -> DescribedMember:
    assigned = {
        (each["topic"], partition)
        for each in member["member_assignment"]["assigned_partitions"]
        for partition in each["partitions"]
    }
    return DescribedMember(
        member["client_id"], member.get("group_instance_id"), member["client_host"], frozenset(assigned)
    )
