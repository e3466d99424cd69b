"""A transaction whose coordinator, partitions and group are on different brokers: it is verified, ended, and fenced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.coordinators import marker_delivery, transaction_verification
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.broker.coordinators.marker_delivery import MarkerOrder
from barnabas.log.append_batches import EndMarker
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch, decode_records, iter_headers
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from tests.unit.broker.api.stand_ins import topic_id
from tests.unit.broker.several_brokers import SeveralBrokers, until
from tests.wire.requests import Topic, error_codes, produce_request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

ID, GROUP, TOPIC = "payments", "readers", "t"
COORDINATOR = 1
PRODUCE_V1, PRODUCE_V2 = 11, 12
END_V1, END_V2 = 4, 5


class Producer:
    """A transactional producer that knows where everything is."""

    def __init__(self, cluster: SeveralBrokers, transactional_id: str = ID) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.coordinator = cluster.client(COORDINATOR)
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    async def init(self) -> None:
        response = await self.coordinator.send(
            m.InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        )
        assert Error(response.error_code) is Error.NONE
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    async def add(self, *partitions: int) -> None:
        request = m.AddPartitionsToTxnRequest
        response = await self.coordinator.send(
            request(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[request.AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions))],
            ),
            3,
        )
        assert set(error_codes(response)) <= {Error.NONE}

    async def add_group(self) -> None:
        response = await self.coordinator.send(
            m.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=GROUP,
            )
        )
        assert Error(response.error_code) is Error.NONE

    async def produce(self, partition: int, leader: int, version: int = PRODUCE_V2) -> Error:
        """One record; its sequence is used up only if it was taken."""
        sequence = self.sequences.get(partition, 0)
        batch = build_batch(
            [Record(value=b"v")],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(Topic(TOPIC, topic_id(TOPIC)), batch, version, partition=partition)
        request.transactional_id = self.transactional_id
        response = await self.cluster.client(leader).send(request, version)
        error = Error(response.responses[0].partition_responses[0].error_code)
        if error is Error.NONE:
            self.sequences[partition] = sequence + 1
        return error

    async def commit_offset(self, leader: int, version: int = 5) -> set[Error]:
        request = m.TxnOffsetCommitRequest
        partition = request.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        response = await self.cluster.client(leader).send(
            request(
                transactional_id=self.transactional_id,
                group_id=GROUP,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[request.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
            ),
            version,
        )
        return {Error(code) for code in error_codes(response)}

    async def end(self, *, commit: bool = True, version: int = END_V2) -> None:
        response = await self.coordinator.send(
            m.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            version,
        )
        assert Error(response.error_code) is Error.NONE
        if version >= END_V2:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()

    async def state(self) -> str:
        response = await self.coordinator.send(m.DescribeTransactionsRequest(transactional_ids=[self.transactional_id]))
        return response.transaction_states[0].transaction_state or ""

    async def is_complete(self) -> bool:
        return (await self.state()).startswith("Complete")


async def events_within(seconds: float, cluster: SeveralBrokers) -> int:
    before = cluster.scheduler.events
    await asyncio.sleep(seconds)
    return cluster.scheduler.events - before


async def committed_offset(cluster: SeveralBrokers, leader: int) -> int:
    request = m.OffsetFetchRequest
    topic = request.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    response = await cluster.client(leader).send(
        request(groups=[request.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])]), 9
    )
    return int(response.groups[0].topics[0].partitions[0].committed_offset)


def markers_in(cluster: SeveralBrokers, broker_id: int, partition: int = 0, topic: str = TOPIC) -> list[bool]:
    """Whether each of them commits."""
    data = cluster.brokers[broker_id].log_bytes(topic, partition)
    markers = []
    for position, header in iter_headers(data):
        if header.is_control:
            (record,) = decode_records(memoryview(data)[position : position + header.size])
            markers.append(decode_key(record.key or b"") is ControlRecordType.COMMIT)
    return markers


def several_brokers(**settings: str) -> SeveralBrokers:
    """The transaction's coordinator is broker 1, the group's is broker 2, and each leads one partition of the topic."""
    cluster = SeveralBrokers(3, **settings)
    cluster.place(TRANSACTIONS_TOPIC, COORDINATOR)
    cluster.place(OFFSETS_TOPIC, 2)
    cluster.place(TOPIC, 1, 2, 3)
    return cluster


def run(scenario: Callable[[SeveralBrokers], Coroutine[Any, Any, None]], **settings: str) -> None:
    cluster = several_brokers(**settings)

    async def settled() -> None:
        await asyncio.sleep(1)
        await scenario(cluster)

    cluster.run(settled())


@pytest.mark.parametrize("commit", [True, False])
def test_partitions_on_other_brokers_join_a_transaction_and_get_its_end(*, commit: bool) -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        for partition in range(3):
            assert await producer.produce(partition, leader=partition + 1) is Error.NONE
        assert await producer.commit_offset(leader=2) == {Error.NONE}
        await producer.end(commit=commit)
        await until(producer.is_complete)
        for partition in range(3):
            assert markers_in(cluster, partition + 1, partition) == [commit]
        assert markers_in(cluster, 2, topic=OFFSETS_TOPIC) == [commit]
        assert await committed_offset(cluster, 2) == (7 if commit else -1)
        assert cluster.brokers[3].hosted(TOPIC, 2).last_stable_offset == 2

    run(scenario)


def test_partitions_that_a_producer_has_added_are_verified_with_the_coordinator_elsewhere() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2, PRODUCE_V1) is Error.TRANSACTION_ABORTABLE
        assert await producer.produce(1, 2, PRODUCE_V1 - 1) is Error.INVALID_TXN_STATE
        await producer.add(1, 2)
        assert await producer.produce(1, 2, PRODUCE_V1) is Error.NONE
        assert await producer.produce(2, 3, PRODUCE_V1) is Error.NONE
        assert await producer.commit_offset(2, version=4) == {Error.TRANSACTION_ABORTABLE}
        await producer.add_group()
        assert await producer.commit_offset(2, version=4) == {Error.NONE}
        await producer.end(version=END_V1)
        await until(producer.is_complete)
        assert await committed_offset(cluster, 2) == 7

    run(scenario)


def test_a_producer_that_was_replaced_learns_so_from_a_leader_elsewhere() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        old, new = Producer(cluster), Producer(cluster)
        await old.init()
        await new.init()
        assert await old.produce(2, 3) is Error.INVALID_PRODUCER_EPOCH
        assert await new.produce(2, 3) is Error.NONE

    run(scenario)


def test_a_coordinator_that_does_not_answer_is_a_reason_to_try_again() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        cluster.network.cut("broker-1", "broker-2")
        assert await producer.produce(1, 2) is Error.NOT_ENOUGH_REPLICAS
        assert await producer.commit_offset(2) == {Error.COORDINATOR_LOAD_IN_PROGRESS}
        cluster.network.heal_all()
        assert await producer.produce(1, 2) is Error.NONE

    run(scenario, request_timeout_ms="2000")


def test_a_coordinator_that_nobody_is_now_is_a_reason_to_try_again() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        cluster.lead(TRANSACTIONS_TOPIC, -1)
        await asyncio.sleep(1)
        assert await producer.produce(1, 2) is Error.NOT_ENOUGH_REPLICAS
        assert await producer.commit_offset(2) == {Error.COORDINATOR_NOT_AVAILABLE}

    run(scenario)


def test_a_coordinator_that_has_just_moved_is_a_reason_to_try_again() -> None:
    """The leader of a partition asks whom its metadata names, who may not know of it yet, or any more."""

    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        cluster.brokers[2].is_following = False
        cluster.place(TRANSACTIONS_TOPIC, 3)
        await asyncio.sleep(1)
        assert await producer.produce(1, 2) is Error.NOT_ENOUGH_REPLICAS
        assert await producer.commit_offset(2) == {Error.NOT_COORDINATOR}

    run(scenario)


def test_what_is_asked_meanwhile_shares_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = watch(monkeypatch, transaction_verification, "send", lambda arguments: len(arguments[1]))

    async def scenario(cluster: SeveralBrokers) -> None:
        producers = [Producer(cluster, f"id-{number}") for number in range(30)]
        await asyncio.gather(*(each.init() for each in producers))
        errors = await asyncio.gather(*(each.produce(1, 2) for each in producers))
        assert set(errors) == {Error.NONE}

    run(scenario)
    assert sum(sizes) == 30
    assert len(sizes) < 15


def test_questions_about_one_transaction_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = watch(monkeypatch, transaction_verification, "send", lambda arguments: len(arguments[1]))

    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        first = producer.produce(1, 2)
        errors = await asyncio.gather(first, *(producer.commit_offset(2) for _ in range(3)))
        assert errors == [Error.NONE, {Error.NONE}, {Error.NONE}, {Error.NONE}]

    run(scenario)
    assert set(sizes) == {1}


def test_markers_that_end_meanwhile_share_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = watch(monkeypatch, marker_delivery, "as_request", lambda arguments: len(arguments[0]))

    async def scenario(cluster: SeveralBrokers) -> None:
        producers = [Producer(cluster, f"id-{number}") for number in range(30)]
        await asyncio.gather(*(each.init() for each in producers))
        assert set(await asyncio.gather(*(each.produce(1, 2) for each in producers))) == {Error.NONE}
        await asyncio.gather(*(each.end() for each in producers))
        for each in producers:
            await until(each.is_complete)
        assert markers_in(cluster, 2, 1) == [True] * 30

    run(scenario)
    assert sum(sizes) == 30
    assert len(sizes) < 15


def test_no_marker_is_left_behind_when_it_comes_just_as_the_last_request_is_answered() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        broker = cluster.brokers[COORDINATOR]
        written: list[int] = []

        def start(number: int) -> None:
            def on_written() -> None:
                written.append(number)
                if number < 10:
                    broker.loop.call_soon(start, number + 1)

            marker = EndMarker(number, 0, coordinator_epoch=0, is_commit=True, transaction_version=1)
            broker.broker._delivery.start(MarkerOrder(ID, marker, ((TOPIC, 1),), lambda: True, on_written))

        broker.loop.call_soon_threadsafe(start, 1)
        await until(lambda: len(written) == 10)

    run(scenario)


def test_a_leader_that_cannot_be_reached_gets_its_marker_when_it_can() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2) is Error.NONE
        assert await producer.produce(2, 3) is Error.NONE
        cluster.network.cut("broker-1", "broker-2")
        await producer.end()
        await asyncio.sleep(60)
        assert await producer.state() == "PrepareCommit"
        assert markers_in(cluster, 3, 2) == [True], "one leader does not wait for another"
        cluster.network.heal_all()
        await until(producer.is_complete)
        assert markers_in(cluster, 2, 1) == [True]
        assert markers_in(cluster, 3, 2) == [True]

    run(scenario, request_timeout_ms="2000")


def test_the_marker_of_a_partition_that_moves_goes_to_its_new_leader() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2) is Error.NONE
        cluster.kill(2)
        await producer.end()
        await asyncio.sleep(5)
        assert await producer.state() == "PrepareCommit"
        cluster.place(TOPIC, 1, 3, 3)
        await until(producer.is_complete)
        assert markers_in(cluster, 3, 1) == [True]

    run(scenario)


def test_a_leader_that_does_not_know_of_itself_yet_is_tried_again() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2) is Error.NONE
        behind = cluster.brokers[3]
        behind.is_following = False
        cluster.place(TOPIC, 1, 3, 3)
        await asyncio.sleep(1)
        await producer.end()
        await asyncio.sleep(1)
        assert await producer.state() == "PrepareCommit"
        behind.is_following = True
        behind.publisher.apply(cluster.log[-1:])
        await until(producer.is_complete)
        assert markers_in(cluster, 3, 1) == [True]

    run(scenario)


def test_a_partition_that_nobody_leads_is_waited_for_without_trying() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2) is Error.NONE
        cluster.lead(TOPIC, 1, -1, 3)
        idle = await events_within(60, cluster)
        await producer.end()
        assert await events_within(60, cluster) < idle + 50
        assert await producer.state() == "PrepareCommit"
        cluster.place(TOPIC, 1, 3, 3)
        begun = cluster.scheduler.now
        await until(producer.is_complete)
        assert cluster.scheduler.now - begun < 0.5

    run(scenario)


def test_a_broker_that_comes_back_at_another_address_gets_the_markers_there() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2) is Error.NONE
        epoch = cluster.brokers[1].image.brokers[2].epoch
        cluster.publish(m.FenceBrokerRecord(id=2, epoch=epoch))
        await asyncio.sleep(1)
        await producer.end()
        await asyncio.sleep(10)
        assert await producer.state() == "PrepareCommit"
        # Broker 3 answers there, and does not lead the partition until the metadata says so.
        endpoint = m.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="broker-3", port=9092)
        cluster.publish(m.RegisterBrokerRecord(broker_id=2, broker_epoch=99, end_points=[endpoint], fenced=False))
        await asyncio.sleep(1)
        assert await producer.state() == "PrepareCommit"
        cluster.place(TOPIC, 1, 3, 3)
        await until(producer.is_complete)
        assert markers_in(cluster, 3, 1) == [True]

    run(scenario)


def test_a_topic_that_is_deleted_while_its_leader_is_away_keeps_no_transaction_open() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2) is Error.NONE
        cluster.network.cut("broker-1", "broker-2")
        await producer.end()
        await asyncio.sleep(5)
        assert await producer.state() == "PrepareCommit"
        cluster.remove(TOPIC)
        await until(producer.is_complete)

    run(scenario, request_timeout_ms="2000")


def test_a_coordinator_that_has_lost_a_transaction_sends_no_more_of_its_markers() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2) is Error.NONE
        cluster.network.cut("broker-1", "broker-2")
        await producer.end()
        await asyncio.sleep(5)
        cluster.place(TRANSACTIONS_TOPIC, 3)
        await asyncio.sleep(5)
        cluster.network.heal_all()
        await asyncio.sleep(60)
        assert markers_in(cluster, 2, 1) == []

    run(scenario, request_timeout_ms="2000")


def test_a_coordinator_of_a_new_epoch_finds_the_decision_and_carries_it_out() -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2) is Error.NONE
        cluster.network.cut("broker-1", "broker-2")
        await producer.end()
        cluster.lead(TRANSACTIONS_TOPIC, -1)
        await asyncio.sleep(5)
        cluster.lead(TRANSACTIONS_TOPIC, COORDINATOR)
        await asyncio.sleep(5)
        assert await producer.state() == "PrepareCommit"
        cluster.network.heal_all()
        await until(producer.is_complete)
        assert markers_in(cluster, 2, 1) == [True]
        assert await producer.produce(1, 2) is Error.NONE, "the next transaction begins"

    run(scenario, request_timeout_ms="2000")


def test_a_coordinator_that_was_replaced_without_knowing_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SeveralBrokers) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.produce(1, 2) is Error.NONE
        assert await producer.produce(2, 3) is Error.NONE
        cluster.brokers[2].hosted(TOPIC, 1).append_marker(
            EndMarker(
                producer.producer_id, producer.epoch + 1, coordinator_epoch=9, is_commit=False, transaction_version=2
            )
        )
        await producer.end()
        await asyncio.sleep(60)
        assert await producer.state() == "PrepareCommit"
        assert markers_in(cluster, 2, 1) == [False]

    run(scenario)
    assert "TRANSACTION_COORDINATOR_FENCED" in caplog.text


def watch(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, note: Callable[[tuple[Any, ...]], int]
) -> list[int]:
    """What is noted of each call of a function."""
    notes: list[int] = []
    function = getattr(module, name)

    def call(*arguments: Any) -> Any:
        notes.append(note(arguments))
        return function(*arguments)

    monkeypatch.setattr(module, name, call)
    return notes
