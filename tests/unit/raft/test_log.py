"""The metadata log on disk: torn, overwritten, reopened, trimmed."""

from __future__ import annotations

import copy
import os

import pytest

from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m
from barnabas.protocol import metadata_records
from barnabas.protocol.batch import build_batch
from barnabas.protocol.metadata_records import encode_record
from barnabas.protocol.record import Record
from barnabas.protocol.uuids import METADATA_TOPIC_ID, Uuid, to_text
from barnabas.raft.consensus.log_history import LogEnd, SnapshotId
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.metadata_batches import (
    NewerMetadataError,
    control_batch,
    data_batch,
    voters_messages,
)
from barnabas.raft.folder.metadata_log import (
    DamagedMetadataError,
    MetadataLog,
    MetadataLogLimits,
    MissingMetadataError,
    read_folder,
)
from barnabas.raft.folder.snapshots import snapshot_name, write_snapshot
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk

FOLDER = "/metadata"
LOG_FILE = f"{FOLDER}/00000000000000000000.log"
LIMITS = MetadataLogLimits()
VOTER = VoterNode(1, Uuid(b"d" * 16), (VoterEndpoint("CONTROLLER", "localhost", 9093),))
CLOCK = ManualClock()


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(CLOCK)
    disk.make_folder(FOLDER)
    disk.sync_dir("/")
    return disk


def open_log(disk: SimulatedDisk, limits: MetadataLogLimits = LIMITS) -> MetadataLog:
    return MetadataLog.open(FOLDER, read_folder(disk, FOLDER), limits, disk=disk, clock=CLOCK)


def topics(offset: int, count: int, epoch: int = 1) -> bytes:
    records = [VersionedRecord(m.TopicRecord(name=f"t{offset + number}"), 0) for number in range(count)]
    return data_batch(records, base_offset=offset, epoch=epoch, timestamp_ms=1000 + offset)


def flush(log: MetadataLog, disk: SimulatedDisk) -> None:
    prepared = log.prepare_flush()
    prepared.run(disk)
    log.flushed(prepared)


def write(disk: SimulatedDisk, *batches: bytes) -> MetadataLog:
    log = open_log(disk)
    for batch in batches:
        log.append(batch)
    flush(log, disk)
    return log


def topic_names(disk: SimulatedDisk) -> list[str]:
    content = read_folder(disk, FOLDER)
    kept = content.snapshot.records if content.snapshot else ()
    records = [*kept, *(record for batch in content.batches for record in batch.records)]
    return [record.name for record in records if isinstance(record, m.TopicRecord)]


def overwrite(disk: SimulatedDisk, path: str, position: int, data: bytes) -> None:
    fd = disk.open(path, os.O_RDWR)
    disk.pwrite(fd, data, position)
    disk.close(fd)


def cut(disk: SimulatedDisk, path: str, length: int) -> None:
    fd = disk.open(path, os.O_RDWR)
    disk.truncate(fd, length)
    disk.close(fd)


def test_an_empty_folder_becomes_an_empty_log_with_kafkas_topic_id(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    assert (log.end, log.start_offset, log.snapshots) == (LogEnd(0, 0), 0, ())
    fd = disk.open(f"{FOLDER}/partition.metadata", os.O_RDONLY)
    assert disk.pread(fd, 100, 0).decode().split() == ["version:", "0", "topic_id:", to_text(METADATA_TOPIC_ID)]


def test_batches_are_read_back_after_the_log_was_opened_again(disk: SimulatedDisk) -> None:
    write(disk, topics(0, 3), topics(3, 2, epoch=2)).close()
    content = read_folder(disk, FOLDER)
    assert [(batch.base_offset, batch.last_offset, batch.epoch) for batch in content.batches] == [(0, 2, 1), (3, 4, 2)]
    assert open_log(disk).end == LogEnd(2, 5)


@pytest.mark.parametrize(
    ("value", "record"),
    [(b"\x01\x63\x00", "unknown metadata record type 99"), (b"\x01\x02\x07", "TopicRecord has versions 0-0, not 7")],
    ids=["type", "version"],
)
def test_a_record_of_newer_software_is_named_and_nothing_is_taken_for_damaged(
    disk: SimulatedDisk, value: bytes, record: str
) -> None:
    newer = [Record(timestamp=0, value=encode_record(m.NoOpRecord(), 0)), Record(timestamp=0, value=value)]
    write(disk, topics(0, 3), build_batch(newer, base_offset=3, leader_epoch=1))
    with pytest.raises(NewerMetadataError, match=f"{FOLDER} .* offset 4 .* written by newer software .*{record}"):
        read_folder(disk, FOLDER)


def test_a_snapshot_of_newer_software_is_not_passed_over_as_if_it_were_broken(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(disk, topics(0, 3))
    with monkeypatch.context() as newer_software:
        newer_software.setitem(metadata_records.RECORD_NAMES, 98, "EndTxnMarker")
        newer_software.setattr(m.EndTxnMarker, "api_key", 98)
        records = [VersionedRecord(m.EndTxnMarker(), 0)]
        write_snapshot(disk, FOLDER, SnapshotId(3, 1), records, [VOTER], contained_timestamp_ms=0, now_ms=0)
    with pytest.raises(NewerMetadataError, match=r"-0000000001\.checkpoint .*unknown metadata record type 98"):
        read_folder(disk, FOLDER)


def test_what_was_flushed_survives_the_loss_of_power_and_what_was_not_leaves_no_trace(disk: SimulatedDisk) -> None:
    log = write(disk, topics(0, 2))
    log.append(topics(2, 2))
    disk.crash()
    assert topic_names(disk) == ["t0", "t1"]
    assert open_log(disk).end == LogEnd(1, 2)


def test_a_log_torn_at_any_byte_recovers_to_its_last_whole_batch(disk: SimulatedDisk) -> None:
    sizes = [0, 3, 1, 4, 2]
    ends, batches, offset = [0], [], 0
    for count in sizes[1:]:
        batches.append(topics(offset, count))
        offset += count
        ends.append(ends[-1] + len(batches[-1]))
    write(disk, *batches)
    for length in range(ends[-1] + 1):
        torn = copy.deepcopy(disk)
        cut(torn, LOG_FILE, length)
        whole = sum(end <= length for end in ends) - 1
        expected = sum(sizes[: whole + 1])
        assert len(topic_names(torn)) == expected
        log = open_log(torn)
        assert log.end.offset == expected
        log.append(topics(expected, 1, epoch=9))
        flush(log, torn)
        assert len(topic_names(torn)) == expected + 1


def test_a_batch_overwritten_with_garbage_at_any_byte_ends_the_log_before_it(disk: SimulatedDisk) -> None:
    first, last = topics(0, 2), topics(2, 2)
    write(disk, first, last)
    for position in range(len(first), len(first) + len(last)):
        broken = copy.deepcopy(disk)
        fd = broken.open(LOG_FILE, os.O_RDONLY)
        (byte,) = broken.pread(fd, 1, position)
        overwrite(broken, LOG_FILE, position, bytes([byte ^ 0xFF]))
        epoch_bytes = range(len(first) + 12, len(first) + 16)
        if position in epoch_bytes:
            # The checksum leaves the epoch out, so that leaders can set it.
            continue
        assert topic_names(broken) == ["t0", "t1"], position
        assert open_log(broken).end.offset == 2


def flip(disk: SimulatedDisk, path: str, position: int) -> None:
    fd = disk.open(path, os.O_RDONLY)
    (byte,) = disk.pread(fd, 1, position)
    overwrite(disk, path, position, bytes([byte ^ 0xFF]))


def files(disk: SimulatedDisk) -> dict[str, bytes]:
    def read(path: str) -> bytes:
        fd = disk.open(path, os.O_RDONLY)
        return disk.pread(fd, disk.size(path), 0)

    return {name: read(f"{FOLDER}/{name}") for name in disk.list_folder(FOLDER)}


def test_damage_before_a_whole_batch_is_refused_by_place_whatever_byte_it_hits(disk: SimulatedDisk) -> None:
    first, second, last = topics(0, 2), topics(2, 2), topics(4, 1)
    write(disk, first, second, last)
    for position in range(len(first), len(first) + len(second)):
        if position in range(len(first) + 12, len(first) + 16):
            # The checksum leaves the epoch out.
            continue
        broken = copy.deepcopy(disk)
        flip(broken, LOG_FILE, position)
        before = files(broken)
        with pytest.raises(DamagedMetadataError) as refused:
            read_folder(broken, FOLDER)
        place = f"{LOG_FILE} is damaged at position {len(first)}, where offset 2 should be"
        assert place in str(refused.value), position
        assert f"with offset 4 at position {len(first) + len(second)} of {LOG_FILE}." in str(refused.value)
        assert files(broken) == before


@pytest.mark.parametrize(
    "follows", [bytes(5000), bytes(range(256)) * 40, topics(2, 2)[:-20] + bytes(9000)], ids=["zeros", "garbage", "both"]
)
def test_a_torn_end_with_something_behind_it_that_is_no_batch_is_cut(disk: SimulatedDisk, follows: bytes) -> None:
    first, last = topics(0, 2), topics(2, 2)
    write(disk, first, last)
    for length in range(len(first), len(first) + len(last)):
        torn = copy.deepcopy(disk)
        cut(torn, LOG_FILE, length)
        overwrite(torn, LOG_FILE, length, follows)
        if files(torn)[LOG_FILE.rpartition("/")[2]].startswith(first + last):
            continue
        assert topic_names(torn) == ["t0", "t1"]
        assert open_log(torn).end.offset == 2
        assert torn.size(LOG_FILE) == len(first)


def test_damage_in_a_segment_is_refused_when_a_later_one_has_batches(disk: SimulatedDisk) -> None:
    limits = LIMITS._replace(segment_bytes=len(topics(0, 2)) + 10)
    log = open_log(disk, limits)
    for offset in (0, 2, 4):
        log.append(topics(offset, 2))
    flush(log, disk)
    second = f"{FOLDER}/00000000000000000002.log"
    torn = copy.deepcopy(disk)
    cut(torn, second, disk.size(second) - 1)
    with pytest.raises(DamagedMetadataError, match=f"{second} is damaged at position 0, where offset 2 should be"):
        read_folder(torn, FOLDER)
    missing = copy.deepcopy(disk)
    missing.unlink(second)
    with pytest.raises(DamagedMetadataError, match="where offset 2 should be"):
        read_folder(missing, FOLDER)
    cut(torn, f"{FOLDER}/00000000000000000004.log", 0)
    assert topic_names(torn) == ["t0", "t1"]
    assert open_log(torn, limits).end.offset == 2


def test_damage_before_the_end_of_a_snapshot_does_not_cost_what_follows_it(disk: SimulatedDisk) -> None:
    first = topics(0, 2)
    write(disk, first, topics(2, 2), topics(4, 1))
    write_snapshot(disk, FOLDER, SnapshotId(4, 1), [], [VOTER], contained_timestamp_ms=0, now_ms=0)
    flip(disk, LOG_FILE, len(first) + 30)
    with pytest.raises(DamagedMetadataError, match=f"{LOG_FILE} is damaged at position {len(first)}"):
        read_folder(disk, FOLDER)


def test_a_log_that_ends_before_a_snapshot_that_cannot_be_read_is_refused(disk: SimulatedDisk) -> None:
    write(disk, topics(0, 5))
    write_snapshot(disk, FOLDER, SnapshotId(3, 1), [], [VOTER], contained_timestamp_ms=0, now_ms=0)
    newest = write_snapshot(disk, FOLDER, SnapshotId(5, 1), [], [VOTER], contained_timestamp_ms=0, now_ms=0)
    cut(disk, newest, 10)
    assert read_folder(disk, FOLDER).end_offset == 5
    cut(disk, LOG_FILE, 0)
    with pytest.raises(MissingMetadataError, match=f"{newest} cannot be read, and the log ends at offset 3"):
        read_folder(disk, FOLDER)


def test_a_log_that_lost_all_that_its_snapshot_holds_goes_on_from_the_snapshot(disk: SimulatedDisk) -> None:
    write(disk, topics(0, 5))
    records = [VersionedRecord(m.TopicRecord(name=f"t{number}"), 0) for number in range(5)]
    write_snapshot(disk, FOLDER, SnapshotId(5, 1), records, [VOTER], contained_timestamp_ms=0, now_ms=0)
    cut(disk, LOG_FILE, 0)
    log = open_log(disk)
    assert log.end == LogEnd(1, 5)
    log.append(topics(5, 1, epoch=2))
    flush(log, disk)
    assert topic_names(disk) == [f"t{number}" for number in range(6)]


def test_a_log_without_its_beginning_and_without_a_snapshot_is_refused(disk: SimulatedDisk) -> None:
    log = write(disk, topics(0, 2))
    records = [VersionedRecord(m.TopicRecord(name="t"), 0)]
    write_snapshot(disk, FOLDER, SnapshotId(2, 1), records, [VOTER], contained_timestamp_ms=0, now_ms=0)
    log.snapshot_completed(SnapshotId(2, 1))
    log.append(topics(2, 1))
    flush(log, disk)
    disk.unlink(LOG_FILE)
    disk.unlink(f"{FOLDER}/{snapshot_name(SnapshotId(2, 1))}")
    with pytest.raises(MissingMetadataError, match="starts at offset 2, and no snapshot"):
        read_folder(disk, FOLDER)


def test_the_newest_voters_are_those_that_the_log_names_last(disk: SimulatedDisk) -> None:
    moved = VOTER._replace(endpoints=(VoterEndpoint("CONTROLLER", "elsewhere", 1),))
    write(
        disk,
        control_batch(voters_messages([VOTER]), base_offset=0, epoch=1, timestamp_ms=0),
        control_batch(voters_messages([moved]), base_offset=2, epoch=2, timestamp_ms=0),
    )
    content = read_folder(disk, FOLDER)
    assert (content.voters, content.kraft_version, content.are_voters_in_log) == ((moved,), 1, True)


def test_retention_keeps_a_snapshot_and_everything_after_its_end(disk: SimulatedDisk) -> None:
    log = open_log(disk, LIMITS._replace(retention_bytes=1))
    for end in (4, 8, 12):
        log.append(topics(end - 4, 4))
        flush(log, disk)
        records = [VersionedRecord(m.TopicRecord(name=f"t{number}"), 0) for number in range(end)]
        write_snapshot(disk, FOLDER, SnapshotId(end, 1), records, [VOTER], contained_timestamp_ms=0, now_ms=0)
        for path in log.snapshot_completed(SnapshotId(end, 1)):
            disk.unlink(path)
    log.append(topics(12, 1))
    flush(log, disk)
    assert log.snapshots == (SnapshotId(12, 1),)
    assert log.start_offset == 12
    assert [name for name in sorted(disk.list_folder(FOLDER)) if name.endswith((".log", ".checkpoint"))] == [
        "00000000000000000012-0000000001.checkpoint",
        "00000000000000000012.log",
    ]
    assert len(topic_names(disk)) == 13


def test_snapshots_within_their_retention_are_all_kept(disk: SimulatedDisk) -> None:
    log = write(disk, topics(0, 4))
    for end in (2, 4):
        write_snapshot(disk, FOLDER, SnapshotId(end, 1), [], [VOTER], contained_timestamp_ms=0, now_ms=0)
        assert log.snapshot_completed(SnapshotId(end, 1)) == []
    assert log.snapshots == (SnapshotId(2, 1), SnapshotId(4, 1))
    assert log.start_offset == 0


def test_a_misleading_index_does_not_hide_batches(disk: SimulatedDisk) -> None:
    batches = [topics(number * 50, 50) for number in range(20)]
    log = write(disk, *batches)
    log.close()
    write_snapshot(disk, FOLDER, SnapshotId(900, 1), [], [VOTER], contained_timestamp_ms=0, now_ms=0)
    index = f"{FOLDER}/00000000000000000000.index"
    assert disk.size(index) > 0
    for position in range(4, disk.size(index), 8):
        overwrite(disk, index, position, b"\x00\x00\x10\x01")
    assert read_folder(disk, FOLDER).end_offset == 1000
    assert open_log(disk).end.offset == 1000
