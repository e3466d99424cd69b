"""A log against a list of records: whatever is appended, rolled, truncated, killed and opened again, they agree."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.config.topic_config import TopicConfig
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.record import Record
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk

from .logs import TOPIC_ID, copy_of, create, put_to_sleep, read_records, reopen

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog

CONFIG = TopicConfig(segment_bytes=1500, index_interval_bytes=200, retention_ms=-1, file_delete_delay_ms=10)
START_MS = 1_700_000_000_000
VALUES = st.lists(st.binary(max_size=60), min_size=1, max_size=5)
FRACTION = st.floats(0, 1)


class LogMachine(RuleBasedStateMachine):
    """`records` is what the log must hold: offsets, values and the sizes of the batches they came in."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START_MS)
        self.disk = SimulatedDisk(self.clock)
        self.log: PartitionLog = create("", self.clock, CONFIG, self.disk)
        self.log.flush()
        self.records: list[tuple[int, bytes]] = []
        self.batch_starts: list[int] = []
        self.log_start = 0
        self.log_end = 0
        self.epoch = 0
        self.sequence = 0
        # (last offset, last sequence) of the producer's batches, and the last of them as it was sent.
        self.producer_batches: list[tuple[int, int]] = []
        self.last_batch: bytes | None = None

    def at(self, fraction: float) -> int:
        """Some offset from the log's start to its end."""
        return self.log_start + round(fraction * (self.log_end - self.log_start))

    @rule(values=VALUES, step_ms=st.integers(0, 50))
    def append(self, values: list[bytes], step_ms: int) -> None:
        self.clock.advance_ms(step_ms)
        records = [Record(value=value, timestamp=self.clock.now_ms()) for value in values]
        data = build_batch(records, producer_id=5, producer_epoch=0, base_sequence=self.sequence)
        self.last_batch = data
        appended = self.log.append_as_leader(copy_of(self.last_batch), self.epoch)
        assert appended == (self.log_end, self.log_end + len(values) - 1, -1, self.log_start, False)
        self.take(self.log_end, values)
        self.sequence += len(values)
        self.producer_batches.append((self.log_end - 1, self.sequence - 1))

    @precondition(lambda self: self.last_batch is not None)
    @rule()
    def append_again(self) -> None:
        assert self.last_batch is not None
        assert self.log.append_as_leader(copy_of(self.last_batch), self.epoch).is_duplicate

    @rule(values=VALUES, gap=st.integers(0, 3))
    def append_as_follower(self, values: list[bytes], gap: int) -> None:
        base_offset = self.log_end + gap
        records = [Record(value=value, timestamp=self.clock.now_ms()) for value in values]
        self.log.append_at(memoryview(build_batch(records, base_offset=base_offset, leader_epoch=self.epoch)))
        self.take(base_offset, values)

    def take(self, base_offset: int, values: list[bytes]) -> None:
        self.batch_starts.append(base_offset)
        self.records += enumerate(values, start=base_offset)
        self.log_end = base_offset + len(values)

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1
        self.log.begin_epoch(self.epoch)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.log_end)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.log_end

    @rule()
    def sleep(self) -> None:
        put_to_sleep(self.log)

    @rule(fraction=FRACTION)
    def advance_log_start(self, fraction: float) -> None:
        self.log_start = self.at(fraction)
        self.log.advance_log_start(self.log_start)

    @rule()
    def apply_retention(self) -> None:
        self.log.apply_retention(self.log_end)
        self.clock.advance_ms(10)
        for deletion in self.log.take_due_deletions():
            deletion.run(self.disk)

    @rule(fraction=FRACTION)
    def truncate(self, fraction: float) -> None:
        offset = self.at(fraction)
        self.log.truncate_to(offset)
        self.log.reload_producers()
        # Until it is flushed, power loss may bring back what was truncated; a follower then truncates again.
        self.log.flush()
        if offset < self.log_end:
            self.cut(self.log.log_end_offset, at_most=offset)

    def cut(self, log_end: int, at_most: int) -> None:
        """The log lost its end: from a batch's beginning on, and not after `at_most`."""
        assert log_end <= at_most
        starts = bisect_left(self.batch_starts, log_end)
        assert starts == len(self.batch_starts) or self.batch_starts[starts] >= log_end
        del self.batch_starts[starts:]
        self.records = [record for record in self.records if record[0] < log_end]
        self.log_end = log_end
        self.log_start = min(self.log_start, log_end)
        self.producer_batches = [each for each in self.producer_batches if each[0] < log_end]
        self.last_batch = None
        self.check_producer()

    def check_producer(self) -> None:
        """The producer is known by its last batch; or, if that lies before the start of the log, perhaps not at all."""
        producer = self.log.producers.producers.get(5)
        if producer is None:
            assert not self.producer_batches or self.producer_batches[-1][0] < self.log_start
            self.sequence, self.last_batch = 0, None
        else:
            assert producer.last_sequence == self.producer_batches[-1][1]
            self.sequence = producer.last_sequence + 1

    @rule()
    def restart_after_a_clean_stop(self) -> None:
        self.log.close()
        self.reopen(clean_shutdown=True)
        self.check_producer()

    @rule()
    def restart_after_a_kill(self) -> None:
        self.reopen(clean_shutdown=False)
        self.check_producer()

    @rule(seed=st.integers(0, 1000))
    def restart_after_power_loss(self, seed: int) -> None:
        chance = Random(seed)
        flushed = self.log.recovery_point
        self.disk.crash(lambda unsynced: chance.randint(0, unsynced))
        before, start = self.log_end, self.log_start
        self.reopen(clean_shutdown=False)
        assert min(flushed, before) <= self.log.log_end_offset <= before
        self.cut(self.log.log_end_offset, at_most=before)
        assert start <= self.log_start or self.log_start == self.log_end
        self.log_start = self.log.log_start_offset

    def reopen(self, *, clean_shutdown: bool) -> None:
        self.log = reopen(
            self.log,
            self.clock,
            clean_shutdown=clean_shutdown,
            recovery_point=self.log.recovery_point,
            log_start_offset=min(self.log_start, self.log.recovery_point),
            disk=self.disk,
        )
        assert self.log.topic_id == TOPIC_ID
        if self.log.log_start_offset < self.log_start <= self.log.log_end_offset:
            self.log.advance_log_start(self.log_start)

    @rule(fraction=FRACTION, max_bytes=st.integers(1, 3000))
    def read_anywhere(self, fraction: float, max_bytes: int) -> None:
        offset = self.at(fraction)
        found = self.log.read(offset, max_bytes, self.log.end_position, whole_first_batch=True)
        if offset == self.log_end or not any(record[0] >= offset for record in self.records):
            assert found is None
        else:
            assert found is not None
            assert found.length > 0

    @rule(beyond=st.integers(1, 5))
    def read_outside(self, beyond: int) -> None:
        for offset in (self.log_start - beyond, self.log_end + beyond):
            with pytest.raises(KafkaError) as refused:
                self.log.read(offset, 100, self.log.end_position, whole_first_batch=True)
            assert refused.value.error is Error.OFFSET_OUT_OF_RANGE

    @invariant()
    def the_log_holds_what_the_model_holds(self) -> None:
        assert self.log.log_start_offset == self.log_start
        assert self.log.log_end_offset == self.log_end
        expected = [record for record in self.records if record[0] >= self.log_start]
        assert [(record.offset, record.value) for record in read_records(self.log)] == expected

    @invariant()
    def epochs_rise(self) -> None:
        entries = self.log.epochs.entries
        assert entries == sorted(set(entries))
        assert all(later.start_offset > earlier.start_offset for earlier, later in pairwise(entries))


LogMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLogAgainstModel = LogMachine.TestCase
