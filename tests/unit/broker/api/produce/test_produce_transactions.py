"""Produce requests of transactions: what is appended at once, what waits for the coordinator, and what comes of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.broker.api.environments import ProduceEnvironment
from barnabas.broker.api.produce.batch_opener import BatchOpener
from barnabas.broker.api.produce.produce import produce
from barnabas.broker.api.produce.produce_lanes import Lanes
from barnabas.log.append_batches import EndMarker
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.batch import MAGIC_AT
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.headers import parse_response_header
from barnabas.protocol.uuids import Uuid
from barnabas.replication.hosted import HostedPartition
from barnabas.replication.partition import BrokerId, LeaderEpoch, PartitionState
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk
from barnabas.testing.processes import InlineProcesses
from tests.unit.log.logs import create, idempotent, read_records
from tests.unit.net.test_connection import run, until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.log.partition_log import PartitionLog
    from barnabas.net.connection import Slot

TOPIC_ID = Uuid(bytes(range(16)))
PRODUCER = 7
VERSIONS = range(3, 14)
ADDS_FROM, BY_ID_FROM, ABORTABLE_FROM = 12, 13, 11

TopicPartition = tuple[str, int]


class Coordinator:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self.answer: asyncio.Future[Error] = asyncio.get_running_loop().create_future()

    async def check_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition], *, adds: bool
    ) -> dict[TopicPartition, Error]:
        self.asked.append((transactional_id, producer_id, epoch, list(partitions), adds))
        return dict.fromkeys(partitions, await self.answer)


class Wire:
    """Stands for a connection: what the handler does with it is noted."""

    def __init__(self) -> None:
        self.correlation_id = 3
        self.is_closed = False
        self.is_held = False
        self.sent: list[bytes] = []

    def reply_bytes(self, data: bytes) -> None:
        self.sent.append(data)

    def line_up(self, slot: Slot) -> None:
        slot.is_in_line = True

    def slot_filled(self, slot: Slot) -> None:
        self.sent += (bytes(part) for part in slot.parts or () if isinstance(part, bytes))

    def hold(self, frame: memoryview) -> memoryview:
        self.is_held = True
        return memoryview(bytearray(frame))

    def let_go(self) -> None:
        self.is_held = False

    def refuse(self, reason: str) -> None:
        self.is_closed = True

    def close(self) -> None:
        self.is_closed = True


class Desk:
    """A broker with one partition, as far as Produce knows it, or with one under several indexes."""

    def __init__(self, *, verifies: bool = True, indexes: int = 1) -> None:
        self.indexes = indexes
        clock = ManualClock(1_700_000_000_000)
        self.log: PartitionLog = create("", clock, disk=SimulatedDisk(clock))
        state = PartitionState(BrokerId(1), self.log.end_position, self.log.end_position)
        state.follow_metadata(BrokerId(1), LeaderEpoch(0), 0, [BrokerId(1)], [BrokerId(1)])
        self.hosted = HostedPartition("t", TOPIC_ID, 0, state, self.log, SimpleNamespace())  # type: ignore[arg-type]
        self.coordinator = Coordinator()
        self.wire = Wire()
        replicas: Any = SimpleNamespace(
            removals=0,
            find_by_name=self.find,
            find_by_id=self.find,
            hosted_by_name=self.hosted_here,
            hosted_by_id=self.hosted_here,
        )
        config = SimpleNamespace(transaction_partition_verification_enable=verifies)
        unused: Any = None
        self.environment = ProduceEnvironment(
            replicas=replicas,
            lanes=Lanes(replicas),
            transactions=cast("Any", self.coordinator),
            opener=BatchOpener(InlineProcesses(), clock),
            flusher=unused,
            purgatory=unused,
            settings=cast("Any", SimpleNamespace(config=config)),
        )

    def find(self, topic: bytes, index: int) -> HostedPartition:
        if topic not in (b"t", TOPIC_ID) or index >= self.indexes:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        return self.hosted

    def hosted_here(self, topic: bytes) -> dict[int, HostedPartition]:
        return {0: self.hosted} if topic in (b"t", TOPIC_ID) else {}

    def send(self, version: int, *batches: memoryview, transactional_id: str | None = "tx", acks: int = -1) -> None:
        by_id = version >= BY_ID_FROM
        data = m.ProduceRequest.TopicProduceData(
            name="" if by_id else "t",
            topic_id=TOPIC_ID if by_id else Uuid(bytes(16)),
            partition_data=[
                m.ProduceRequest.PartitionProduceData(index=index, records=records)
                for index, records in enumerate(batches)
            ],
        )
        request = m.ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[data])
        frame = bytearray(codec.encode(request, version))
        produce(self.environment, self.wire, version, memoryview(frame), 0)  # type: ignore[arg-type]
        frame[:] = bytes(len(frame))  # As the next request in the shared buffer would do.

    def answers(self, version: int) -> list[tuple[Error, int]]:
        """Error and base offset of each partition in the answers so far."""
        found = []
        for data in self.wire.sent:
            correlation_id, start = parse_response_header(data[4:], 0, version)
            assert correlation_id == 3
            response = codec.decode(m.ProduceResponse, data, version, 4 + start)
            found += [
                (Error(part.error_code), part.base_offset)
                for topic in response.responses
                for part in topic.partition_responses
            ]
        return found

    async def answered(self, error: Error = Error.NONE) -> None:
        self.coordinator.answer.set_result(error)
        await until(lambda: not self.wire.is_held or self.wire.is_closed)

    def end(self, epoch: int = 0) -> None:
        self.hosted.append_marker(EndMarker(PRODUCER, epoch, 0, False, 1))


def transactional(sequence: int, epoch: int = 0, producer_id: int = PRODUCER) -> memoryview:
    return idempotent(producer_id, epoch, sequence, is_transactional=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_batch_waits_for_the_coordinator_and_later_ones_do_not(version: int) -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.send(version, transactional(0))
        await asyncio.sleep(0)
        assert desk.coordinator.asked == [("tx", PRODUCER, 0, [("t", 0)], version >= ADDS_FROM)]
        assert desk.wire.is_held
        assert desk.log.log_end_offset == 0
        await desk.answered()
        desk.send(version, transactional(1))
        assert desk.answers(version) == [(Error.NONE, 0), (Error.NONE, 1)]
        assert len(desk.coordinator.asked) == 1
        assert len(read_records(desk.log)) == 2

    run(scenario)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("error", "told", "told_before"),
    [
        (Error.TRANSACTION_ABORTABLE, Error.TRANSACTION_ABORTABLE, (ABORTABLE_FROM, Error.INVALID_TXN_STATE)),
        (Error.CONCURRENT_TRANSACTIONS, Error.CONCURRENT_TRANSACTIONS, (ADDS_FROM, Error.NOT_ENOUGH_REPLICAS)),
        (Error.NOT_COORDINATOR, Error.NOT_ENOUGH_REPLICAS, None),
        (Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_ENOUGH_REPLICAS, None),
        (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_ENOUGH_REPLICAS, None),
        (Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_EPOCH, None),
        (Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_ID_MAPPING, None),
        (Error.INVALID_TXN_STATE, Error.INVALID_TXN_STATE, None),
    ],
)
def test_what_the_coordinator_refuses_is_told_in_the_words_of_the_version(
    version: int, error: Error, told: Error, told_before: tuple[int, Error] | None
) -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.send(version, transactional(0))
        await desk.answered(error)
        expected = told_before[1] if told_before is not None and version < told_before[0] else told
        assert desk.answers(version) == [(expected, -1)]
        assert desk.log.log_end_offset == 0
        assert not desk.wire.is_held

    run(scenario)


@pytest.mark.parametrize("version", [11, 12])
def test_a_transaction_that_ends_while_the_coordinator_is_asked_takes_no_more_batches(version: int) -> None:
    """A client may write as from version 2 of transactions on, and end as before, with a marker of the same epoch."""

    async def scenario() -> None:
        desk = Desk()
        desk.send(version, transactional(0))
        await asyncio.sleep(0)
        desk.end()
        await desk.answered()
        assert desk.answers(version) == [(Error.INVALID_TXN_STATE, -1)]
        assert desk.log.log_end_offset == 1, "the marker alone"

    run(scenario)


@pytest.mark.parametrize(("version", "is_asked"), [(11, False), (12, True)])
def test_without_verification_only_partitions_that_join_are_brought_to_the_coordinator(
    version: int, is_asked: bool
) -> None:
    async def scenario() -> None:
        desk = Desk(verifies=False)
        desk.send(version, transactional(0))
        await desk.answered()
        assert bool(desk.coordinator.asked) is is_asked
        assert desk.answers(version) == [(Error.NONE, 0)]

    run(scenario)


@pytest.mark.parametrize("version", [11, 12])
def test_an_old_epoch_is_refused_before_anybody_is_asked(version: int) -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.end(epoch=5)
        desk.send(version, transactional(0, epoch=4))
        assert desk.answers(version) == [(Error.INVALID_PRODUCER_EPOCH, -1)]
        assert not desk.coordinator.asked

    run(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transactional_batch_without_a_transactional_id_refuses_its_request(version: int) -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.send(version, idempotent(1, 0, 0), transactional(0), transactional_id=None)
        refusal = (Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
        assert desk.answers(version) == [refusal, refusal]
        desk.send(version, transactional(0), transactional_id=None)
        assert desk.answers(version)[2:] == [refusal]
        assert desk.log.log_end_offset == 0

    run(scenario)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_what_is_no_batch_of_today_is_in_no_transaction(version: int, transactional_id: str | None) -> None:
    async def scenario() -> None:
        desk = Desk()
        old_magic = bytearray(transactional(0))
        old_magic[MAGIC_AT] = 1
        for data in (old_magic, transactional(0)[:40]):
            desk.send(version, memoryview(data), transactional_id=transactional_id)
        assert desk.answers(version) == [(Error.INVALID_RECORD, -1)] * 2
        assert not desk.coordinator.asked

    run(scenario)


def test_one_request_has_batches_of_one_transactional_producer() -> None:
    async def scenario() -> None:
        desk = Desk(indexes=2)
        desk.send(12, transactional(0), transactional(0, producer_id=8))
        assert desk.answers(12) == [(Error.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
        assert not desk.coordinator.asked

    run(scenario)


def test_a_partition_that_does_not_exist_is_refused_beside_one_that_waits() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.send(12, transactional(0), transactional(0))
        await desk.answered()
        assert desk.coordinator.asked[0][3] == [("t", 0)]
        assert desk.answers(12) == [(Error.NONE, 0), (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    run(scenario)


@pytest.mark.parametrize(("error", "is_closed"), [(Error.NONE, False), (Error.INVALID_TXN_STATE, True)])
def test_with_acks_0_nothing_is_answered_and_a_refusal_closes_the_connection(error: Error, is_closed: bool) -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.send(12, transactional(0), acks=0)
        await desk.answered(error)
        assert desk.wire.sent == []
        assert desk.wire.is_closed is is_closed
        assert desk.log.log_end_offset == (0 if is_closed else 1)

    run(scenario)


def test_a_client_that_leaves_meanwhile_has_written_nothing() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.send(12, transactional(0))
        await asyncio.sleep(0)
        desk.wire.is_closed = True
        desk.coordinator.answer.set_result(Error.NONE)
        for _ in range(5):
            await asyncio.sleep(0)
        assert desk.log.log_end_offset == 0

    run(scenario)


def test_a_failure_in_the_node_while_the_coordinator_is_asked_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.send(12, transactional(0))
        desk.coordinator.answer.set_exception(RuntimeError("not foreseen"))
        await until(lambda: desk.wire.is_closed)
        assert desk.log.log_end_offset == 0

    run(scenario)
    assert "not foreseen" in caplog.text
