"""The files of the quorum: quorum-state, snapshots, bootstrap.checkpoint, and a formatted folder."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.versions import VersionedRecord
from barnabas.ports import SystemDisk
from barnabas.protocol import messages as m
from barnabas.protocol.uuids import Uuid
from barnabas.raft.consensus.log_history import BOOTSTRAP, SnapshotId
from barnabas.raft.consensus.messages import HardState
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.format import format_metadata, read_bootstrap
from barnabas.raft.folder.metadata_log import read_folder
from barnabas.raft.folder.quorum_state import (
    QuorumStateError,
    read_quorum_state,
    read_static_voters,
    write_quorum_state,
)
from barnabas.raft.folder.snapshots import (
    CorruptCheckpointError,
    list_snapshots,
    parse_name,
    read_snapshot,
    remove_leftovers,
    snapshot_name,
    write_snapshot,
)
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY = Uuid(b"d" * 16)
VOTER = VoterNode(1, DIRECTORY, (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),))


def simulated_disk() -> SimulatedDisk:
    disk = SimulatedDisk(ManualClock())
    disk.make_folder("/data")
    disk.sync_dir("/")
    return disk


def no_ops(count: int) -> list[VersionedRecord]:
    return [VersionedRecord(m.TopicRecord(name=f"t{number}"), 0) for number in range(count)]


def test_the_quorum_state_is_kafkas_json(tmp_path: Path) -> None:
    write_quorum_state(SystemDisk(), str(tmp_path), HardState(3, leader_id=1))
    assert (tmp_path / "quorum-state").read_text() == (
        '{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


def test_the_quorum_state_is_read_back_and_a_new_node_has_none() -> None:
    disk = simulated_disk()
    assert read_quorum_state(disk, "/data") == HardState()
    state = HardState(5, voted_id=2, voted_directory_id=DIRECTORY)
    write_quorum_state(disk, "/data", state)
    assert read_quorum_state(disk, "/data") == state


def test_the_quorum_state_of_a_statically_configured_quorum_is_understood(tmp_path: Path) -> None:
    old = (
        '{"clusterId":"","leaderId":1,"leaderEpoch":9,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    (tmp_path / "quorum-state").write_text(old)
    assert read_quorum_state(SystemDisk(), str(tmp_path)) == HardState(9, leader_id=1)
    assert read_static_voters(SystemDisk(), str(tmp_path)) == (1,)
    write_quorum_state(SystemDisk(), str(tmp_path), HardState(9, leader_id=1), static_voters=[1])
    assert (tmp_path / "quorum-state").read_text() == old


def test_a_quorum_state_survives_the_loss_of_power_once_it_is_written() -> None:
    disk = simulated_disk()
    write_quorum_state(disk, "/data", HardState(5, leader_id=1))
    disk.crash()
    assert read_quorum_state(disk, "/data") == HardState(5, leader_id=1)


def test_a_quorum_state_that_cannot_be_written_leaves_the_old_one() -> None:
    disk = simulated_disk()
    write_quorum_state(disk, "/data", HardState(5, leader_id=1))
    disk.fail("fsync", errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_quorum_state(disk, "/data", HardState(6, leader_id=1))
    disk.heal()
    disk.crash()
    assert read_quorum_state(disk, "/data") == HardState(5, leader_id=1)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"leaderEpoch":"x"}', '{"leaderEpoch":1,"votedDirectoryId":"?"}'])
def test_an_unreadable_quorum_state_is_refused_and_not_guessed(tmp_path: Path, text: str) -> None:
    (tmp_path / "quorum-state").write_text(text)
    with pytest.raises(QuorumStateError, match="quorum-state is not a valid quorum state"):
        read_quorum_state(SystemDisk(), str(tmp_path))


def test_a_snapshot_is_read_back_with_its_voters_and_records() -> None:
    disk = simulated_disk()
    records = no_ops(2500)
    snapshot_id = SnapshotId(77, 4)
    path = write_snapshot(disk, "/data", snapshot_id, records, [VOTER], contained_timestamp_ms=5, now_ms=9)
    assert path == "/data/00000000000000000077-0000000004.checkpoint"
    snapshot = read_snapshot(disk, "/data", snapshot_id)
    assert (snapshot.id, snapshot.timestamp_ms, snapshot.kraft_version) == (snapshot_id, 5, 1)
    assert snapshot.voters == (VOTER,)
    assert list(snapshot.records) == [record.message for record in records]


def test_a_snapshot_is_durable_when_it_is_written_and_invisible_before() -> None:
    disk = simulated_disk()
    disk.fail("fsync", errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_snapshot(disk, "/data", SnapshotId(7, 1), no_ops(1), [VOTER], contained_timestamp_ms=0, now_ms=0)
    assert list_snapshots(disk, "/data") == []
    disk.heal()
    remove_leftovers(disk, "/data")
    assert disk.list_folder("/data") == []
    write_snapshot(disk, "/data", SnapshotId(7, 1), no_ops(1), [VOTER], contained_timestamp_ms=0, now_ms=0)
    disk.crash()
    assert len(read_snapshot(disk, "/data", SnapshotId(7, 1)).records) == 1


def test_a_snapshot_cut_or_changed_anywhere_is_never_taken_for_whole(tmp_path: Path) -> None:
    disk = SystemDisk()
    snapshot_id = SnapshotId(7, 1)
    path = write_snapshot(disk, str(tmp_path), snapshot_id, no_ops(3), [VOTER], contained_timestamp_ms=0, now_ms=0)
    whole = (tmp_path / snapshot_name(snapshot_id)).read_bytes()
    os.chmod(path, 0o600)
    for length in range(len(whole)):
        (tmp_path / snapshot_name(snapshot_id)).write_bytes(whole[:length])
        with pytest.raises(CorruptCheckpointError):
            read_snapshot(disk, str(tmp_path), snapshot_id)
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 0x40
        (tmp_path / snapshot_name(snapshot_id)).write_bytes(bytes(changed))
        with pytest.raises(CorruptCheckpointError):
            read_snapshot(disk, str(tmp_path), snapshot_id)


def test_only_kafkas_names_are_snapshots() -> None:
    assert parse_name("00000000000000000077-0000000004.checkpoint") == SnapshotId(77, 4)
    for other in ("bootstrap.checkpoint", "00000000000000000077-0000000004.checkpoint.part", "77-4.checkpoint"):
        assert parse_name(other) is None


def test_formatting_names_the_voter_and_writes_down_the_first_records() -> None:
    disk = simulated_disk()
    format_metadata(disk, "/data", VOTER, now_ms=1000)
    disk.crash()
    content = read_folder(disk, "/data/__cluster_metadata-0")
    assert content.voters == (VOTER,)
    assert (content.kraft_version, content.are_voters_in_log, content.end_offset) == (1, False, 0)
    assert [
        (record.message.name, record.message.feature_level)
        for record in read_bootstrap(disk, "/data")
        if isinstance(record.message, m.FeatureLevelRecord)
    ] == [
        ("metadata.version", 30),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("share.version", 1),
        ("streams.version", 1),
        ("transaction.version", 2),
    ]


def test_formatting_that_was_interrupted_may_be_repeated() -> None:
    disk = simulated_disk()
    format_metadata(disk, "/data", VOTER, now_ms=1000)
    other = VOTER._replace(directory_id=Uuid(b"e" * 16))
    format_metadata(disk, "/data", other, now_ms=2000)
    assert read_snapshot(disk, "/data/__cluster_metadata-0", BOOTSTRAP).voters == (other,)
