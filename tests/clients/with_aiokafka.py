"""aiokafka, driven from plain functions by one event loop per consumer or call."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, TypeVar

import aiokafka
import aiokafka.errors
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

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
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    T = TypeVar("T")

_QUICK = {"retry_backoff_ms": 20}
_ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


_PRODUCER_FENCED = 90


def _error(failure: BaseException) -> ClientError:
    if isinstance(failure, aiokafka.errors.ProducerFenced):
        return ClientError(_PRODUCER_FENCED, str(failure))  # of which the library keeps no code
    return ClientError(getattr(failure, "errno", -1), str(failure))


class AiokafkaProducer:
    """Its event loop stands still between the calls."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._runner = asyncio.Runner()
        self._producer = self._runner.run(_started(make))

    def send(self, topic: str, messages: Sequence[Message], partition: int | None = None) -> list[Delivery]:
        try:
            return self._runner.run(self._send(topic, messages, partition))
        except aiokafka.errors.KafkaError as failure:
            raise _error(failure) from failure

    def close(self) -> None:
        try:
            self._runner.run(self._producer.stop())
        finally:
            self._runner.close()

    async def _send(self, topic: str, messages: Sequence[Message], partition: int | None) -> list[Delivery]:
        futures = [
            await self._producer.send(
                topic,
                message.value,
                message.key,
                partition,
                message.timestamp_ms,
                list(message.headers),
            )
            for message in messages
        ]
        async with asyncio.timeout(DEADLINE_S):
            delivered = [await future for future in futures]
        return [Delivery(-1, -1) if d is None else Delivery(d.partition, d.offset) for d in delivered]


async def _started(make: Callable[[], Any]) -> Any:
    """A client has to be made where its event loop runs."""
    client = make()
    await client.start()
    return client


class AiokafkaConsumer:
    def __init__(self, consumer: Any, topic: str, partition: int, start: Start, runner: asyncio.Runner) -> None:
        self._consumer = consumer
        self._runner = runner
        self._assigned = TopicPartition(topic, partition)
        runner.run(self._open(start))

    def __enter__(self) -> AiokafkaConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._consumer.stop())
        finally:
            self._runner.close()

    def receive(self, count: int, deadline_s: float = DEADLINE_S) -> list[Received]:
        return self._runner.run(self._receive(count, deadline_s))

    def seek(self, offset: int) -> None:
        self._consumer.seek(self._assigned, offset)

    async def _open(self, start: Start) -> None:
        await self._consumer.start()
        self._consumer.assign([self._assigned])
        if start == "beginning":
            await self._consumer.seek_to_beginning(self._assigned)
        elif start == "end":
            await self._consumer.seek_to_end(self._assigned)
        else:
            self._consumer.seek(self._assigned, start)

    async def _receive(self, count: int, deadline_s: float) -> list[Received]:
        received: list[Received] = []
        deadline = time.monotonic() + deadline_s
        try:
            while len(received) < count and time.monotonic() < deadline:
                polled = await self._consumer.getmany(timeout_ms=50, max_records=count - len(received))
                received += [_received(record) for records in polled.values() for record in records]
        except aiokafka.errors.KafkaError as failure:
            raise _error(failure) from failure
        return received


class _Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: AiokafkaGroupConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._consumer.assignments.append(_named(assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._consumer.revocations.append(_named(revoked))


class AiokafkaGroupConsumer:
    """Its event loop stands still between the calls, heartbeats included, so that it has to be polled."""

    def __init__(self, make: Callable[[], Any], group: str, topics: Sequence[str]) -> None:
        self._group = group
        self.assignments: list[set[Partition]] = []
        self.revocations: list[set[Partition]] = []
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(_started(make))
        pattern = [topic for topic in topics if topic.startswith("^")]
        wanted = {"pattern": "|".join(pattern)} if pattern else {"topics": list(topics)}
        self._consumer.subscribe(listener=_Listener(self), **wanted)

    def poll(self) -> list[Received]:
        try:
            polled = self._runner.run(self._consumer.getmany(timeout_ms=int(TURN_S * 1000)))
        except aiokafka.errors.KafkaError as failure:
            raise _error(failure) from failure
        return [_received(record) for records in polled.values() for record in records]

    def assigned(self) -> set[Partition]:
        return _named(self._consumer.assignment())

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        wanted = None if offsets is None else {TopicPartition(*of): at for of, at in offsets.items()}
        try:
            self._runner.run(self._consumer.commit(wanted))
        except aiokafka.errors.KafkaError as failure:
            raise _error(failure) from failure

    def committed(self, topic: str, partition: int) -> int | None:
        found: int | None = self._runner.run(self._consumer.committed(TopicPartition(topic, partition)))
        return found

    def group_metadata(self) -> object:
        """The library knows the group alone, so that its producer cannot be fenced for the member."""
        return self._group

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition), offset)

    def pause(self, topic: str, partition: int) -> None:
        self._consumer.pause(TopicPartition(topic, partition))

    def resume(self, topic: str, partition: int) -> None:
        self._consumer.resume(TopicPartition(topic, partition))

    def close(self) -> None:
        try:
            self._runner.run(self._consumer.stop())
        finally:
            self._runner.close()


class AiokafkaTransactionalProducer:
    """Its event loop stands still between the calls."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._runner = asyncio.Runner()
        self._producer = self._call(_started(make))

    def begin(self) -> None:
        self._call(self._producer.begin_transaction())

    def send(self, topic: str, messages: Sequence[Message], partition: int = 0) -> None:
        self._call(self._send(topic, messages, partition))

    def send_offsets(self, offsets: Mapping[Partition, int], group_metadata: object) -> None:
        wanted = {TopicPartition(*of): at for of, at in offsets.items()}
        self._call(self._producer.send_offsets_to_transaction(wanted, group_metadata))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction())

    def abort(self) -> None:
        self._call(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._call(self._producer.stop())
        finally:
            self._runner.close()

    async def _send(self, topic: str, messages: Sequence[Message], partition: int) -> None:
        for future in [await self._producer.send(topic, each.value, each.key, partition) for each in messages]:
            await future

    def _call(self, what: Coroutine[Any, Any, T]) -> T:
        async def in_time() -> T:
            async with asyncio.timeout(DEADLINE_S):
                return await what

        try:
            return self._runner.run(in_time())
        except aiokafka.errors.KafkaError as failure:
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


class AiokafkaClient:
    name = "aiokafka"

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

    def producer(self, options: ProducerOptions = PRODUCER) -> AiokafkaProducer:
        def make() -> Any:
            return aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if options.codec == "none" else options.codec,
                enable_idempotence=options.idempotent,
                linger_ms=options.linger_ms,
                max_request_size=options.max_request_bytes,
                max_batch_size=options.max_request_bytes,
                acks="all" if options.acks == -1 else options.acks,
                request_timeout_ms=options.request_timeout_ms,
                **_QUICK,
            )

        return AiokafkaProducer(make)

    def consumer(
        self, topic: str, start: Start, *, partition: int = 0, options: ConsumerOptions = CONSUMER
    ) -> AiokafkaConsumer:
        runner = asyncio.Runner()

        async def make() -> Any:
            return self._consumer(options)

        return AiokafkaConsumer(runner.run(make()), topic, partition, start, runner)

    def offset_range(self, topic: str, partition: int = 0) -> tuple[int, int]:
        asked = TopicPartition(topic, partition)

        async def ask(consumer: Any) -> tuple[int, int]:
            low = await consumer.beginning_offsets([asked])
            high = await consumer.end_offsets([asked])
            return low[asked], high[asked]

        low, high = asyncio.run(self._with_consumer(ask))
        return low, high

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        asked = TopicPartition(topic, partition)

        async def ask(consumer: Any) -> Any:
            return (await consumer.offsets_for_times({asked: timestamp_ms}))[asked]

        found = asyncio.run(self._with_consumer(ask))
        return None if found is None else found.offset

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, topic_configs=dict(config or {}))
        answer = self._admin("create_topics", [topic])
        for _, code, *message in answer.topic_errors:
            _check(code, message)

    def delete_topic(self, name: str) -> None:
        for _, code, *message in self._admin("delete_topics", [name]).topic_error_codes:
            _check(code, message)

    def add_partitions(self, topic: str, total: int) -> None:
        for _, code, *message in self._admin("create_partitions", {topic: NewPartitions(total)}).topic_errors:
            _check(code, message)

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> int:
        wanted = {TopicPartition(topic, partition): RecordsToDelete(offset)}
        (low_watermark,) = self._admin("delete_records", wanted).values()
        return int(low_watermark)

    def topic_names(self) -> set[str]:
        return set(self._admin("list_topics"))

    def partition_count(self, topic: str) -> int:
        (described,) = self._admin("describe_topics", [topic])
        _check(described["error_code"], [])
        return len(described["partitions"])

    def topic_config(self, topic: str) -> dict[str, str | None]:
        (answer,) = self._admin("describe_configs", [ConfigResource(ConfigResourceType.TOPIC, topic)])
        (resource,) = answer.to_object()["resources"]
        _check(resource["error_code"], [resource["error_message"]])
        return {entry["config_names"]: entry["config_value"] for entry in resource["config_entries"]}

    def alter_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        (answer,) = self._admin("alter_configs", [ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))])
        for code, *message in answer.resources:
            _check(code, message)

    def group_consumer(
        self, group: str, topics: Sequence[str], options: MemberOptions = MEMBER
    ) -> AiokafkaGroupConsumer:
        def make() -> Any:
            return aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                group_id=group,
                client_id=options.client_id,
                group_instance_id=options.instance_id,
                partition_assignment_strategy=[_ASSIGNORS[options.assignor]],
                session_timeout_ms=options.session_timeout_ms,
                max_poll_interval_ms=options.max_poll_interval_ms,
                heartbeat_interval_ms=100,
                enable_auto_commit=options.auto_commit_interval_ms is not None,
                auto_commit_interval_ms=options.auto_commit_interval_ms or 5_000,
                auto_offset_reset="earliest",
                isolation_level=options.isolation,
                fetch_max_wait_ms=100,
                metadata_max_age_ms=500,
                **_QUICK,
            )

        return AiokafkaGroupConsumer(make, group, topics)

    def transactional_producer(self, transactional_id: str, timeout_ms: int = 60_000) -> AiokafkaTransactionalProducer:
        def make() -> Any:
            return aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                **_QUICK,
            )

        return AiokafkaTransactionalProducer(make)

    def group_names(self) -> set[str]:
        return {name for name, *_ in self._admin("list_consumer_groups")}

    def describe_group(self, group: str) -> DescribedGroup:
        (answer,) = self._admin("describe_consumer_groups", [group])
        (described,) = answer.to_object()["groups"]
        _check(described["error_code"], [])
        return DescribedGroup(
            state=described["state"],
            assignor=described["protocol"],
            members={each["member_id"]: _described_member(each) for each in described["members"]},
        )

    def committed_offsets(self, group: str) -> dict[Partition, int]:
        found = self._admin("list_consumer_group_offsets", group)
        return {(of.topic, of.partition): at.offset for of, at in found.items()}

    def _consumer(self, options: ConsumerOptions) -> Any:
        return aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
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

    async def _with_consumer(self, ask: Any) -> Any:
        consumer = self._consumer(CONSUMER)
        await consumer.start()
        try:
            return await ask(consumer)
        finally:
            await consumer.stop()

    def _admin(self, call: str, *arguments: Any) -> Any:
        async def ask() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return await getattr(admin, call)(*arguments)
            except aiokafka.errors.KafkaError as failure:
                raise _error(failure) from failure
            finally:
                await admin.close()

        return asyncio.run(ask())


def _described_member(member: Mapping[str, Any]) -> DescribedMember:
    decoded = ConsumerProtocolMemberAssignment.decode(member["member_assignment"])
    assigned = {(topic, partition) for topic, partitions in decoded.assignment for partition in partitions}
    return DescribedMember(
        member["client_id"], member.get("group_instance_id"), member["client_host"], frozenset(assigned)
    )


def _check(code: int, message: Sequence[Any]) -> None:
    if code:
        raise ClientError(code, str(message[0]) if message else "")
