"""What is rehearsed is what would happen, and the disk below does not notice."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.node.doctor.rehearsal_disk import Change, ChangeKind, RehearsalDisk
from barnabas.ports import SystemDisk
from barnabas.testing.clock import ManualClock
from tests.unit.log.logs import TOPIC, batch, create

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.ports import Disk

SMALL_SEGMENTS = TopicConfig(segment_bytes=2000, index_interval_bytes=200)


def contents(disk: Disk, folder: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in sorted(disk.list_folder(folder)):
        path = f"{folder}/{name}"
        if disk.is_folder(path):
            found |= contents(disk, path)
        else:
            fd = disk.open(path, os.O_RDONLY)
            found[path] = disk.pread(fd, disk.size(path), 0)
            disk.close(fd)
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def folder(tmp_path: Path, clock: ManualClock) -> Path:
    """A log of several segments that was not closed."""
    (tmp_path / "data").mkdir()
    log = create(tmp_path / "data", clock, SMALL_SEGMENTS)
    for number in range(100):
        value = b"%06d" % number * 5
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        log.append_as_leader(batch(value, timestamp=clock.now_ms() + number, **fields), 0)
    log.release_if_idle()
    log.release_if_idle()
    return tmp_path / "data"


def garbage_at_the_end(folder: Path) -> None:
    with max(folder.glob("*.log")).open("ab") as file:
        file.write(b"\0" * 500)


def damage_in_the_middle(folder: Path) -> None:
    path = sorted(folder.glob("*.log"))[2]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def a_swap_that_was_decided(folder: Path) -> None:
    first = min(folder.glob("*.log"))
    shutil.copy(first, f"{first}.swap")
    shutil.copy(first, f"{first.with_suffix('.index')}.deleted")


def no_indexes(folder: Path) -> None:
    for path in [*folder.glob("*index"), *folder.glob("leader-epoch-checkpoint")]:
        path.unlink()


@pytest.mark.parametrize("damage", [garbage_at_the_end, damage_in_the_middle, a_swap_that_was_decided, no_indexes])
@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_a_log_that_is_opened_in_a_rehearsal_becomes_what_it_would_become(
    folder: Path, tmp_path: Path, clock: ManualClock, damage: Callable[[Path], None], clean_shutdown: bool
) -> None:
    damage(folder / f"{TOPIC}-0")
    shutil.copytree(folder, tmp_path / "copy")
    before = contents(SystemDisk(), str(folder))
    rehearsal = RehearsalDisk(SystemDisk())

    def opened(disk: Disk, data: Path) -> dict[str, bytes]:
        path = f"{data}/{TOPIC}-0"
        log = PartitionLog.open(
            path,
            TOPIC,
            0,
            SMALL_SEGMENTS,
            disk=disk,
            clock=clock,
            recovery_point=0,
            log_start_offset=0,
            clean_shutdown=clean_shutdown,
        )
        log.close()
        return {name.removeprefix(str(data)): content for name, content in contents(disk, path).items()}

    assert opened(rehearsal, folder) == opened(SystemDisk(), tmp_path / "copy")
    assert contents(SystemDisk(), str(folder)) == before
    rehearsal.close_all()


def test_what_was_changed_is_told_by_its_kind(tmp_path: Path) -> None:
    for name in ("cut", "grown", "gone", "same", "read"):
        (tmp_path / name).write_bytes(b"0123456789")
    disk = RehearsalDisk(SystemDisk())

    def write(name: str, data: bytes, at: int, flags: int = os.O_WRONLY | os.O_CREAT) -> None:
        fd = disk.open(f"{tmp_path}/{name}", flags)
        disk.pwrite(fd, data, at)
        disk.close(fd)

    fd = disk.open(f"{tmp_path}/cut", os.O_WRONLY)
    disk.truncate(fd, 4)
    disk.close(fd)
    write("grown", b"abc", 8)
    disk.unlink(f"{tmp_path}/gone")
    write("same", b"0123456789", 0, os.O_WRONLY | os.O_TRUNC)
    write("new.tmp", b"new", 0)
    disk.rename(f"{tmp_path}/new.tmp", f"{tmp_path}/new")
    disk.close(disk.open(f"{tmp_path}/read", os.O_RDWR))

    assert list(disk.changes()) == [
        Change(ChangeKind.TRUNCATED, f"{tmp_path}/cut", 10, 4),
        Change(ChangeKind.REMOVED, f"{tmp_path}/gone", 10),
        Change(ChangeKind.REWRITTEN, f"{tmp_path}/grown", 10, 11),
        Change(ChangeKind.CREATED, f"{tmp_path}/new", 0, 3),
    ]
    assert sorted(disk.list_folder(str(tmp_path))) == ["cut", "grown", "new", "read", "same"]
    assert sorted(os.listdir(tmp_path)) == ["cut", "gone", "grown", "read", "same"]
    assert (tmp_path / "grown").read_bytes() == b"0123456789"


def test_folders_are_made_renamed_and_removed_with_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").write_bytes(b"kept")
    disk = RehearsalDisk(SystemDisk())
    disk.rename(f"{tmp_path}/old", f"{tmp_path}/new")
    assert not disk.exists(f"{tmp_path}/old")
    assert not disk.exists(f"{tmp_path}/old/file")
    assert contents(disk, f"{tmp_path}/new") == {f"{tmp_path}/new/file": b"kept"}
    with pytest.raises(OSError, match="not empty") as refused:
        disk.remove_folder(f"{tmp_path}/new")
    assert refused.value.errno == errno.ENOTEMPTY
    disk.unlink(f"{tmp_path}/new/file")
    disk.remove_folder(f"{tmp_path}/new")
    assert disk.list_folder(str(tmp_path)) == []
    assert (tmp_path / "old" / "file").read_bytes() == b"kept"


def test_a_lock_is_taken_only_where_there_is_one(tmp_path: Path) -> None:
    disk = RehearsalDisk(SystemDisk())
    disk.lock(f"{tmp_path}/.lock")
    assert os.listdir(tmp_path) == []
    assert disk.in_use == set()
