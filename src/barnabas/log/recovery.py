"""Opening a partition's folder: what is there, what of it can be trusted, and what has to be rebuilt.

After a clean shutdown the files are right as they are: segments are known by their names and lengths, and only the last
few batches of the last segment are walked over to find the log's end. After a crash, everything from the recovery point
on (the log was synced up to there) is read once, batch by batch, including checksums: indexes and producer state are
rebuilt, and the log ends at the first thing that is not a whole, valid batch.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.folder.checkpoints import CheckpointError, read_topic_id, write_topic_id
from barnabas.log.folder.deletion import unlink_if_there
from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.producers import aborted_txns
from barnabas.log.producers.producer_snapshot import CorruptSnapshotError, read_snapshot, write_snapshot
from barnabas.log.producers.producer_state import ProducerState
from barnabas.log.segments import segment_index
from barnabas.log.segments.file_names import (
    CLEANED,
    DELETED,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    SEGMENT_FILES,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    offset_file,
    offset_name,
    parse_offset_file,
)
from barnabas.log.segments.segment import CorruptSegmentError, Segment, create_segment, walk
from barnabas.log.segments.segment_scan import check_batches, check_segment, scan
from barnabas.log.segments.unflushed_files import PARENT_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.producers.aborted_txns import AbortedTxn, Outline
    from barnabas.ports import Disk
    from barnabas.protocol.batch import BatchHeader
    from barnabas.protocol.uuids import Uuid

logger = logging.getLogger(__name__)

_NO_MORE_EPOCHS = 2**31 - 1


class Tail(NamedTuple):
    """The end of a segment."""

    end_offset: int
    bytes_since_index_entry: int


class _State(NamedTuple):
    """What is known while a folder is being opened; the lists, sets and objects in it change on the way."""

    disk: Disk
    config: TopicConfig
    segments: list[Segment]
    snapshots: list[int]
    producers: ProducerState
    epochs: LeaderEpochs
    unflushed: set[str]
    txn_outlines: dict[int, Outline]
    log_start_offset: int


class LoadedLog(NamedTuple):
    """What a folder holds, once it is ready for use."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    producers: ProducerState
    epochs: LeaderEpochs
    topic_id: Uuid | None
    is_clean: bool = False
    """Whether the files are as a clean shutdown left them."""
    unflushed: frozenset[str] = frozenset()
    """Names of files that were created or changed, and must be synced before the recovery point may move."""
    txn_outlines: Mapping[int, Outline] = MappingProxyType({})
    """Outlines of the indexes of aborted transactions, by the base offset of their segment."""


def create(disk: Disk, folder: str, partition_name: str, topic_id: Uuid, config: TopicConfig, now_ms: int) -> LoadedLog:
    """A new folder with an empty log."""
    disk.make_folder(folder)
    write_topic_id(disk, f"{folder}/{PARTITION_METADATA}", topic_id)
    first = create_segment(disk, folder, 0, config.segment_bytes if config.preallocate else 0)
    first.created_ms = now_ms
    made = frozenset((PARENT_FOLDER, PARTITION_METADATA, *_names_of(first)))
    producers, epochs = ProducerState(partition_name), LeaderEpochs(disk, folder)
    return LoadedLog([first], 0, 0, 0, producers, epochs, topic_id, unflushed=made)


def load(
    disk: Disk,
    folder: str,
    partition_name: str,
    config: TopicConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean_shutdown: bool,
    unreplicated_from: int | None,
    now_ms: int,
    producer_expiration_ms: int,
) -> LoadedLog:
    """Everything that is known of a partition's folder. Repairs what it must, and logs a warning where it does."""
    bases, snapshots, txn_indexes = _survey(disk, folder)
    segments = [Segment(folder, base, disk.size(offset_file(folder, base, LOG))) for base in bases]
    epochs = _load_epochs(disk, folder, segments)
    producers = ProducerState(partition_name)
    state = _State(disk, config, segments, snapshots, producers, epochs, set(), {}, log_start_offset)
    damaged = _read_txn_indexes(state, folder, txn_indexes)
    tail = _trust(state) if clean_shutdown and damaged is None else None
    if segments and tail is None:
        checked_from = segments[-1].base_offset if clean_shutdown else recovery_point
        if damaged is not None and damaged < checked_from:
            _require_whole(state, damaged, checked_from)
            checked_from = damaged
        _recover(state, checked_from)
        tail = _find_tail(disk, segments[-1])
    if tail is None or tail.end_offset < log_start_offset:
        _start_over(state, folder)
        tail = Tail(log_start_offset, 0)

    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(tail.end_offset)
    epochs.truncate_from_start(log_start_offset)
    if not epochs.is_saved:
        epochs.save()
        state.unflushed.add(LEADER_EPOCH_CHECKPOINT)
    _remove_stray_snapshots(disk, folder, snapshots, segments)
    if state.producers.end_offset != tail.end_offset:
        if clean_shutdown and not snapshots:
            # A clean shutdown leaves a snapshot if there are producers: without one there is nothing to replay.
            state.producers.clear(tail.end_offset)
        else:
            _restore_producers(disk, state.producers, segments, snapshots, log_start_offset, tail.end_offset)
    if clean_shutdown and unreplicated_from is not None and unreplicated_from < tail.end_offset:
        state.producers.hold_back(unreplicated_from, tail.end_offset - 1)
    state.producers.expire(now_ms, producer_expiration_ms)
    segments[-1].created_ms = now_ms
    segments[-1].bytes_since_index_entry = tail.bytes_since_index_entry
    return LoadedLog(
        segments,
        log_start_offset,
        tail.end_offset,
        tail.end_offset if clean_shutdown else min(recovery_point, tail.end_offset),
        state.producers,
        epochs,
        read_topic_id(disk, f"{folder}/{PARTITION_METADATA}"),
        clean_shutdown,
        frozenset(state.unflushed),
        state.txn_outlines,
    )


def _trust(state: _State) -> Tail | None:
    """The end of a log that was shut down cleanly; None if there is no log, or its end contradicts that."""
    if not state.segments:
        return None
    _rebuild_missing_indexes(state, state.segments)
    last = state.segments[-1]
    try:
        return _find_tail(state.disk, last)
    except (CorruptSegmentError, segment_index.CorruptIndexError) as error:
        logger.warning("recovering %s although it was shut down cleanly: %s", last.log_path, error)
        return None


def _recover(state: _State, recovery_point: int) -> None:
    """Checks everything from the segment that holds the recovery point on."""
    disk, segments = state.disk, state.segments
    first = _number_of(segments, recovery_point)
    _rebuild_missing_indexes(state, segments[:first])
    start = segments[first].base_offset
    _restore_producers(disk, state.producers, segments, state.snapshots, state.log_start_offset, start)
    _recover_segments(state, first)
    state.unflushed.update(name for segment in segments[first:] for name in _names_of(segment))
    # The previous process may not have synced what it wrote beside these batches either.
    state.unflushed.update((PARENT_FOLDER, PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT))


def _require_whole(state: _State, first_offset: int, end_offset: int) -> None:
    """Raises CorruptSegmentError if there is damage in segments that were synced long ago. Recovery goes over them to
    rebuild what lies beside them, and would take the damage for a torn end: all behind it would go."""
    for segment in state.segments[_number_of(state.segments, first_offset) : _number_of(state.segments, end_offset)]:
        valid_bytes, next_offset = check_batches(state.disk, segment)
        if valid_bytes < segment.size:
            raise CorruptSegmentError(_damage(segment, valid_bytes, next_offset))


def _damage(segment: Segment, position: int, offset: int) -> str:
    return (
        f"{segment.log_path} is damaged at position {position}, where offset {offset} or a later one should be. "
        "No data was removed; restore the file from a copy, or remove the folder of the partition if another "
        "replica has its records"
    )


class ProducerReload(NamedTuple):
    """Finds out what was known of producers at the end of a truncated log. It may have to read a whole segment, and so
    is run in a thread; nothing is written to the log meanwhile."""

    disk: Disk
    partition_name: str
    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    truncations: int
    """How often the log had been truncated."""

    def run(self) -> ProducerState:
        found = map(parse_offset_file, self.disk.list_folder(self.segments[0].folder))
        snapshots = sorted(file[0] for file in found if file is not None and file[1] == PRODUCER_SNAPSHOT)
        producers = ProducerState(self.partition_name)
        start, end = self.log_start_offset, self.log_end_offset
        _restore_producers(self.disk, producers, self.segments, snapshots, start, end)
        return producers


def rebuild_indexes(disk: Disk, segment: Segment, config: TopicConfig) -> None:
    """Rebuilds the offset and time index of one segment from its batches. The log itself stays as it is, even if it is
    damaged: whoever reads it from there on learns that, and what lies behind is still there for an operator."""
    rebuilt = segment_index.ActiveIndex.cleared(disk, segment.folder, segment.base_offset)
    valid_bytes, next_offset = check_segment(
        disk, segment, config.index_interval_bytes, rebuilt, _NO_MORE_EPOCHS, lambda _header, _batch: None
    )
    if valid_bytes < segment.size:
        logger.warning("%s", _damage(segment, valid_bytes, next_offset))
    rebuilt.write_pending()
    if segment.index is not None:
        segment.index = rebuilt


def _survey(disk: Disk, folder: str) -> tuple[list[int], list[int], list[int]]:
    """(base offsets of segments, offsets of producer snapshots, base offsets of the segments with an index of aborted
    transactions), in ascending order, once leftovers are out of the way."""
    names = disk.list_folder(folder)
    if any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
        _finish_interrupted_work(disk, folder, names)
        names = disk.list_folder(folder)
    found: dict[str, list[int]] = {suffix: [] for suffix in (*SEGMENT_FILES, PRODUCER_SNAPSHOT)}
    for name in names:
        if (parsed := parse_offset_file(name)) is not None:
            found[parsed[1]].append(parsed[0])
    segments = set(found[LOG])
    for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX):
        for base in found[suffix]:
            if base not in segments:
                logger.warning("removing %s, which has no segment", offset_file(folder, base, suffix))
                disk.unlink(offset_file(folder, base, suffix))
    return sorted(segments), sorted(found[PRODUCER_SNAPSHOT]), sorted(segments.intersection(found[TXN_INDEX]))


def _read_txn_indexes(state: _State, folder: str, bases: list[int]) -> int | None:
    """Reads the outlines of the indexes of aborted transactions. Returns the first segment whose index is damaged."""
    for base in bases:
        try:
            state.txn_outlines[base] = aborted_txns.read_outline(state.disk, folder, base)
        except segment_index.CorruptIndexError as error:
            logger.warning("rebuilding an index of aborted transactions: %s", error)
            return base
    return None


def _finish_interrupted_work(disk: Disk, folder: str, names: list[str]) -> None:
    """Removes what was deleted or only partly written, and completes swaps of segments that were decided.

    Cleaned segments replace the old ones by way of `.swap` names. A swap is decided once all its files have such names;
    while `.cleaned` names are left, swaps from the lowest of those offsets on are not. The `.cleaned` files go last, so
    that they say so to the start after this one, too, if this one does not get that far.
    """
    undecided = min(_offsets_of(names, CLEANED), default=None)
    for name in names:
        if name.endswith(DELETED) and not name.endswith(f".checkpoint{DELETED}"):
            unlink_if_there(disk, f"{folder}/{name}")
    decided = {base for base in _offsets_of(names, SWAP) if undecided is None or base < undecided}
    for base in sorted(decided):
        if offset_name(base, LOG + SWAP) in names:
            _make_room_for_swap(disk, folder, base, names)
    swapped = [name.removesuffix(SWAP) for name in names if name.endswith(SWAP)]
    # The batches first: an index with the name of a segment's belongs to an old one as long as they are not in place.
    for name in sorted(swapped, key=lambda name: not name.endswith(LOG)):
        parsed = parse_offset_file(name)
        if parsed is not None and parsed[0] in decided:
            disk.rename(f"{folder}/{name}{SWAP}", f"{folder}/{name}")
        else:
            disk.unlink(f"{folder}/{name}{SWAP}")
    for name in names:
        if name.endswith(CLEANED):
            unlink_if_there(disk, f"{folder}/{name}")


def _offsets_of(names: list[str], mark: str) -> list[int]:
    """The offsets in the names of the segment files that carry a mark."""
    parsed = (parse_offset_file(name.removesuffix(mark)) for name in names if name.endswith(mark))
    return [file[0] for file in parsed if file is not None]


def _make_room_for_swap(disk: Disk, folder: str, base: int, names: list[str]) -> None:
    """Removes the segments whose offsets the one swapped in covers."""
    path = offset_file(folder, base, LOG) + SWAP
    end = base + 1
    for header, _, _ in scan(disk, path, 0, disk.size(path)):
        end = header.next_offset
    for name in names:
        if (parsed := parse_offset_file(name)) is not None and parsed[1] in SEGMENT_FILES and base <= parsed[0] < end:
            unlink_if_there(disk, f"{folder}/{name}")


def _load_epochs(disk: Disk, folder: str, segments: list[Segment]) -> LeaderEpochs:
    try:
        return LeaderEpochs.load(disk, folder)
    except CheckpointError as error:
        logger.warning("reading the leader epochs from the log instead: %s", error)
    epochs = LeaderEpochs(disk, folder)
    for segment in segments:
        for header, _, _ in scan(disk, segment.log_path, 0, segment.size):
            _take_epoch(epochs, header)
    epochs.is_saved = False
    return epochs


def _take_epoch(epochs: LeaderEpochs, header: BatchHeader) -> None:
    if header.partition_leader_epoch > epochs.latest:
        epochs.assign(header.partition_leader_epoch, header.base_offset)


def _rebuild_missing_indexes(state: _State, segments: list[Segment]) -> None:
    if not segments:
        return
    present = set(state.disk.list_folder(segments[0].folder))
    for segment in segments:
        if any(offset_name(segment.base_offset, suffix) not in present for suffix in (OFFSET_INDEX, TIME_INDEX)):
            logger.warning("rebuilding the indexes of %s: one is missing", segment.log_path)
            rebuild_indexes(state.disk, segment, state.config)
            state.unflushed.update(_names_of(segment))


def _number_of(segments: list[Segment], offset: int) -> int:
    return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)


def _find_tail(disk: Disk, segment: Segment) -> Tail:
    """The end of a segment, found by walking there from its last index entry."""
    position = segment_index.last_offset_entry(disk, segment.folder, segment.base_offset).position
    end_offset = segment.base_offset
    if position and position >= segment.size:
        raise segment_index.CorruptIndexError(f"the index of {segment.log_path} points past its end, to {position}")
    if segment.size:
        fd = disk.open(segment.log_path, os.O_RDONLY)
        try:
            for batch in walk(disk, fd, segment.base_offset, position, segment.size):
                end_offset = batch.last_offset + 1
        finally:
            disk.close(fd)
    return Tail(end_offset, segment.size - position)


def _recover_segments(state: _State, first: int) -> None:
    """Checks the segments from `first` on. The log ends at a corrupt batch: later segments go."""
    disk, segments = state.disk, state.segments
    for number in range(first, len(segments)):
        segment = segments[number]
        if number > first:
            path = offset_file(segment.folder, segment.base_offset, PRODUCER_SNAPSHOT)
            write_snapshot(disk, path, state.producers.producers)
        if _recover_segment(state, segment):
            continue
        for later in segments[number + 1 :]:
            logger.warning("removing %s, which follows corrupt data", later.log_path)
            _unlink_segment(disk, later)
            state.txn_outlines.pop(later.base_offset, None)
        del segments[number + 1 :]
        break


def _recover_segment(state: _State, segment: Segment) -> bool:
    """Rebuilds indexes and producer state, and truncates the file after the last valid batch. True if there was no
    need to."""
    disk, producers, epochs = state.disk, state.producers, state.epochs
    rebuilt = segment_index.ActiveIndex.cleared(disk, segment.folder, segment.base_offset)
    unlink_if_there(disk, offset_file(segment.folder, segment.base_offset, TXN_INDEX))
    state.txn_outlines.pop(segment.base_offset, None)
    aborted: list[AbortedTxn] = []

    def take(header: BatchHeader, batch: memoryview) -> None:
        _take_epoch(epochs, header)
        txn = producers.replay(header, batch)
        if txn is not None:
            aborted.append(txn)

    interval = state.config.index_interval_bytes
    valid_bytes, producers.end_offset = check_segment(disk, segment, interval, rebuilt, epochs.latest, take)
    rebuilt.write_pending()
    if aborted:
        outline = aborted_txns.write_entries(disk, segment.folder, segment.base_offset, aborted)
        state.txn_outlines[segment.base_offset] = outline
    if valid_bytes == segment.size:
        return True
    logger.warning(
        "truncating %s to %d of %d bytes: no valid batch follows", segment.log_path, valid_bytes, segment.size
    )
    segment_index.cut_file(disk, segment.log_path, valid_bytes)
    segment.size = valid_bytes
    return False


def _restore_producers(
    disk: Disk, producers: ProducerState, segments: list[Segment], snapshots: list[int], start: int, end: int
) -> None:
    """Brings the producer state to offset `end`, from the newest valid snapshot before it and the batches after that.

    Snapshots beyond `end`, and corrupt ones, are removed.
    """
    folder = segments[0].folder
    producers.clear(start)
    while snapshots and snapshots[-1] >= start:
        offset = snapshots[-1]
        path = offset_file(folder, offset, PRODUCER_SNAPSHOT)
        if offset <= end:
            try:
                producers.restore(read_snapshot(disk, path), offset)
                break
            except CorruptSnapshotError as error:
                logger.warning("removing the producer snapshot %s: %s", path, error)
        disk.unlink(path)
        snapshots.pop()
    for segment in segments[_number_of(segments, producers.end_offset) :]:
        if segment.base_offset >= end or producers.end_offset == end:
            break
        _replay_segment(disk, producers, segment, end)
    producers.end_offset = end


def _replay_segment(disk: Disk, producers: ProducerState, segment: Segment, end: int) -> None:
    try:
        position = segment_index.lookup_offset(disk, segment.folder, segment.base_offset, producers.end_offset).position
    except segment_index.CorruptIndexError as error:
        logger.warning("reading the segment from its beginning: %s", error)
        position = 0
    for header, _, data in scan(disk, segment.log_path, position, segment.size):
        if header.base_offset >= end:
            return
        if header.last_offset >= producers.end_offset:
            producers.replay(header, data)


def _remove_stray_snapshots(disk: Disk, folder: str, snapshots: list[int], segments: list[Segment]) -> None:
    """Keeps the snapshots at the beginning of segments, and the newest of the others if it is in the last segment."""
    bases = {segment.base_offset for segment in segments}
    strays = [offset for offset in snapshots if offset not in bases]
    if strays and strays[-1] > segments[-1].base_offset:
        strays.pop()
    for offset in strays:
        unlink_if_there(disk, offset_file(folder, offset, PRODUCER_SNAPSHOT))
        snapshots.remove(offset)


def _start_over(state: _State, folder: str) -> None:
    """Begins an empty log at the log start offset, in place of none, or of one that ends before it starts."""
    start = state.log_start_offset
    for segment in state.segments:
        logger.warning("removing %s, which ends before the log starts at offset %d", segment.log_path, start)
        _unlink_segment(state.disk, segment)
    state.txn_outlines.clear()
    state.segments[:] = [create_segment(state.disk, folder, start, 0)]
    state.unflushed.update(_names_of(state.segments[0]))
    state.producers.clear(start)
    state.epochs.clear()


def _names_of(segment: Segment) -> list[str]:
    """The name of every file that belongs to a segment."""
    return [offset_name(segment.base_offset, suffix) for suffix in (*SEGMENT_FILES, PRODUCER_SNAPSHOT)]


def _unlink_segment(disk: Disk, segment: Segment) -> None:
    for name in _names_of(segment):
        unlink_if_there(disk, f"{segment.folder}/{name}")
