"""What groups were is read back from their partition's log, while nobody is given a wrong answer."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.coordinators import led_shard, shard_loading
from barnabas.groups import group_records
from barnabas.ports import SystemDisk
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.control_records import ControlRecordType, encode_end_transaction
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.protocol.record import Record as LogRecord
from barnabas.testing.clock import ManualClock
from tests.unit.broker.coordinators.group_household import TOPIC, Household, household, until
from tests.unit.log.cleaning.cleanings import COMPACTED, clean, contents, put, roll
from tests.unit.log.logs import create

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.log.partition_log import PartitionLog
    from barnabas.replication.hosted import HostedPartition

PRODUCER_ID = 7


def offset_record(group_id: str, offset: int) -> LogRecord:
    key, value = group_records.encode(
        group_records.offset_commit(group_id, TOPIC, 0, m.OffsetCommitValue(offset=offset))
    )
    return LogRecord(key=key, value=value, timestamp=1_700_000_000_000)


def write_in_transaction(hosted: HostedPartition, group_id: str, offset: int, outcome: ControlRecordType) -> None:
    """As a transactional producer of Apache Kafka would have left it."""
    start = hosted.log.log_end_offset
    key, value = encode_end_transaction(outcome, coordinator_epoch=0)
    marker = LogRecord(key=key, value=value, timestamp=1_700_000_000_000)
    in_transaction = partial(
        build_batch, leader_epoch=1, producer_id=PRODUCER_ID, producer_epoch=0, is_transactional=True
    )
    offsets = in_transaction([offset_record(group_id, offset)], base_offset=start, base_sequence=0)
    end = in_transaction([marker], base_offset=start + 1, is_control=True)
    hosted.log.append_at(memoryview(offsets + end))


async def refusal_of(house: Household, group_id: str) -> Error:
    with pytest.raises(KafkaError) as refused:
        await house.committed(group_id)
    return refused.value.error


def test_offsets_and_members_are_there_again_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path, group_initial_rebalance_delay_ms="0") as house:
            for number in range(10):
                await house.commit(f"g{number}", number)
            joined = await house.join("members")
            await house.sync("members", joined)
        async with household(tmp_path) as house:
            assert [await house.committed(f"g{number}") for number in range(10)] == list(range(10))
            assert await house.state_of("members") == "Stable"
            assert await house.heartbeat("members", joined) == Error.NONE

    asyncio.run(scenario())


def test_a_long_log_is_read_in_pieces_and_replayed_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_loading, "SLICE_RECORDS", 3)

    async def scenario() -> None:
        async with household(tmp_path) as house:
            for number in range(50):
                await house.commit("g", number, "x" * 100)
        async with household(tmp_path, offsets_load_buffer_size="300") as house:
            assert await house.committed("g") == 49

    asyncio.run(scenario())


def test_while_the_log_is_read_the_client_is_told_to_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
        house = Household(tmp_path)
        house.threads.hold()
        await house.lead()
        assert await refusal_of(house, "g") is Error.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await house.groups.read_all(lambda shard: shard.list_groups([], []))
        house.threads.let_go()
        await house.loaded()
        assert await house.committed("g") == 1
        await house.stop()

    asyncio.run(scenario())


def test_a_partition_that_is_given_up_while_it_is_read_is_not_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
        house = Household(tmp_path)
        house.threads.hold()
        await house.lead()
        await house.lead(2, leader=-1)
        house.threads.let_go()
        await asyncio.sleep(0)
        assert await refusal_of(house, "g") is Error.NOT_COORDINATOR
        await house.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("outcome", "expected"), [(ControlRecordType.COMMIT, 5), (ControlRecordType.ABORT, 1)], ids=["committed", "aborted"]
)
def test_offsets_of_a_transaction_count_when_it_was_committed(
    tmp_path: Path, outcome: ControlRecordType, expected: int
) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
            write_in_transaction(house.partition_of("g"), "g", 5, outcome)
        async with household(tmp_path) as house:
            assert await house.committed("g") == expected

    asyncio.run(scenario())


def test_records_of_kinds_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with household(tmp_path) as house:
            unknown = LogRecord(key=b"\x7f\x00", value=b"?", timestamp=1_700_000_000_000)
            batch = bytearray(build_batch([unknown, offset_record("g", 3)]))
            house.partition_of("g").append(memoryview(batch), acks=-1)
        async with household(tmp_path) as house:
            assert await house.committed("g") == 3

    asyncio.run(scenario())


def test_groups_whose_log_is_damaged_are_served_once_it_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(led_shard, "RETRY_LOADING_SECONDS", 0.01)

    async def scenario() -> None:
        async with household(tmp_path) as house:
            await house.commit("g", 1)
            file = Path(house.partition_of("g").log.folder) / f"{0:020}.log"
        house = Household(tmp_path)
        flip_last_bit(file)
        await house.lead()
        await until(lambda: is_answered(house, "g", Error.NOT_COORDINATOR))
        flip_last_bit(file)
        await until(lambda: is_answered(house, "g", Error.NONE))
        assert await house.committed("g") == 1
        await house.stop()

    asyncio.run(scenario())
    assert len([line for line in caplog.messages if "cannot load" in line]) == 1


def test_a_log_with_a_record_that_cannot_be_decoded_is_read_once_in_each_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(led_shard, "RETRY_LOADING_SECONDS", 0.001)
    reads = 0

    async def counted(*arguments: Any, **options: Any) -> None:
        nonlocal reads
        reads += 1
        await shard_loading.replay_log(*arguments, **options)

    async def scenario() -> None:
        async with household(tmp_path) as house:
            damaged = LogRecord(key=b"\0\x01\0\x09", value=None, timestamp=1_700_000_000_000)
            batch = bytearray(build_batch([offset_record("g", 3), damaged]))
            house.partition_of("g").append(memoryview(batch), acks=-1)
        house = Household(tmp_path)
        monkeypatch.setattr(led_shard, "replay_log", counted)
        await house.lead()
        await until(lambda: is_answered(house, "g", Error.NOT_COORDINATOR))
        await asyncio.sleep(0.05)
        assert reads == 1
        await house.lead(2)
        await until(lambda: is_answered(house, "g", Error.NOT_COORDINATOR))
        assert reads == 2
        await house.stop()

    asyncio.run(scenario())
    complaints = [line for line in caplog.messages if "are not served" in line]
    assert len(complaints) == 2, "one in each epoch"
    assert "the record at offset 1 of __consumer_offsets-" in complaints[0]


def flip_last_bit(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


async def is_answered(house: Household, group_id: str, error: Error) -> bool:
    try:
        await house.committed(group_id)
    except KafkaError as refused:
        return refused.error is error
    return error is Error.NONE


class Replayed:
    """A shard that notes what it is told."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def replay(self, record: Any, _producer_id: int) -> None:
        self.keys.append(record)


async def replayed(log: PartitionLog, meanwhile: Callable[[], None]) -> list[bytes]:
    """The keys of a log; something is done after its first chunk was read."""
    has_happened = False

    async def read(function: Any, *arguments: Any) -> Any:
        nonlocal has_happened
        chunk = function(*arguments)
        if not has_happened:
            has_happened = True
            meanwhile()
        return chunk

    def decode(key: Any, _value: Any) -> Any:
        return bytes(key)

    shard: Any = Replayed()
    await shard_loading.replay_log(log, shard, decode, buffer_bytes=300, disk=SystemDisk(), run_in_thread=read)
    return shard.keys  # type: ignore[no-any-return]


def test_a_log_that_is_compacted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    """Even if the segment in which it ended when the reading began has been cleaned since, and has become longer: the
    delete horizon of a record without a value takes a few bytes."""
    log = create(tmp_path, ManualClock(1_700_000_000_000), COMPACTED)
    for number in range(50):
        put(log, (b"%d" % number, None))

    def compact() -> None:
        roll(log)
        clean(log)
        put(log, (b"later", b"1"))

    keys = asyncio.run(replayed(log, compact))
    assert keys[:50] == [b"%d" % number for number in range(50)]


def test_what_is_compacted_away_up_to_the_end_is_not_missed(tmp_path: Path) -> None:
    log = create(tmp_path, ManualClock(1_700_000_000_000), COMPACTED)
    put(log, (b"first", b"x" * 300))
    put(log, (b"again", b"1"))

    def compact() -> None:
        put(log, (b"again", b"2"))
        roll(log)
        clean(log)
        assert [offset for offset, _, _ in contents(log)] == [0, 2]

    assert asyncio.run(replayed(log, compact)) == [b"first"]


@pytest.mark.parametrize("what", ["the last batch", "the end of the log"])
def test_a_log_that_ends_too_early_is_not_taken_for_loaded(tmp_path: Path, what: str) -> None:
    log = create(tmp_path, ManualClock(1_700_000_000_000), COMPACTED)
    put(log, (b"first", b"x" * 300))
    size = log.segments.active.size
    put(log, (b"last", b"1"))

    def lose() -> None:
        if what == "the last batch":
            roll(log)
            log.segments.all[0].size = size
        else:
            log.truncate_to(1)

    with pytest.raises(DecodeError, match="has no batch at or after offset 1, and should go on to 2"):
        asyncio.run(replayed(log, lose))
