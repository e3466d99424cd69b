"""Records of a coordinator go to the log in few batches, none larger than the topic allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.shard_writing import batches_of
from barnabas.coordination.effects import Effects, Producer, ProducerId
from barnabas.groups import group_records
from barnabas.protocol import messages as m
from barnabas.protocol.batch import decode_records, read_header

if TYPE_CHECKING:
    from barnabas.coordination.effects import Record
    from barnabas.protocol.varint import Buffer

NOW_MS = 1_700_000_000_000
LARGE = 1 << 20


def a_step(group_id: str, partitions: range, metadata: str = "") -> list[Record]:
    value = m.OffsetCommitValue(offset=1, metadata=metadata)
    return [group_records.offset_commit(group_id, "topic", partition, value) for partition in partitions]


def written(*steps: list[Record], max_bytes: int = LARGE, producer: Producer | None = None) -> list[bytearray]:
    return batches_of([effects(producer, step) for step in steps], group_records.encode, max_bytes, NOW_MS)


def effects(producer: Producer | None, step: list[Record]) -> Effects:
    wanted = Effects(producer)
    wanted.records += step
    return wanted


def contents(batch: Buffer) -> list[Record | None]:
    return [group_records.decode(record.key, record.value) for record in decode_records(batch)]


def test_the_steps_of_a_turn_share_a_batch_in_their_order() -> None:
    steps = [a_step("g1", range(2)), a_step("g2", range(1))]
    (batch,) = written(*steps)
    assert contents(batch) == [*steps[0], *steps[1]]
    assert {record.timestamp for record in decode_records(batch)} == {NOW_MS}


def test_nothing_to_write_makes_no_batch() -> None:
    assert written() == []


def test_a_step_that_does_not_fit_behind_others_begins_a_batch() -> None:
    steps = [a_step("g1", range(8)), a_step("g2", range(8))]
    first, second = written(*steps, max_bytes=1000)
    assert contents(first) == steps[0]
    assert contents(second) == steps[1]


def test_a_step_larger_than_a_batch_is_spread_over_several() -> None:
    step = a_step("g", range(100))
    batches = written(step, max_bytes=1000)
    assert [record for batch in batches for record in contents(batch)] == step
    assert len(batches) > 1
    assert max(map(len, batches)) <= 1000


def test_a_record_larger_than_a_batch_is_left_to_the_log_to_refuse() -> None:
    steps = [a_step("g", range(1)), a_step("g", range(1), "x" * 2000), a_step("g", range(1))]
    sizes = [len(batch) for batch in written(*steps, max_bytes=1000)]
    assert len(sizes) == 3
    assert sizes[1] > 1000


def test_a_tombstone_has_no_value() -> None:
    (batch,) = written([group_records.group_tombstone("g")])
    (record,) = decode_records(batch)
    assert record.value is None


def test_what_a_producer_writes_in_its_transaction_is_in_batches_of_that_producer() -> None:
    producer = Producer(ProducerId(7), epoch=3)
    steps = [effects(None, a_step("g1", range(1))), effects(producer, a_step("g2", range(1)))]
    batches = batches_of([*steps, steps[1], steps[0]], group_records.encode, LARGE, NOW_MS)
    headers = [read_header(batch) for batch in batches]
    assert [header.record_count for header in headers] == [1, 2, 1]
    assert [header.is_transactional for header in headers] == [False, True, False]
    assert [(header.producer_id, header.producer_epoch) for header in headers] == [(-1, -1), (7, 3), (-1, -1)]
    assert {header.base_sequence for header in headers} == {0}
