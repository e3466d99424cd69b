"""What a transaction has decided reaches each of its partitions, and no later transaction."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.coordinators import marker_delivery
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from barnabas.broker.coordinators.transaction_markers import MarkerWrite
from barnabas.log.append_batches import EndMarker
from barnabas.metadata.image import ConfigResource, ResourceType
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.hosted import HostedPartition
from barnabas.transactions.transaction_shard import TransactionShard
from tests.unit.broker.api.stand_ins import NODE_ID
from tests.unit.broker.coordinators.group_household import PARTITIONS, TOPIC, until
from tests.unit.broker.coordinators.transaction_household import (
    END_V1,
    END_V2,
    ID,
    Marker,
    Place,
    transaction_household,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from barnabas.coordination.effects import Effects
    from barnabas.transactions.end_transaction import WriteMarkers
    from barnabas.transactions.transaction import TopicPartition
    from tests.unit.broker.coordinators.transaction_household import TransactionHousehold

ANOTHER_NODE = 2
T0, T1 = (TOPIC, 0), (TOPIC, 1)
NEIGHBOUR = next(name for name in map(str, count()) if partition_of(name, PARTITIONS) == partition_of(ID, PARTITIONS))
"""A transactional id in the same partition."""


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_delivery, "RETRY_SECONDS", 0.01)


async def retried(house: TransactionHousehold) -> None:
    """Returns when what is left to be written was tried a few times."""
    await asyncio.sleep(marker_delivery.RETRY_SECONDS * 5)
    await house.loaded()


@pytest.mark.parametrize("commit", [True, False])
def test_every_partition_of_a_transaction_gets_its_end(tmp_path: Path, *, commit: bool) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0, T1)
            house.write(producer, partition=1)
            assert (await house.end(producer, commit=commit)).error_code == Error.NONE
            assert await house.state() == ("CompleteCommit" if commit else "CompleteAbort")
            assert house.markers_in(partition=0) == [Marker(0, commit, producer.epoch)]
            assert house.markers_in(partition=1) == [Marker(1, commit, producer.epoch)]

    asyncio.run(scenario())


def test_the_markers_of_version_2_have_the_epoch_of_the_next_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0)
            house.write(producer)
            answer = await house.end(producer, version=END_V2)
            assert (answer.producer_id, answer.producer_epoch) == (producer.producer_id, producer.epoch + 1)
            assert house.markers_in() == [Marker(1, True, producer.epoch + 1)]

    asyncio.run(scenario())


def test_a_partition_that_is_gone_keeps_no_transaction_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0, ("gone", 0), (TOPIC, 7))
            await house.end(producer)
            assert await house.state() == "CompleteCommit"
            assert len(house.markers_in()) == 1

    asyncio.run(scenario())


def test_a_partition_that_is_led_by_nobody_here_gets_its_marker_when_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0, house.partition_of_group("g"))
            await house.place(TOPIC, Place(2, ANOTHER_NODE, (NODE_ID, ANOTHER_NODE)))
            assert (await house.end(producer)).error_code == Error.NONE
            await retried(house)
            assert await house.state() == "PrepareCommit"
            await house.place(TOPIC, Place(3))
            await until(partial(house.is_in_state, "CompleteCommit"))
            assert len(house.markers_in()) == 1
            assert len(house.markers_in(*house.partition_of_group("g"))) == 1, (
                "who has the marker does not get it again"
            )

    asyncio.run(scenario())


def test_a_topic_that_goes_while_its_markers_are_due_keeps_no_transaction_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0)
            await house.place(TOPIC, Place(2, ANOTHER_NODE, (NODE_ID, ANOTHER_NODE)))
            await house.end(producer)
            await house.place(TOPIC, None)
            await until(partial(house.is_in_state, "CompleteCommit"))

    asyncio.run(scenario())


def test_a_group_that_is_being_loaded_gets_the_marker_afterwards(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            await house.commit("g", 1)
            producer = await house.init()
            await house.add(producer, house.partition_of_group("g"))
            house.threads.hold()
            await house.place(OFFSETS_TOPIC, Place(2))
            await house.end(producer)
            await asyncio.sleep(marker_delivery.RETRY_SECONDS * 5)
            assert await house.state() == "PrepareCommit"
            house.threads.let_go()
            await until(partial(house.is_in_state, "CompleteCommit"))
            assert len(house.markers_in(*house.partition_of_group("g"))) == 1

    asyncio.run(scenario())


def test_a_marker_counts_when_all_in_sync_replicas_have_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0)
            both = (NODE_ID, ANOTHER_NODE)
            await house.place(TOPIC, Place(2, replicas=both))
            await house.end(producer)
            await retried(house)
            assert await house.state() == "PrepareCommit"
            await house.place(TOPIC, Place(3, replicas=both, isr=(NODE_ID,), leader_epoch=2))
            await until(partial(house.is_in_state, "CompleteCommit"))
            assert len(house.markers_in()) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("is_of_group", [False, True])
def test_a_marker_is_written_again_when_its_partition_was_led_in_another_epoch_meanwhile(
    tmp_path: Path, *, is_of_group: bool
) -> None:
    """Whoever led in between may have had other records in its place, though the high watermark is past it now."""

    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            partition = house.partition_of_group("g") if is_of_group else T0
            await house.add(producer, partition)
            both = (NODE_ID, ANOTHER_NODE)
            await house.place(partition[0], Place(2, replicas=both))
            await house.loaded()
            await house.end(producer)
            assert len(house.markers_in(*partition)) == 1
            await house.place(partition[0], Place(4, replicas=both, isr=(NODE_ID,)))
            await house.loaded()
            await until(partial(house.is_in_state, "CompleteCommit"))
            assert len(house.markers_in(*partition)) == 2

    asyncio.run(scenario())


def test_a_marker_that_replicas_do_not_take_in_time_is_written_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path, request_timeout_ms="20") as house:
            producer = await house.init()
            await house.add(producer, T0)
            both = (NODE_ID, ANOTHER_NODE)
            await house.place(TOPIC, Place(2, replicas=both))
            await house.end(producer)

            async def is_written_again() -> bool:
                return len(house.markers_in()) > 1

            await until(is_written_again)
            await house.place(TOPIC, Place(3, replicas=both, isr=(NODE_ID,)))
            await until(partial(house.is_in_state, "CompleteCommit"))

    asyncio.run(scenario())


def test_a_topic_that_is_synced_for_each_write_has_its_marker_on_the_device(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            house.configs = {ConfigResource(ResourceType.TOPIC, TOPIC): {"flush.messages": "1"}}
            await house.follow()
            producer = await house.init()
            await house.add(producer, T0)
            house.threads.hold()
            await house.end(producer)
            assert await house.state() == "PrepareCommit"
            house.threads.let_go()
            await until(partial(house.is_in_state, "CompleteCommit"))
            assert len(house.markers_in()) == 1
            assert house.hosted(TOPIC).log.unflushed_messages == 0

    asyncio.run(scenario())


def test_a_marker_that_is_not_on_the_device_in_time_is_written_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path, request_timeout_ms="20") as house:
            house.configs = {ConfigResource(ResourceType.TOPIC, TOPIC): {"flush.messages": "1"}}
            await house.follow()
            producer = await house.init()
            await house.add(producer, T0)
            house.threads.hold()
            await house.end(producer)

            async def is_written_again() -> bool:
                return len(house.markers_in()) > 1

            await until(is_written_again)
            assert await house.state() == "PrepareCommit"
            house.threads.let_go()
            await until(partial(house.is_in_state, "CompleteCommit"))

    asyncio.run(scenario())


def test_a_decision_that_is_found_in_the_log_is_carried_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0)
            house.write(producer)
            await house.place(TOPIC, Place(2, ANOTHER_NODE, (NODE_ID, ANOTHER_NODE)))
            await house.end(producer)
            await house.place(TRANSACTIONS_TOPIC, Place(2))
            await house.loaded()
            assert await house.state() == "PrepareCommit"
            await house.place(TOPIC, Place(3))
            await until(partial(house.is_in_state, "CompleteCommit"))
            assert len(house.markers_in()) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [END_V1, END_V2])
def test_an_end_that_could_not_be_written_down_reaches_its_partitions_again(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0, house.partition_of_group("g"))
            house.write(producer)
            step = TransactionShard.markers_written

            def fill_disk(shard: TransactionShard, action: WriteMarkers, now_ms: int) -> Effects:
                house.disk.is_full = True
                return step(shard, action, now_ms)

            monkeypatch.setattr(TransactionShard, "markers_written", fill_disk)
            assert (await house.end(producer, version=version)).error_code == Error.NONE
            assert [marker.offset for marker in house.markers_in()] == [1]
            await asyncio.sleep(0)
            monkeypatch.undo()
            house.disk.is_full = False
            await house.loaded()
            await until(partial(house.is_in_state, "CompleteCommit"))
            assert [marker.offset for marker in house.markers_in()] == [1, 2]
            assert len(house.markers_in(*house.partition_of_group("g"))) == 2

    asyncio.run(scenario())


def test_a_disk_that_is_full_when_the_decision_is_written_takes_the_markers_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0, house.partition_of_group("g"))
            house.write(producer)
            start = MarkerWrite.start

            def fill_disk(write: MarkerWrite, partitions: Iterable[TopicPartition], timeout_ms: int) -> None:
                house.disk.is_full = True
                start(write, partitions, timeout_ms)

            monkeypatch.setattr(MarkerWrite, "start", fill_disk)
            assert (await house.end(producer)).error_code == Error.NONE
            await retried(house)
            assert (await house.state(), house.markers_in()) == ("PrepareCommit", [])
            assert house.hosted(TOPIC).last_stable_offset == 0
            monkeypatch.undo()
            house.disk.is_full = False
            await until(partial(house.is_in_state, "CompleteCommit"))
            assert (len(house.markers_in()), len(house.markers_in(*house.partition_of_group("g")))) == (1, 1)
            assert house.hosted(TOPIC).last_stable_offset == 2

    asyncio.run(scenario())


def test_partitions_do_not_fill_up_with_markers_while_the_transaction_log_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, step = HostedPartition.append_as_coordinator, TransactionShard.markers_written
    is_broken = False

    def append_unless_broken(hosted: HostedPartition, batch: bytearray) -> int:
        if is_broken:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, "the disk of the transaction log is broken")
        return append(hosted, batch)

    def then_break(shard: TransactionShard, action: WriteMarkers, now_ms: int) -> Effects:
        nonlocal is_broken
        is_broken = True
        return step(shard, action, now_ms)

    async def scenario() -> None:
        nonlocal is_broken
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0)
            house.write(producer)
            monkeypatch.setattr(HostedPartition, "append_as_coordinator", append_unless_broken)
            monkeypatch.setattr(TransactionShard, "markers_written", then_break)
            begun_s = asyncio.get_running_loop().time()
            await house.end(producer)

            async def is_written_three_times() -> bool:
                return len(house.markers_in()) >= 3

            await until(is_written_three_times)
            assert asyncio.get_running_loop().time() - begun_s > 2 * marker_delivery.RETRY_SECONDS
            monkeypatch.undo()
            is_broken = False
            await house.loaded()
            await until(partial(house.is_in_state, "CompleteCommit"))

    asyncio.run(scenario())


def test_a_decision_that_is_read_again_before_it_holds_is_carried_out_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0)
            house.configs = {ConfigResource(ResourceType.TOPIC, TRANSACTIONS_TOPIC): {"flush.messages": "1"}}
            await house.follow()
            house.threads.hold()
            ending = asyncio.ensure_future(house.end(producer))
            _, waiting = await asyncio.wait([ending], timeout=0.05)
            assert waiting == {ending}
            house.disk.is_full = True
            with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
                await house.init(NEIGHBOUR)
            house.disk.is_full = False
            house.threads.let_go()
            assert (await ending).error_code == Error.NONE
            await house.loaded()
            await until(partial(house.is_in_state, "CompleteCommit"))
            assert len(house.markers_in()) == 1

    asyncio.run(scenario())


def test_a_node_that_no_longer_coordinates_a_transaction_does_not_end_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0)
            await house.place(TOPIC, Place(2, ANOTHER_NODE, (NODE_ID, ANOTHER_NODE)))
            await house.end(producer)
            await house.place(TRANSACTIONS_TOPIC, Place(2, ANOTHER_NODE, (NODE_ID, ANOTHER_NODE)))
            await house.place(TOPIC, Place(3))
            await retried(house)
            assert house.markers_in() == []
            with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
                await house.state()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [END_V1, END_V2])
def test_a_partition_that_knows_a_newer_epoch_of_the_producer_keeps_no_transaction_open(
    tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0, T1)
            newer = EndMarker(producer.producer_id, 9, coordinator_epoch=1, is_commit=False, transaction_version=0)
            house.hosted(TOPIC).append_marker(newer)
            await house.end(producer, version=version)
            assert await house.state() == "CompleteCommit"
            assert len(house.markers_in(partition=0)) == 1
            assert len(house.markers_in(partition=1)) == 1

    asyncio.run(scenario())
    assert f"{TOPIC}-0 has seen a newer epoch of producer 1000" in caplog.text


def test_a_partition_that_knows_a_newer_coordinator_is_left_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with transaction_household(tmp_path) as house:
            producer = await house.init()
            await house.add(producer, T0, T1)
            house.hosted(TOPIC).append_marker(
                EndMarker(*producer, coordinator_epoch=9, is_commit=False, transaction_version=0)
            )
            await house.end(producer)
            await retried(house)
            assert await house.state() == "PrepareCommit"
            assert len(house.markers_in(partition=0)) == 1
            assert len(house.markers_in(partition=1)) == 1

    asyncio.run(scenario())
    assert "TRANSACTION_COORDINATOR_FENCED" in caplog.text
