"""The coordinator tells leaders of partitions what belongs to a transaction, and ends what takes too long."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.coordinator_spec import TRANSACTIONS_TOPIC, partition_of
from barnabas.coordination.effects import Producer, ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from barnabas.transactions import transaction_records
from barnabas.transactions.transaction import EPOCH_MAX, TransactionState
from tests.unit.broker.api.stand_ins import NODE_ID
from tests.unit.broker.coordinators.group_household import PARTITIONS, TOPIC, until
from tests.unit.broker.coordinators.transaction_household import (
    END_V2,
    ID,
    Marker,
    Place,
    TransactionHousehold,
    transaction_household,
)

if TYPE_CHECKING:
    from pathlib import Path

ANOTHER_NODE = 2
T0, T1 = (TOPIC, 0), (TOPIC, 1)


async def check(
    house: TransactionHousehold, producer: Producer, *, adds: bool = False, transactional_id: str = ID
) -> Error:
    """What is said of the first partition."""
    errors = await house.verification.check_partitions(
        transactional_id, producer.producer_id, producer.epoch, [T0], adds=adds
    )
    return errors[T0]


def test_a_partition_is_in_the_transaction_that_it_was_added_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            assert await check(house, producer) is Error.TRANSACTION_ABORTABLE
            await house.add(producer, T0)
            assert await check(house, producer) is Error.NONE
            await house.end(producer)
            assert await check(house, producer) is Error.TRANSACTION_ABORTABLE

    asyncio.run(scenario())


def test_a_partition_joins_a_transaction_of_version_2_when_its_leader_asks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            assert await check(house, producer, adds=True) is Error.NONE
            assert await house.state() == "Ongoing"
            assert await check(house, producer) is Error.NONE

    asyncio.run(scenario())


def test_leaders_are_told_of_fenced_producers_in_the_words_of_producers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            old = await house.init()
            await house.init()
            assert await check(house, old) is Error.INVALID_PRODUCER_EPOCH
            assert await check(house, old, adds=True) is Error.INVALID_PRODUCER_EPOCH
            stranger = Producer(ProducerId(77), 0)
            assert await check(house, stranger) is Error.INVALID_PRODUCER_ID_MAPPING
            assert await check(house, stranger, transactional_id="") is Error.INVALID_REQUEST

    asyncio.run(scenario())


def test_a_partition_joins_once_the_transaction_before_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {
            "add_partitions_to_txn_retry_backoff_ms": "1",
            "add_partitions_to_txn_retry_backoff_max_ms": "10000",
        }
        async with transaction_household(tmp_path, **settings) as house:
            producer = await house.init()
            await house.add(producer, T1)
            await house.place(TOPIC, Place(2, ANOTHER_NODE, (NODE_ID, ANOTHER_NODE)))
            answer = await house.end(producer, version=END_V2)
            raised = Producer(ProducerId(answer.producer_id), answer.producer_epoch)
            checking = asyncio.ensure_future(check(house, raised, adds=True))
            _, waiting = await asyncio.wait([checking], timeout=0.05)
            assert waiting == {checking}
            await house.place(TOPIC, Place(3))
            assert await checking is Error.NONE

    asyncio.run(scenario())


def test_a_transaction_that_is_not_over_in_time_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T1)
            await house.place(TOPIC, Place(2, ANOTHER_NODE, (NODE_ID, ANOTHER_NODE)))
            answer = await house.end(producer, version=END_V2)
            raised = Producer(ProducerId(answer.producer_id), answer.producer_epoch)
            assert await check(house, raised, adds=True) is Error.CONCURRENT_TRANSACTIONS

    asyncio.run(scenario())


def test_a_coordinator_that_cannot_be_reached_is_not_available(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.place(TRANSACTIONS_TOPIC, Place(2, ANOTHER_NODE, (NODE_ID, ANOTHER_NODE)))
            assert await check(house, producer) is Error.COORDINATOR_NOT_AVAILABLE
            assert await check(house, producer, adds=True) is Error.COORDINATOR_NOT_AVAILABLE

    asyncio.run(scenario())


QUICK = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "20"}


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path, **QUICK) as house:
            producer = await house.init(timeout_ms=10)
            await house.add(producer, T0)
            house.write(producer)
            await until(partial(house.is_in_state, "CompleteAbort"))
            assert house.markers_in() == [Marker(1, False, producer.epoch + 1)]
            assert await check(house, producer) is Error.INVALID_PRODUCER_EPOCH

    asyncio.run(scenario())


def test_an_abort_for_which_no_epoch_is_left_comes_with_a_new_producer_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path, **QUICK) as house:
            put_ongoing(house, epoch=EPOCH_MAX - 1)
            await house.place(TRANSACTIONS_TOPIC, Place(2))
            await house.loaded()
            await until(partial(house.is_in_state, "CompleteAbort"))
            (described,) = await house.transactions.read(ID, lambda shard: shard.describe_transactions([ID]))
            assert (described.producer_id, described.producer_epoch) == (1000, 0)
            assert [marker.producer_epoch for marker in house.markers_in()] == [EPOCH_MAX]

    asyncio.run(scenario())


def test_the_log_of_transactions_is_written_as_by_kafka(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            await house.init()
            (batch,) = house.batches(TRANSACTIONS_TOPIC, partition_of(ID, PARTITIONS))
            assert (batch.producer_id, batch.base_sequence, batch.is_transactional) == (-1, -1, False)

    asyncio.run(scenario())


def put_ongoing(house: TransactionHousehold, epoch: int) -> None:
    """Writes a transaction that has timed out already to the log, as if it had been there before."""
    value = m.TransactionLogValue(
        producer_id=7,
        producer_epoch=epoch,
        transaction_timeout_ms=1,
        transaction_status=TransactionState.ONGOING,
        transaction_partitions=[m.TransactionLogValue.PartitionsSchema(topic=TOPIC, partition_ids=[0])],
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
        client_transaction_version=2,
    )
    key, encoded = transaction_records.encode(transaction_records.transaction(ID, value))
    batch = build_batch([Record(key=key, value=encoded, timestamp=house.clock.now_ms())])
    hosted = house.hosted(TRANSACTIONS_TOPIC, partition_of(ID, PARTITIONS))
    hosted.append_as_coordinator(bytearray(batch))
