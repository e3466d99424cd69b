"""One partition on disk: an append-only log of record batches, in segments, in Kafka's files.

A `PartitionLog` is used by one thread, its owner's; `open` may run in another beforehand, and `Flush.run` and
`Deletion.run` beside it. It starts no thread and never waits for the device: what must be synced or unlinked is
handed out as a value to run elsewhere.

Appending looks at a batch's header only, writes the batch in one call with its offset and leader epoch put in, and
keeps the index entries in memory. Reading returns a range of a file, not bytes. Positions (`LogPosition`) carry the
segment and the byte beside the offset, so that a reader limited by the high watermark needs no look-up for it.

A failed write leaves no trace: the log ends where it ended before, the caller gets KAFKA_STORAGE_ERROR, and the
next append tries again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log import recovery, retention, timestamps
from barnabas.log.assigning import assigned_batch
from barnabas.log.files import FilePool
from barnabas.log.flushing import Flush
from barnabas.log.following import append_assigned
from barnabas.log.markers import append_marker
from barnabas.log.names import LEADER_EPOCH_CHECKPOINT, marked_folder, partition_folder
from barnabas.log.positions import Appended, FileRange, LogPosition
from barnabas.log.producer_state import last_sequence_of
from barnabas.log.reading import aborted_between, aborted_in_range, range_from
from barnabas.log.segments import Segments
from barnabas.log.truncating import cut_from
from barnabas.log.unsynced import FOLDER_ITSELF
from barnabas.log.validation import LOG_APPEND_TIME, check_client_batch
from barnabas.ports import SystemRandom
from barnabas.protocol.batch import LENGTH_OVERHEAD, TRANSACTIONAL_FLAG
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.config.topic import TopicConfig
    from barnabas.log.aborted_txns import AbortedTxn
    from barnabas.log.deletion import Deletion
    from barnabas.log.markers import EndMarker
    from barnabas.log.producer_state import Verification
    from barnabas.log.timestamps import TimestampedOffset
    from barnabas.ports import Clock, Disk, Random
    from barnabas.protocol.uuids import Uuid
    from barnabas.protocol.varint import Buffer

__all__ = ["Appended", "FileRange", "LogPosition", "PartitionLog"]

PRODUCER_ID_EXPIRATION_MS = 86_400_000


class PartitionLog:
    """Invariants: the log start and the recovery point are at most the log end; every offset below the log end has
    been given out, and a batch that was acknowledged lies below it."""

    __slots__ = (
        "_closed_as",
        "_disk",
        "_stable_position",
        "_truncations",
        "clock",
        "epochs",
        "is_gone",
        "is_used",
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
        self.is_gone = False
        self.is_used = False
        """Whether somebody read or wrote since this was last asked: only a log that nobody uses closes its files."""
        self.on_roll: Callable[[PartitionLog], None] | None = None
        """Called when a segment was closed: what it holds should be flushed soon, in another thread."""
        self._disk = disk
        self.clock = clock
        self._truncations = 0
        self._stable_position: LogPosition | None = None
        """Of the earliest open transaction, once a reader had to stop there."""
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
        """A new, empty log in a folder that does not exist yet. Nothing of it is durable before the first flush."""
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
        files: FilePool | None = None,
        random: Random | None = None,
        producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> PartitionLog:
        """The log in an existing folder, repaired where it must be. Safe to call in a worker thread."""
        loaded = recovery.load(
            disk,
            folder,
            partition_folder(topic, partition),
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown,
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
        """A changed setting takes effect with the next append, roll or retention."""
        self.segments.config = config

    @property
    def end_position(self) -> LogPosition:
        active = self.segments.active
        return LogPosition(self.log_end_offset, active.base_offset, active.size)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments.all)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch of which the log holds a batch, or -1."""
        return self.epochs.latest

    def begin_epoch(self, leader_epoch: int) -> None:
        """This replica leads from the log's end on, in a new epoch. The checkpoint has it from its first batch on: an
        epoch without batches leaves no trace, and a start with many partitions writes nothing for it."""
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def append_as_leader(
        self, batch: memoryview, leader_epoch: int, verification: Verification | None = None
    ) -> Appended:
        """Appends a client's batch at the end of the log, or finds that it is there already. The first batch of a
        transaction needs a `verification`.

        Raises KafkaError with Kafka's code when the batch is not acceptable or cannot be written; then nothing of it
        is in the log.
        """
        config = self.segments.config
        now_ms = self.clock.now_ms()
        fields = check_client_batch(batch, config, now_ms, self.name)
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
        stamp_ms = -1
        if config.message_timestamp_type == LOG_APPEND_TIME:
            stamp_ms = max_ms = now_ms
        assigned = assigned_batch(batch, fields, base_offset, leader_epoch, stamp_ms)
        self.write(assigned, length + LENGTH_OVERHEAD, last_offset, max_ms, now_ms, leader_epoch)
        if producer_id >= 0:
            entry = self.producers.append(
                producer_id, producer_epoch, sequence, last_sequence, base_offset, last_offset, max_ms
            )
            if is_transactional:
                self.producers.begin_txn(producer_id, entry, base_offset)
        return Appended(base_offset, last_offset, stamp_ms, self.log_start_offset, False)

    def append_marker(self, marker: EndMarker, leader_epoch: int) -> Appended:
        """Ends a producer's transaction. Raises KafkaError if the producer or the coordinator has been replaced."""
        return append_marker(self, marker, leader_epoch)

    def write(
        self, buffers: Sequence[Buffer], size: int, last_offset: int, max_ms: int, now_ms: int, leader_epoch: int
    ) -> None:
        """Writes one batch to the end of the log, in a new segment if it must."""
        segments = self.segments
        base_offset = self.log_end_offset
        if leader_epoch != self.epochs.latest:
            self.begin_epoch(leader_epoch)
        if not self.epochs.is_saved:
            self.save_epochs()
        if segments.must_roll(size, last_offset, max_ms, now_ms):
            self.roll(base_offset)
        self.is_used = True
        position = segments.write(buffers, size)
        segments.index_batch(base_offset, last_offset, position, size, max_ms)
        self.log_end_offset = last_offset + 1

    def append_at(self, batches: memoryview) -> Appended | None:
        """Appends batches that have their offsets and epochs already, as a follower or a Raft log does.

        A batch that is cut off at the end is left out; None when there is no whole one. Raises KafkaError when a
        batch is corrupt or cannot be written, UnexpectedOffsetError when they do not continue the log.
        """
        return append_assigned(self, batches)

    def read(self, offset: int, max_bytes: int, limit: LogPosition, *, whole_first_batch: bool) -> FileRange | None:
        """The bytes of batches from the one that holds `offset` on, up to `limit`; None when there are none to give.

        With `whole_first_batch` the first batch comes whole even if it is larger than `max_bytes`. After it, the
        range may end within a batch. All bytes of a range lie in one segment.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.name}, which has {self.log_start_offset}–{self.log_end_offset}",
            )
        if offset >= limit.offset:
            return None
        self.is_used = True
        return range_from(self.segments, offset, max_bytes, limit, whole_first_batch=whole_first_batch)

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
        """The first record at or after a point in time; None when all are older."""
        return timestamps.first_at_or_after(self.segments, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The first record with the largest timestamp; None in a log without timestamps."""
        return timestamps.with_largest_timestamp(self.segments, self.log_start_offset)

    def unread_timestamps(self, timestamp: int) -> timestamps.Unread | None:
        """What `offset_by_timestamp` would read first in a log that was found on disk: better done in a thread."""
        return timestamps.unread(self.segments, timestamp, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch at most `epoch`, the offset after its last record); (-1, -1) when that is not known."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """How far a reader of committed data may read: to the first open transaction, or the high watermark."""
        return max(self.producers.last_stable_offset(high_watermark), self.log_start_offset)

    def last_stable_position(self, high_watermark: LogPosition) -> LogPosition:
        stable = self.last_stable_offset(high_watermark.offset)
        if stable >= high_watermark.offset:
            return high_watermark
        if self._stable_position is None or self._stable_position.offset != stable:
            self._stable_position = self.position_of(stable)
        return self._stable_position

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that have records between two offsets, in the order of their end markers."""
        return aborted_between(self.segments, offset, end_offset)

    def aborted_in(self, found: FileRange, offset: int) -> list[AbortedTxn]:
        """The aborted transactions that may have records in what was read from `offset` on."""
        return aborted_in_range(self.segments, found, offset, self.log_end_offset)

    def roll(self, base_offset: int) -> None:
        """Closes the active segment and begins a new one at the log's end, or at a later offset that follows."""
        if base_offset == self.segments.active.base_offset:
            return
        self.segments.roll(base_offset, self.producers.producers)
        if self.on_roll is not None:
            self.on_roll(self)

    def apply_retention(self, high_watermark: int) -> int:
        """Drops the segments that the topic's settings let go. Returns how many; their files are in `deletions`."""
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
            # A full disk has no room for the segment that must take the active one's place, but the others are gone.
            self.roll(self.log_end_offset)
            self._drop_oldest(1)
        self.save_epochs()
        return count

    def take_due_deletions(self) -> list[Deletion]:
        """Files of dropped segments whose time has come: to be run, in any thread."""
        return self.segments.take_due_deletions()

    def put_off(self, deletion: Deletion) -> None:
        """A deletion that was taken could not be run: it will be due again."""
        self.segments.put_off(deletion)

    def advance_log_start(self, offset: int) -> None:
        """Records before `offset` no longer exist for readers. Segments that end before it go with retention."""
        if offset > self.log_end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE, f"{self.name} cannot start at {offset}: it ends at {self.log_end_offset}"
            )
        if offset > self.log_start_offset:
            self._set_log_start(offset)
            self.save_epochs()

    def truncate_to(self, offset: int) -> bool:
        """Removes everything from `offset` on, as a follower does that has what its leader has not. True if there
        was anything. When a batch straddles the offset, it goes too."""
        self.epochs.truncate_from_end(min(offset, self.log_end_offset))
        if offset >= self.log_end_offset:
            return False
        self.save_epochs()
        if offset < self.segments.all[0].base_offset:
            self.truncate_fully(offset)
            return True
        self._truncations += 1
        self._stable_position = None
        cut_from(self, offset)
        return True

    def truncate_fully(self, offset: int) -> None:
        """Removes everything and lets the log go on at `offset`."""
        self._truncations += 1
        self._stable_position = None
        self.segments.replace_all(offset)
        self.epochs.clear()
        self.save_epochs()
        self.producers.clear(offset)
        self.log_start_offset = self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    def prepare_flush(self) -> Flush:
        """What to sync so that all that is in the log now survives the machine."""
        self.save_epochs()
        segments = self.segments
        paths, folders = segments.begin_sync()
        if self.log_end_offset > self.recovery_point:
            paths += (segment.log_path for segment in segments.all[segments.number_of(self.recovery_point) :])
        return Flush(self.log_end_offset, tuple(paths), folders, self._truncations)

    def flushed(self, flush: Flush) -> None:
        """A flush has run: the log need not be checked before its end offset after a crash."""
        if flush.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)
            self.last_flush_ms = self.clock.now_ms()
            self.segments.unsynced.end()

    def flush(self) -> None:
        """Syncs everything, here and now. Waits for the device."""
        flush = self.prepare_flush()
        try:
            flush.run(self._disk)
        except OSError as error:
            raise self.segments.storage_error("flush", error) from error
        self.flushed(flush)

    def expire_producers(self, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> int:
        return self.producers.expire(self.clock.now_ms(), expiration_ms)

    def release_if_idle(self) -> bool:
        """Called now and then: closes the files of a log that nobody used since the last call. True if it did."""
        if self.is_used:
            self.is_used = False
            return False
        was_awake = self.segments.is_awake()
        self.segments.release()
        return was_awake

    def close(self) -> None:
        """Ends a clean life: indexes and producer state are written, everything is synced, files are closed."""
        # Where nothing happened since the last clean end, there is nothing to do: idle partitions stop at once.
        if self._closed_as != (self.end_position, self._truncations) or self.segments.unsynced:
            self.segments.finish()
            if self.log_end_offset > self.segments.active.base_offset:
                # A segment that begins at the end has its snapshot already.
                self.segments.snapshot_producers(self.log_end_offset, self.producers.producers)
            self.flush()
            self._closed_as = (self.end_position, self._truncations)
        self.segments.release()

    def rename_away(self, unique_hex: str, mark: str) -> str:
        """Takes the log out of sight at once, by a name that ends in `mark`. Returns the new folder. This object must
        not be used any more: `is_gone` says so to whoever had work with it in a queue."""
        self.is_gone = True
        return self.segments.rename_folder(marked_folder(self.topic, self.partition, unique_hex, mark))

    def save_epochs(self) -> None:
        """Brings the checkpoint up to date, if it is not."""
        if self.epochs.is_saved:
            return
        try:
            self.epochs.save()
        except OSError as error:
            raise self.segments.storage_error("note the leader epochs of", error) from error
        self.segments.unsynced.note(LEADER_EPOCH_CHECKPOINT, FOLDER_ITSELF)

    def _set_log_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)

    def _drop_oldest(self, count: int) -> None:
        # The start moves before any file goes, so that readers are told where the log starts even if not all of them
        # can be removed: what is left before the start goes next time. The caller saves the epochs afterwards: on a
        # full disk that fails.
        self._set_log_start(max(self.log_start_offset, self.segments.all[count].base_offset))
        self.segments.drop(self.segments.all[:count])
