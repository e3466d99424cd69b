"""Transactions against a list of what was written: whatever begins, ends, rolls, is killed or cut off, a reader of
committed records who follows Kafka's rules gets those that were committed, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.config.topic_config import TopicConfig
from barnabas.log.append_batches import EndMarker
from barnabas.log.producers.producer_state import NO_SEQUENCE, NOT_NEEDED
from barnabas.protocol.batch import decode_records, iter_headers
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk
from tests.unit.log.logs import batch, create, idempotent, put_to_sleep, reopen

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog

CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1)
PRODUCERS = st.integers(1, 4)
NO_PRODUCER = 0


class Entry(NamedTuple):
    """One offset of the log: a record, or an end marker."""

    producer_id: int
    marker: ControlRecordType | None = None


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(1_700_000_000_000)
        self.disk = SimulatedDisk(self.clock)
        self.log: PartitionLog = create("", self.clock, CONFIG, self.disk)
        self.entries: list[Entry] = []

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3))
    def write_in_transaction(self, producer_id: int, count: int) -> None:
        known = self.log.producers.producers.get(producer_id)
        sequence = (known.last_sequence if known else NO_SEQUENCE) + 1
        data = idempotent(producer_id, 0, sequence, count, is_transactional=True)
        self.log.append_as_leader(data, 0, NOT_NEEDED)
        self.entries += [Entry(producer_id)] * count

    @rule(producer_id=PRODUCERS, kind=st.sampled_from((ControlRecordType.ABORT, ControlRecordType.COMMIT)))
    def end(self, producer_id: int, kind: ControlRecordType) -> None:
        self.log.append_marker(EndMarker(producer_id, 0, 0, kind is ControlRecordType.COMMIT, 1), 0)
        self.entries.append(Entry(producer_id, kind))

    @rule()
    def write_outside(self) -> None:
        self.log.append_as_leader(batch(b"v"), 0)
        self.entries.append(Entry(NO_PRODUCER))

    @rule()
    def roll(self) -> None:
        self.log.roll(self.log.log_end_offset)

    @rule()
    def sleep(self) -> None:
        put_to_sleep(self.log)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        self.log.truncate_to(round(fraction * len(self.entries)))
        self.log.reload_producers()
        del self.entries[self.log.log_end_offset :]

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.log.close()
        self.log = reopen(
            self.log, self.clock, clean_shutdown=is_clean, recovery_point=self.log.recovery_point, disk=self.disk
        )

    # ── what must hold ───────────────────────────────────────────────────────────────────────────────────────────

    def outcomes(self) -> list[ControlRecordType | None]:
        """How the transaction of each offset ended: the kind of the next marker of its producer."""
        outcomes: list[ControlRecordType | None] = []
        following: dict[int, ControlRecordType | None] = {NO_PRODUCER: ControlRecordType.COMMIT}
        for entry in reversed(self.entries):
            if entry.marker is not None:
                following[entry.producer_id] = entry.marker
            outcomes.append(following.get(entry.producer_id))
        return outcomes[::-1]

    def stable_offset(self) -> int:
        undecided = (offset for offset, outcome in enumerate(self.outcomes()) if outcome is None)
        return min(undecided, default=len(self.entries))

    def aborted(self) -> list[tuple[int, int, int, int]]:
        found = []
        first_offsets: dict[int, int] = {}
        for offset, (producer_id, marker) in enumerate(self.entries):
            if marker is None and producer_id != NO_PRODUCER:
                first_offsets.setdefault(producer_id, offset)
            elif marker is not None and producer_id in first_offsets:
                first = first_offsets.pop(producer_id)
                if marker is ControlRecordType.ABORT:
                    found.append((producer_id, first, offset, min(first_offsets.values(), default=offset + 1)))
        return found

    @invariant()
    def the_last_stable_offset_is_before_the_first_transaction_that_is_not_decided(self) -> None:
        assert self.log.log_end_offset == len(self.entries)
        assert self.log.last_stable_position(self.log.end_position).offset == self.stable_offset()

    @invariant()
    def every_aborted_transaction_is_listed(self) -> None:
        assert self.log.aborted_transactions(0, len(self.entries)) == self.aborted()

    @invariant()
    def a_reader_gets_what_was_committed(self) -> None:
        committed = [
            offset
            for offset, (entry, outcome) in enumerate(zip(self.entries, self.outcomes(), strict=True))
            if offset < self.stable_offset() and outcome is ControlRecordType.COMMIT and entry.marker is None
        ]
        for max_bytes in (100, 400, 10_000):
            assert read_committed(self.log, max_bytes) == committed


def read_committed(log: PartitionLog, max_bytes: int) -> list[int]:
    """The offsets that a consumer hands on, which reads answer after answer as Kafka's does."""
    limit = log.last_stable_position(log.end_position)
    offset = log.log_start_offset
    given: list[int] = []
    while (found := log.read(offset, max_bytes, limit, whole_first_batch=True)) is not None:
        data = memoryview(log.segments.disk.pread(found.file.fd, found.length, found.position))
        to_come = sorted((txn.first_offset, txn.producer_id) for txn in log.aborted_in(found, offset))
        aborted: set[int] = set()
        for position, header in iter_headers(data):
            while to_come and to_come[0][0] <= header.last_offset:
                aborted.add(to_come.pop(0)[1])
            records = decode_records(data[position : position + header.size])
            if header.is_control:
                if decode_key(records[0].key or b"") is ControlRecordType.ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                given += (record.offset for record in records if record.offset >= offset)
            offset = header.next_offset
    return given


TransactionsMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTransactionsAgainstModel = TransactionsMachine.TestCase
