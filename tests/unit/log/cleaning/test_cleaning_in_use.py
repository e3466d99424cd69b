"""A log that is written, cut, shortened and rolled between any two steps of its cleaning, as in a broker: no committed
record goes that is the last of its key, whatever was written behind it and cut off again, and no other is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.log.cleaning.log_cleaning import CleanedSegment, CleaningDone, UncleanableLogError, clean_log
from barnabas.log.cleaning.swap import CleaningLimits
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk
from tests.unit.log.cleaning.cleanings import COMPACTED, Pair, contents, put, roll
from tests.unit.log.logs import create, reopen

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.log.cleaning.log_cleaning import Step
    from barnabas.log.cleaning.swap import Cleaning
    from barnabas.log.partition_log import PartitionLog

CONFIG = COMPACTED._replace(
    segment_bytes=500, index_interval_bytes=100, retention_ms=-1, delete_retention_ms=1 << 40, file_delete_delay_ms=10
)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), min_size=1, max_size=4)
MAPS = st.sampled_from([24 * 4, 1 << 14])


class LogInUse(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(1_700_000_000_000)
        self.disk = SimulatedDisk(self.clock)
        self.log: PartitionLog = create("", self.clock, CONFIG, self.disk)
        self.log.flush()
        self.high_watermark = 0
        self.written: dict[int, Pair] = {}
        self.cleaning: Cleaning | None = None
        self.worker: Generator[Step] | None = None
        self.cleaned_to = 0
        """No cleaning was allowed to touch anything from here on."""

    @rule(batches=st.lists(PAIRS, min_size=1, max_size=5), is_committed=st.booleans())
    def append(self, batches: list[list[Pair]], is_committed: bool) -> None:
        for pairs in batches:
            self.written.update(enumerate(pairs, start=put(self.log, *pairs)))
        if is_committed:
            self.commit()

    @rule()
    def commit(self) -> None:
        self.high_watermark = self.log.log_end_offset
        self.log.high_watermark_moved(self.high_watermark)

    @rule()
    def roll(self) -> None:
        roll(self.log)

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        """As a follower does: never below the high watermark, but for batches that straddle it."""
        self._cut(data.draw(st.integers(self.high_watermark, self.log.log_end_offset)))

    @rule(data=st.data())
    def cut_below_the_high_watermark(self, data: st.DataObject) -> None:
        """As after an unclean election. What had to go for records that are lost now is lost with them."""
        self._cut(data.draw(st.integers(self.log.log_start_offset, self.log.log_end_offset)))
        self.written = {offset: (key, value) for offset, key, value in contents(self.log)}
        self.cleaned_to = min(self.cleaned_to, self.log.log_end_offset)

    def _cut(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.log.reload_producers()
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.written = {at: pair for at, pair in self.written.items() if at < self.log.log_end_offset}

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.advance_log_start(data.draw(st.integers(self.log.log_start_offset, self.high_watermark)))

    @precondition(lambda self: self.cleaning is None)
    @rule()
    def apply_retention(self) -> None:
        self.log.apply_retention(self.high_watermark)

    @rule(ms=st.integers(1, 20))
    def wait(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        for deletion in self.log.take_due_deletions():
            deletion.run(self.disk)

    @precondition(lambda self: self.cleaning is None)
    @rule(map_bytes=MAPS)
    def begin_cleaning(self, map_bytes: int) -> None:
        dirt = self.log.dirt(self.high_watermark)
        assert dirt.end_offset <= self.high_watermark
        if dirt.dirty_bytes:
            self.cleaned_to = max(self.cleaned_to, dirt.end_offset)
            self.cleaning = self.log.begin_cleaning(dirt, CleaningLimits(map_bytes, 0.9, 1))
            self.worker = cast("Generator[Step]", clean_log(self.disk, self.cleaning.order))

    @precondition(lambda self: self.cleaning is not None)
    @rule(count=st.integers(1, 8))
    def clean(self, count: int) -> None:
        for _ in range(count):
            if self.cleaning is None:
                return
            self._take_step(self.cleaning)

    def _take_step(self, cleaning: Cleaning) -> None:
        """As the broker does."""
        assert self.worker is not None
        step: Step | None = None
        try:
            step = next(self.worker)
        except (OSError, UncleanableLogError):
            assert self.log.is_void(cleaning), "files are missing, or too short, only where the log was cut"
        if self.log.is_void(cleaning):
            self._end_cleaning()
        elif isinstance(step, CleanedSegment):
            self.cleaning = self.log.swap_in(cleaning, step)
        elif isinstance(step, CleaningDone):
            self.log.first_dirty_offset = step.end_offset
            self._end_cleaning()

    def _end_cleaning(self) -> None:
        if self.worker is not None:
            self.worker.close()
        self.worker = self.cleaning = None

    @rule()
    def kill(self) -> None:
        self._end_cleaning()
        first_dirty, start = self.log.first_dirty_offset, self.log.log_start_offset
        self.disk.release()
        self.log = reopen(self.log, self.clock, clean_shutdown=False, log_start_offset=start, disk=self.disk)
        self.log.first_dirty_offset = first_dirty
        self.log.high_watermark_moved(self.high_watermark)

    def teardown(self) -> None:
        self._end_cleaning()

    @invariant()
    def nothing_is_there_that_was_not_written_there(self) -> None:
        for offset, key, value in contents(self.log):
            assert self.written[offset] == (key, value)

    @invariant()
    def what_was_not_to_be_cleaned_is_all_there(self) -> None:
        first = max(self.cleaned_to, self.log.log_start_offset)
        found = {offset for offset, _, _ in contents(self.log)}
        assert {offset for offset in self.written if offset >= first} <= found

    @invariant()
    def the_last_of_each_key_is_there_wherever_the_log_ends(self) -> None:
        """Whatever was not committed may be cut off: then the newest before it counts."""
        found = {offset for offset, _, _ in contents(self.log)}
        for end in (self.high_watermark, self.log.log_end_offset):
            latest = {key: offset for offset, (key, _) in sorted(self.written.items()) if offset < end}
            assert {offset for offset in latest.values() if offset >= self.log.log_start_offset} <= found


TestLogInUse = LogInUse.TestCase
TestLogInUse.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
