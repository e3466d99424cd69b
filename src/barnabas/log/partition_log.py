"""One partition on disk: an append-only log of record batches, in segments, in Kafka's files.

`PartitionLog` keeps the offsets, and everything that changes a log is a method of it. It is composed of three parts:

- `Segments` (`segments/segment_list`): the files. It says when the active segment must roll (`must_roll`), rolls it
  (`roll`), finds batches and returns ranges of files.
- `ProducerState` (`producers/producer_state`): what idempotent and transactional producers wrote last.
- `LeaderEpochs` (`leader_epochs`): at which offset each leader epoch began.

An append checks a batch by its header and checksum (`batch_validation`), puts its offset and leader epoch in
(`append_batches`), writes it in one call, and keeps the index entries in memory. A read returns a range of a file, not
bytes. Positions (`LogPosition`) carry the segment and the byte position beside the offset, so that a reader limited by
the high watermark needs no look-up for it.

A failed write leaves no trace: the log ends where it ended before, the caller gets KAFKA_STORAGE_ERROR, and the next
append tries again. After a failed sync the log must not be used any more: `failure` says so.

A `PartitionLog` is used by one thread, its owner's; `open` may run in another beforehand, and `Flush.run` and
`Deletion.run` alongside. It starts no thread and never waits for the device: what must be synced or unlinked is handed
out as a value to run elsewhere.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.log import recovery, retention, timestamps
from barnabas.log.append_batches import (
    COORDINATOR_FIELDS,
    Appended,
    build_marker,
    new_tuple,
    put_assigned,
    stamp,
)
from barnabas.log.batch_validation import LOG_APPEND_TIME, check_assigned_batches, check_client_batch
from barnabas.log.cleaning.dirt import dirt_of
from barnabas.log.cleaning.log_cleaning import CleaningOrder, SegmentToClean
from barnabas.log.cleaning.swap import Cleaning
from barnabas.log.flush import Flush, is_failed_sync
from barnabas.log.producers.producer_state import BY_COORDINATOR, last_sequence_of
from barnabas.log.segments.file_names import (
    FUTURE_FOLDER,
    LEADER_EPOCH_CHECKPOINT,
    marked_folder,
    partition_folder,
)
from barnabas.log.segments.open_files import FilePool
from barnabas.log.segments.segment_list import LogPosition, Segments, nobody_hears
from barnabas.log.segments.unflushed_files import FOLDER_ITSELF
from barnabas.ports import SystemRandom
from barnabas.protocol.batch import (
    ATTRIBUTES_AT,
    HEADER,
    KNOWN_ATTRIBUTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.append_batches import EndMarker
    from barnabas.log.batch_validation import AssignedBatch, HeaderFields
    from barnabas.log.cleaning.dirt import Dirt
    from barnabas.log.cleaning.log_cleaning import CleanedSegment
    from barnabas.log.cleaning.swap import CleaningLimits
    from barnabas.log.folder.deletion import Deletion
    from barnabas.log.producers.aborted_txns import AbortedTxn
    from barnabas.log.producers.producer_state import ProducerEntry, ProducerState, Verification
    from barnabas.log.segments.open_files import FileRange
    from barnabas.log.timestamps import SegmentTimestamp, TimestampedOffset
    from barnabas.ports import Clock, Disk, Random
    from barnabas.protocol.uuids import Uuid
    from barnabas.protocol.varint import Buffer

PRODUCER_ID_EXPIRATION_MS = 86_400_000


class PartitionLog:
    """Invariants: the log start and the recovery point are at most the log end; every offset below the log end has
    been assigned, and every acknowledged batch lies below it."""

    __slots__ = (
        "_closed_as",
        "_disk",
        "_has_stale_producers",
        "_is_used",
        "_stable_position",
        "_truncations",
        "clock",
        "epochs",
        "failure",
        "first_dirty_offset",
        "is_being_cleaned",
        "is_gone",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "name",
        "on_roll",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        folder: str,
        topic: str,
        partition: int,
        config: TopicConfig,
        loaded: recovery.LoadedLog,
        *,
        disk: Disk,
        clock: Clock,
        files: FilePool | None,
        random: Random | None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.name = partition_folder(topic, partition)
        self.topic_id = loaded.topic_id
        files = FilePool(disk) if files is None else files
        random = SystemRandom() if random is None else random
        self.segments = Segments(loaded, folder, self.name, config, disk, files, clock, random)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.last_flush_ms = clock.now_ms()
        self.failure: OSError | None = None
        """What put the log, or its whole data folder, in doubt: it is neither written nor synced any more."""
        self.first_dirty_offset: int | None = None
        """Where the last cleaning ended, if the log has been compacted; what lies before it is clean."""
        self.is_being_cleaned = False
        """Whether a cleaning is under way, which ends in vain if retention removes a segment meanwhile."""
        self.is_gone = False
        """Whether the folder was renamed away: the log must not be used any more."""
        self.on_roll: Callable[[PartitionLog], None] | None = None
        """Called when a segment was closed: what it holds should be flushed soon, in another thread."""
        self._is_used = False
        """Whether the log was read or written since `release_if_idle` last looked."""
        self._disk = disk
        self.clock = clock
        self._has_stale_producers = False
        """Whether `producers` has what a truncation has removed."""
        self._truncations = 0
        self._stable_position: LogPosition | None = None
        """The position of the earliest open transaction, once a reader had to stop there."""
        self._closed_as = (self.end_position, 0) if loaded.is_clean else None

    @classmethod
    def create(
        cls,
        folder: str,
        topic: str,
        partition: int,
        topic_id: Uuid,
        config: TopicConfig,
        *,
        disk: Disk,
        clock: Clock,
        files: FilePool | None = None,
        random: Random | None = None,
    ) -> PartitionLog:
        """A new, empty log in a folder that does not exist yet. None of it is durable before the first flush."""
        loaded = recovery.create(disk, folder, partition_folder(topic, partition), topic_id, config, clock.now_ms())
        return cls(folder, topic, partition, config, loaded, disk=disk, clock=clock, files=files, random=random)

    @classmethod
    def open(
        cls,
        folder: str,
        topic: str,
        partition: int,
        config: TopicConfig,
        *,
        disk: Disk,
        clock: Clock,
        recovery_point: int,
        log_start_offset: int,
        clean_shutdown: bool,
        unreplicated_from: int | None = None,
        files: FilePool | None = None,
        random: Random | None = None,
        producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> PartitionLog:
        """The log in an existing folder, repaired where necessary. `unreplicated_from` is what a clean shutdown noted:
        its `first_unreplicated_offset`. Safe to call in a worker thread."""
        loaded = recovery.load(
            disk,
            folder,
            partition_folder(topic, partition),
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown,
            unreplicated_from=unreplicated_from,
            now_ms=clock.now_ms(),
            producer_expiration_ms=producer_expiration_ms,
        )
        return cls(folder, topic, partition, config, loaded, disk=disk, clock=clock, files=files, random=random)

    @property
    def folder(self) -> str:
        return self.segments.folder

    @property
    def config(self) -> TopicConfig:
        return self.segments.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """A changed setting takes effect with the next append, roll or retention check."""
        self.segments.config = config

    @property
    def on_failed_disk(self) -> Callable[[OSError], None]:
        """Called when the device did not take what was to be written, or nobody knows whether it did."""
        return self.segments.on_failed_disk

    @on_failed_disk.setter
    def on_failed_disk(self, on_failed_disk: Callable[[OSError], None]) -> None:
        self.segments.on_failed_disk = on_failed_disk

    @property
    def end_position(self) -> LogPosition:
        active = self.segments.active
        return new_tuple(LogPosition, (self.log_end_offset, active.base_offset, active.size))

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments.all)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def append_as_leader(
        self,
        batch: memoryview,
        leader_epoch: int,
        verification: Verification | None = None,
        now_ms: int = -1,
        checked: HeaderFields | None = None,
    ) -> Appended:
        """Appends a client's batch to the end of the log, or finds that it is there already. The first batch of a
        transaction needs a `verification`. Who appends many at once need not have the clock asked for each (`now_ms`).

        The batch must lie in memory that may be changed: it gets its offset and its leader epoch there. `checked` is
        its header if nothing of it is in doubt any more.

        Raises KafkaError with Kafka's code if the batch is not acceptable or cannot be written; then nothing of it is
        in the log.
        """
        segments, epochs = self.segments, self.epochs
        config = segments.config
        if now_ms < 0:
            now_ms = self.clock.now_ms()
        fields = checked or check_client_batch(batch, config, now_ms, self.name)
        _, length, _, _, _, attributes, last_delta, _, max_ms, producer_id, producer_epoch, sequence, _ = fields
        if producer_id >= 0:
            last_sequence = last_sequence_of(sequence, last_delta)
            is_transactional = attributes & TRANSACTIONAL_FLAG != 0
            earlier = self.producers.check(
                producer_id, producer_epoch, sequence, last_sequence, verification, is_transactional=is_transactional
            )
            if earlier is not None:
                first, last, timestamp = earlier.first_offset, earlier.last_offset, earlier.timestamp
                return Appended(first, last, timestamp, self.log_start_offset, True)
        base_offset = self.log_end_offset
        last_offset = base_offset + last_delta
        size = length + LENGTH_OVERHEAD
        if size != len(batch):
            batch = batch[:size]
        stamp_ms = -1
        if config.message_timestamp_type == LOG_APPEND_TIME:
            stamp_ms = max_ms = now_ms
            stamp(batch, attributes | LOG_APPEND_TIME_FLAG, now_ms)
        elif attributes & LOG_APPEND_TIME_FLAG:
            # Only the log may say so: the client's timestamps are kept as its own.
            stamp(batch, attributes & ~LOG_APPEND_TIME_FLAG, max_ms)
        put_assigned(batch, 0, base_offset, length, leader_epoch)
        if (
            leader_epoch == epochs.latest
            and epochs.is_saved
            and segments.append_quickly(batch, size, base_offset, last_offset, max_ms)
        ):
            self.log_end_offset = last_offset + 1
            self._is_used = True
        else:
            self._write_slowly(batch, size, last_offset, max_ms, now_ms, leader_epoch)
        if producer_id >= 0:
            entry = self.producers.append(
                producer_id, producer_epoch, sequence, last_sequence, base_offset, last_offset, max_ms
            )
            if is_transactional:
                self.producers.begin_txn(producer_id, entry, base_offset)
        return new_tuple(Appended, (base_offset, last_offset, stamp_ms, self.log_start_offset, False))

    def append_opened(
        self, batch: memoryview, max_timestamp: int, leader_epoch: int, verification: Verification | None
    ) -> Appended:
        """Appends a client's batch that was opened and found good. Its records have this timestamp as their largest,
        whatever its header says."""
        header = read_header(batch)
        if header.max_timestamp != max_timestamp:
            # As with Kafka, a header that is changed loses the attributes that nobody knows.
            stamp(batch, header.attributes & KNOWN_ATTRIBUTES, max_timestamp)
        return self.append_as_leader(batch, leader_epoch, verification, checked=HEADER.unpack_from(batch))

    def append_as_coordinator(self, batch: bytearray, leader_epoch: int) -> int:
        """Appends a batch that a coordinator on this node built, and which therefore needs no validation. Returns its
        last offset. Raises KafkaError with nothing written. It, too, gets its offset and leader epoch in place.

        A batch of a transaction, one that is too large and one that the log has to stamp take the path of a client's.
        """
        size = len(batch)
        last_delta, max_ms, producer_id = COORDINATOR_FIELDS.unpack_from(batch, ATTRIBUTES_AT)
        config = self.segments.config
        if producer_id >= 0 or size > config.max_message_bytes or config.message_timestamp_type == LOG_APPEND_TIME:
            return self.append_as_leader(memoryview(batch), leader_epoch, BY_COORDINATOR).last_offset
        base_offset = self.log_end_offset
        last_offset: int = base_offset + last_delta
        put_assigned(batch, 0, base_offset, size - LENGTH_OVERHEAD, leader_epoch)
        self._write(batch, size, last_offset, max_ms, max_ms, leader_epoch)
        return last_offset

    def append_marker(self, marker: EndMarker, leader_epoch: int) -> Appended:
        """Ends a producer's transaction. A marker for a transaction that wrote nothing here is written too: it fences
        older epochs of the producer. Raises KafkaError if the producer or the coordinator has been replaced."""
        producer_id, producer_epoch = marker.producer_id, marker.producer_epoch
        self.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch, marker.transaction_version)
        now_ms = self.clock.now_ms()
        offset = self.log_end_offset
        is_stamped = self.config.message_timestamp_type == LOG_APPEND_TIME
        batch = build_marker(marker, offset, leader_epoch, now_ms, log_append_time=is_stamped)
        self._write(batch, len(batch), offset, now_ms, now_ms, leader_epoch)
        self.producers.end_verification(producer_id, producer_epoch, marker.transaction_version)
        completed = self.producers.end_txn(
            producer_id, producer_epoch, marker.coordinator_epoch, offset, now_ms, is_aborted=not marker.is_commit
        )
        if completed is not None and completed.is_aborted:
            self.segments.note_aborted(self.producers.aborted_txn(completed))
        return Appended(offset, offset, now_ms if is_stamped else -1, self.log_start_offset, False)

    def append_at(self, batches: memoryview) -> Appended | None:
        """Appends batches that already have their offsets and leader epochs, as a follower and a Raft log do: as they
        are, and in one write if they fit into one segment.

        A batch that is cut off at the end is left out; None if there is no whole one. Raises KafkaError if a batch is
        corrupt or cannot be written, UnexpectedOffsetError if they do not continue the log.
        """
        found = check_assigned_batches(batches, self.log_end_offset, self.name)
        if not found:
            return None
        first, last = found[0], found[-1]
        size = last.position + last.size
        if size > self.config.segment_bytes and len(found) > 1:
            for position, batch_size, _ in found:
                self.append_at(batches[position : position + batch_size])
        else:
            self._write_together(batches[:size], found)
        return Appended(first.fields[0], last.fields[0] + last.fields[6], -1, self.log_start_offset, False)

    def _write(self, batch: Buffer, size: int, last_offset: int, max_ms: int, now_ms: int, leader_epoch: int) -> None:
        """Writes one batch to the end of the log, in a new segment if the active one must roll. `append_as_leader` does
        the same in one step fewer."""
        epochs = self.epochs
        if (
            leader_epoch == epochs.latest
            and epochs.is_saved
            and self.segments.append_quickly(batch, size, self.log_end_offset, last_offset, max_ms)
        ):
            self.log_end_offset = last_offset + 1
            self._is_used = True
        else:
            self._write_slowly(batch, size, last_offset, max_ms, now_ms, leader_epoch)

    def _write_slowly(
        self, batch: Buffer, size: int, last_offset: int, max_ms: int, now_ms: int, leader_epoch: int
    ) -> None:
        """Writes a batch that begins an epoch or a segment, or needs an entry in the index."""
        segments, epochs = self.segments, self.epochs
        base_offset = self.log_end_offset
        self._is_used = True
        if leader_epoch != epochs.latest:
            self.begin_epoch(leader_epoch)
        if not epochs.is_saved:
            self._save_epochs()
        if segments.must_roll(size, last_offset, max_ms, now_ms):
            self.roll(base_offset)
        position = segments.write(batch, size)
        segments.index_batch(base_offset, last_offset, position, size, max_ms)
        self.log_end_offset = last_offset + 1

    def _write_together(self, batches: memoryview, found: Sequence[AssignedBatch]) -> None:
        """Writes batches that have their offsets to one segment, a new one if the active one must roll. The header of
        each is all that is looked at."""
        segments, epochs = self.segments, self.epochs
        newest_ms = -1
        for _, _, (base_offset, _, epoch, _, _, _, _, _, max_ms, _, _, _, _) in found:
            if epoch != epochs.latest and epoch >= 0:
                epochs.assign(epoch, base_offset)
            newest_ms = max(newest_ms, max_ms)
        self._save_epochs()
        first, last = found[0].fields, found[-1].fields
        if segments.must_roll(len(batches), last[0] + last[6], newest_ms, self.clock.now_ms()):
            self.roll(first[0])
        self._is_used = True
        written_at = segments.write(batches, len(batches))
        for position, size, fields in found:
            base_offset, _, _, _, _, _, last_delta, _, max_ms, producer_id, _, _, _ = fields
            if base_offset != self.log_end_offset:
                segments.note_gap()
            segments.index_batch(base_offset, base_offset + last_delta, written_at + position, size, max_ms)
            self.log_end_offset = base_offset + last_delta + 1
            if producer_id >= 0:
                aborted = self.producers.replay(BatchHeader._make(fields), batches[position : position + size])
                if aborted is not None:
                    segments.note_aborted(aborted)

    def roll(self, base_offset: int) -> None:
        """Closes the active segment and begins a new one at the log's end, or at a later offset if the next batch has
        one. An empty active segment that begins there already stays."""
        if base_offset == self.segments.active.base_offset:
            return
        self.segments.roll(base_offset, self.producers.producers)
        if self.on_roll is not None:
            self.on_roll(self)

    def read(self, offset: int, max_bytes: int, limit: LogPosition, *, whole_first_batch: bool) -> FileRange | None:
        """The bytes of the batches from the one that holds `offset` on, up to `limit`; None if there are none to
        return.

        With `whole_first_batch` the first batch is returned whole even if it is larger than `max_bytes`. After it, the
        range may end within a batch. All bytes of a range lie in one segment.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.name}, but we only have offsets"
                f" {self.log_start_offset}–{self.log_end_offset}.",
            )
        if offset >= limit.offset:
            return None
        self._is_used = True
        return self.segments.read(offset, max_bytes, limit, whole_first_batch=whole_first_batch)

    def is_cold(self, found: FileRange) -> bool:
        """Whether sending the range might wait for the device, so that it should be read ahead elsewhere first."""
        return self.segments.is_cold(found.file, found.position, found.length)

    def position_of(self, offset: int) -> LogPosition:
        """Where an offset between log start and log end lies: how a checkpointed high watermark becomes a position."""
        place = self.segments.find(offset) if offset < self.log_end_offset else None
        if place is None:
            return self.end_position
        return LogPosition(offset, place.segment.base_offset, place.position)

    def offset_by_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record at or after a point in time; None if all are older."""
        return timestamps.search(self.segments.disk, partial(self.batch_by_timestamp, timestamp), self.log_start_offset)

    def batch_by_timestamp(self, timestamp: int, start_offset: int) -> timestamps.BatchToSearch | None:
        """The batch in which `offset_by_timestamp` would look next, to be opened in a thread."""
        return timestamps.batch_at_or_after(self.segments, timestamp, max(start_offset, self.log_start_offset))

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The first record with the largest timestamp; None in a log without timestamps."""
        return timestamps.search(self.segments.disk, self.batch_of_max_timestamp, 0)

    def batch_of_max_timestamp(self, start_offset: int) -> timestamps.BatchToSearch | None:
        """The batch in which `max_timestamp_offset` would look next, to be opened in a thread."""
        return timestamps.batch_with_largest_timestamp(self.segments, self.log_start_offset, start_offset)

    def unread_timestamps(self, timestamp: int) -> timestamps.Unread | None:
        """What `offset_by_timestamp` would first have to read in a log found on disk: better done in a thread."""
        return timestamps.unread(self.segments, timestamp, self.log_start_offset)

    def learn_timestamps(self, found: Iterable[SegmentTimestamp]) -> None:
        """Takes over what running `unread_timestamps` has read."""
        timestamps.learn(found)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch of which the log holds a batch, or -1."""
        return self.epochs.latest

    def begin_epoch(self, leader_epoch: int) -> None:
        """This replica leads from the log's end on, in a new epoch. The checkpoint gets it with its first batch: an
        epoch without batches leaves no trace, and a start with many partitions writes nothing for it."""
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was written; -1 if that is not known."""
        return self.epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch at most `epoch`, the offset after its last record); (-1, -1) if that is not known."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def _save_epochs(self) -> None:
        """Brings the checkpoint up to date, if it is not."""
        if self.epochs.is_saved:
            return
        try:
            self.epochs.save()
        except OSError as error:
            raise self.segments.failed_write("note the leader epochs of", error) from error
        self.segments.unflushed.note(LEADER_EPOCH_CHECKPOINT, FOLDER_ITSELF)

    @property
    def active_producers(self) -> Mapping[int, ProducerEntry]:
        """What is known of each producer, by producer id."""
        return self.producers.producers

    def has_open_txn(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open in this partition, in this epoch."""
        return self.producers.has_open_txn(producer_id, epoch)

    def check_coordinator(self, producer_id: int, epoch: int) -> None:
        """Raises KafkaError if a coordinator may not append a batch on behalf of this producer."""
        self.producers.check_coordinator(producer_id, epoch)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, adds_partition: bool
    ) -> Verification | None:
        """To be called before the coordinator is asked whether this partition is in a transaction. None if there is no
        need to ask: the transaction is open here."""
        return self.producers.begin_verification(
            producer_id, epoch, sequence, self.clock.now_ms(), adds_partition=adds_partition
        )

    def is_verified(self, producer_id: int, epoch: int, verification: Verification) -> bool:
        """Whether the transaction is open here, or nothing has ended it since the coordinator was asked."""
        return self.producers.is_verified(producer_id, verification) or self.has_open_txn(producer_id, epoch)

    def expire_producers(self, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> int:
        """Forgets producers that wrote nothing for so long. Returns how many."""
        return self.producers.expire(self.clock.now_ms(), expiration_ms)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions whose end marker lies below the high watermark no longer hold up readers of committed data."""
        self.producers.high_watermark_moved(high_watermark)

    def first_unreplicated_offset(self, high_watermark: int) -> int | None:
        """Where the earliest transaction begins whose end is here, but not below the high watermark."""
        return self.producers.first_unreplicated_offset(high_watermark)

    def last_stable_offset(self, high_watermark: int) -> int:
        """How far a reader of committed data may read: to the first open transaction, or the high watermark."""
        stable = self.producers.last_stable_offset(high_watermark)
        return stable if stable == high_watermark else max(stable, self.log_start_offset)

    def last_stable_position(self, high_watermark: LogPosition) -> LogPosition:
        stable = self.last_stable_offset(high_watermark.offset)
        if stable >= high_watermark.offset:
            return high_watermark
        if self._stable_position is None or self._stable_position.offset != stable:
            self._stable_position = self.position_of(stable)
        return self._stable_position

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that have records between two offsets, in the order of their end markers."""
        return self.segments.aborted_between(offset, end_offset)

    def aborted_in(self, found: FileRange, offset: int) -> list[AbortedTxn]:
        """The aborted transactions that may have records in what was read from `offset` on."""
        return self.segments.aborted_in(found, offset, self.log_end_offset)

    def apply_retention(self, high_watermark: int) -> int:
        """Drops the segments that the topic's settings no longer retain. Returns how many; their files are unlinked
        later (`take_due_deletions`)."""
        count = retention.count_expired(
            self.segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            now_ms=self.clock.now_ms(),
        )
        if not count:
            return 0
        closed = min(count, len(self.segments.all) - 1)
        self._drop_oldest(closed)
        if count > closed:
            # A full disk has no room for the segment that must replace the active one, but the others are gone by now.
            self.roll(self.log_end_offset)
            self._drop_oldest(1)
        self._save_epochs()
        return count

    def dirt(self, high_watermark: int) -> Dirt:
        """How dirty the log is, and what of it may be cleaned. Raises KafkaError if an index cannot be read."""
        first_dirty = self.first_dirty_offset
        if first_dirty is None or not self.log_start_offset <= first_dirty <= self.log_end_offset:
            first_dirty = self.log_start_offset
        stable_offset = self.last_stable_offset(high_watermark)
        now_ms = self.clock.now_ms()
        return dirt_of(self.segments, first_dirty_offset=first_dirty, stable_offset=stable_offset, now_ms=now_ms)

    def begin_cleaning(self, dirt: Dirt, limits: CleaningLimits) -> Cleaning:
        """What a worker needs to know to clean the log, to be kept until it is done."""
        segments, config = self.segments, self.config
        end = segments.number_of(dirt.end_offset)
        to_clean = tuple(segments.all[:end])
        order = CleaningOrder(
            folder=self.folder,
            segments=tuple(
                SegmentToClean(segment.base_offset, segment.size, following.base_offset)
                for segment, following in zip(to_clean, segments.all[1:], strict=False)
            ),
            later_segments=tuple(segment.base_offset for segment in segments.all[end:-1]),
            aborted_later=tuple(segments.aborted_from(segments.active, self.log_start_offset, dirt.end_offset)),
            first_dirty_offset=dirt.first_dirty_offset,
            end_offset=dirt.end_offset,
            last_of_producers=self.producers.last_before(dirt.end_offset),
            now_ms=self.clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            map_bytes=limits.map_bytes,
            map_load_factor=limits.map_load_factor,
            step_bytes=limits.step_bytes,
        )
        return Cleaning(order, to_clean, self._truncations)

    def is_void(self, cleaning: Cleaning) -> bool:
        """Whether the log has lost segments that are being cleaned, so that what comes of it is of no use."""
        return (
            self.is_gone
            or self._truncations != cleaning.truncations
            or self.segments.all[: len(cleaning.segments)] != list(cleaning.segments)
        )

    def swap_in(self, cleaning: Cleaning, cleaned: CleanedSegment) -> Cleaning:
        """Puts a cleaned segment in place of those whose records it holds. The cleaning goes on with the one that is
        returned. Call it only if the cleaning is not void; raises KafkaError."""
        first = next(n for n, segment in enumerate(cleaning.segments) if segment.base_offset == cleaned.base_offset)
        behind = first + len(cleaned.replaces)
        self.segments.swap_in(cleaned, cleaning.segments[first:behind])
        self._stable_position = None
        new = self.segments.all[first]
        return cleaning._replace(segments=(*cleaning.segments[:first], new, *cleaning.segments[behind:]))

    @property
    def has_deletions(self) -> bool:
        """Whether files of dropped segments are still to be unlinked."""
        return bool(self.segments.deletions)

    def take_due_deletions(self) -> list[Deletion]:
        """Files of dropped segments that are due to be unlinked: to be run, in any thread."""
        return self.segments.take_due_deletions()

    def put_off(self, deletion: Deletion) -> None:
        """A deletion that was taken could not be run: it will be due again."""
        self.segments.put_off(deletion)

    def advance_log_start(self, offset: int) -> None:
        """Records before `offset` no longer exist for readers. Segments that end before it go with retention."""
        if offset > self.log_end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.name} since it is larger than"
                f" the log end offset {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self._set_log_start(offset)
            self._save_epochs()

    def _set_log_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)

    def _drop_oldest(self, count: int) -> None:
        # The start moves before any file goes, so that readers are told where the log starts even if not all files can
        # be removed: those left before the start go next time. The caller saves the epochs afterwards, because that
        # fails on a full disk.
        self._set_log_start(max(self.log_start_offset, self.segments.all[count].base_offset))
        self.segments.drop(self.segments.all[:count])

    def truncate_to(self, offset: int) -> bool:
        """Removes everything from `offset` on, as a follower does with what its leader does not have. True if there
        was anything. A batch that straddles the offset goes too. Producers have to be reloaded before anything is
        written again; what readers may see is right all the same, as nothing below the high watermark is removed."""
        self.epochs.truncate_from_end(min(offset, self.log_end_offset))
        if offset >= self.log_end_offset:
            return False
        self._save_epochs()
        if offset < self.segments.all[0].base_offset:
            self.truncate_fully(offset)
            return True
        self._truncations += 1
        self._stable_position = None
        self._has_stale_producers = bool(self.producers.producers)
        # One segment after the other: if a file cannot be removed, the log ends with it, and its offsets are right.
        while self.segments.active.base_offset > offset:
            end_offset = self.segments.active.base_offset
            self.segments.drop_active()
            self._end_at(end_offset)
        self._end_at(self.segments.cut_active(offset))
        return True

    def prepare_reload(self) -> recovery.ProducerReload | None:
        """What has to be run, in any thread, because the log was truncated; None if there is no need."""
        if not self._has_stale_producers:
            return None
        return recovery.ProducerReload(
            self._disk,
            self.name,
            list(self.segments.all),
            self.log_start_offset,
            self.log_end_offset,
            self._truncations,
        )

    def reloaded(self, reload: recovery.ProducerReload, producers: ProducerState) -> None:
        """A reload has run. Its outcome is of no use if another was quicker, or the log was truncated again."""
        if self._has_stale_producers and reload.truncations == self._truncations:
            for first_offset, last_offset in self.producers.ended_before(self.log_end_offset).items():
                producers.hold_back(first_offset, last_offset)
            self.producers = producers
            self._has_stale_producers = False
            self._stable_position = None

    def reload_producers(self) -> None:
        """The same, here and now."""
        reload = self.prepare_reload()
        if reload is not None:
            self.reloaded(reload, reload.run())

    def truncate_fully(self, offset: int) -> None:
        """Removes everything; the log continues at `offset`."""
        self._truncations += 1
        self._stable_position = None
        self.segments.replace_all(offset)
        self.epochs.clear()
        self._save_epochs()
        self.producers.clear(offset)
        self._has_stale_producers = False
        self.first_dirty_offset = None
        self.log_start_offset = self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        if self.first_dirty_offset is not None:
            # What is written there next has not been cleaned.
            self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)

    def prepare_flush(self) -> Flush:
        """What to sync so that everything now in the log survives a crash of the machine."""
        self._save_epochs()
        segments = self.segments
        paths, folders = segments.begin_sync()
        if self.log_end_offset > self.recovery_point:
            paths += (segment.log_path for segment in segments.all[segments.number_of(self.recovery_point) :])
        return Flush(self.log_end_offset, tuple(paths), folders, self._truncations)

    def flushed(self, flush: Flush) -> None:
        """A flush has run: after a crash, the log need not be checked before its end offset."""
        if flush.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)
            self.last_flush_ms = self.clock.now_ms()
            self.segments.unflushed.end_sync()

    def flush(self) -> None:
        """Syncs everything, here and now. Waits for the device."""
        flush = self.prepare_flush()
        self._run(flush)
        self.flushed(flush)

    def _run(self, flush: Flush) -> None:
        try:
            flush.run(self._disk)
        except OSError as error:
            raise self.sync_failed(error) from error

    def sync_failed(self, error: OSError) -> KafkaError:
        """A flush could not be run to its end. Returns what to tell whoever waits for it."""
        if is_failed_sync(error):
            self.on_failed_disk(error)
        return self.segments.failed_write("flush", error)

    def release_if_idle(self) -> bool:
        """Called now and then: closes the files of a log that was not used since the last call. True if it did."""
        if self._is_used:
            self._is_used = False
            return False
        was_awake = self.segments.is_awake()
        self.segments.release()
        return was_awake

    def close(self) -> None:
        """A clean shutdown: indexes and producer state are written, everything is synced, and files are closed."""
        flush = self.prepare_close()
        if flush is not None:
            self._run(flush)
        self.closed(flush)

    def prepare_close(self) -> Flush | None:
        """The first half of `close`, for somebody who closes many logs: writes everything. `closed` follows, once the
        flush has run. None if nothing has happened since the last clean shutdown: idle partitions stop at once."""
        if self._closed_as == (self.end_position, self._truncations) and not self.segments.unflushed:
            return None
        self.segments.finish()
        self.reload_producers()
        if self.log_end_offset > self.segments.active.base_offset:
            # A segment that begins at the log's end has its snapshot already.
            self.segments.snapshot_producers(self.log_end_offset, self.producers.producers)
        return self.prepare_flush()

    def closed(self, flush: Flush | None) -> None:
        """The other half: what `prepare_close` returned is on the device."""
        if flush is not None:
            self.flushed(flush)
            self._closed_as = (self.end_position, self._truncations)
        self.segments.release()

    @property
    def is_future(self) -> bool:
        """Whether this is a copy in another data folder, which takes the log's place when it is complete."""
        return self.folder.endswith(FUTURE_FOLDER)

    def come_into_place(self) -> None:
        """The copy is a log like any other from now on. Raises KafkaError if its folder cannot be renamed."""
        self.segments.rename_in_use(self.name)
        self.epochs.folder = self.folder
        # A flush that is under way looks for its files under their old names, and does not find them.
        self._truncations += 1

    def inherit(self, other: PartitionLog) -> None:
        """Takes over what only the memory of the log knows of which this is a copy, up to the same end: producers, with
        what is being asked about them, and epochs of which there are no batches."""
        assert other.log_end_offset == self.log_end_offset, "nobody inherits before it has everything"
        self.producers = other.producers
        self._has_stale_producers = other._has_stale_producers
        self.epochs.replace_all(other.epochs.entries)
        self.config = other.config

    def rename_away(self, unique_hex: str, mark: str) -> str:
        """Takes the log out of sight at once, under a name that ends in `mark`. Returns the new folder. This object
        must not be used any more: `is_gone` says so to anything that had queued work for it."""
        self.is_gone = True
        folder = self.segments.rename_folder(marked_folder(self.topic, self.partition, unique_hex, mark))
        # Whoever was to hear of it refers to this log: without that, its memory is free without a search for garbage.
        self.on_roll = None
        self.segments.on_failed_disk = nobody_hears
        return folder
