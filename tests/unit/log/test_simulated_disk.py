"""The simulated disk behaves like the real one, until it is told to fail or crash."""

from __future__ import annotations

import errno
import os
import pickle
from typing import TYPE_CHECKING

import pytest

from barnabas.ports import Disk, SystemDisk
from barnabas.testing.disk import SimulatedDisk

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.clock import ManualClock


@pytest.fixture(params=["system", "simulated"])
def disk_and_folder(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> tuple[Disk, str]:
    if request.param == "system":
        return SystemDisk(), str(tmp_path)
    disk = SimulatedDisk(clock)
    disk.make_folders("/some/folder")
    return disk, "/some/folder"


def test_files_are_written_read_cut_and_extended(disk_and_folder: tuple[Disk, str]) -> None:
    disk, folder = disk_and_folder
    path = f"{folder}/file"
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    assert disk.pwrite(fd, memoryview(b"abcdef"), 2) == 6
    assert disk.pread(fd, 100, 0) == b"\0\0abcdef"
    assert disk.pread(fd, 100, 50) == b""
    into = bytearray(3), bytearray(9)
    assert disk.preadv(fd, [memoryview(part) for part in into], 4) == 4
    assert (bytes(into[0]), bytes(into[1][:1])) == (b"cde", b"f")
    disk.truncate(fd, 3)
    disk.allocate(fd, 5)
    assert disk.pread(fd, 100, 0) == b"\0\0a\0\0"
    assert disk.size(path) == 5
    disk.fsync(fd)
    assert disk.is_resident(fd, 0, 5)
    disk.close(fd)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        disk.pread(fd, 1, 0)


def test_a_file_can_be_made_to_look_older(disk_and_folder: tuple[Disk, str]) -> None:
    disk, folder = disk_and_folder
    disk.close(disk.open(f"{folder}/file", os.O_CREAT | os.O_WRONLY))
    disk.set_modified_ms(f"{folder}/file", 1_600_000_000_123)
    assert disk.modified_ms(f"{folder}/file") == 1_600_000_000_123


def test_a_disk_in_a_task_of_a_worker_is_the_disk_itself(disk_and_folder: tuple[Disk, str]) -> None:
    disk, folder = disk_and_folder
    sent = pickle.loads(pickle.dumps(disk))
    sent.close(sent.open(f"{folder}/file", os.O_CREAT | os.O_WRONLY))
    assert disk.exists(f"{folder}/file")


def test_an_open_file_outlives_its_name(disk_and_folder: tuple[Disk, str]) -> None:
    disk, folder = disk_and_folder
    fd = disk.open(f"{folder}/file", os.O_RDWR | os.O_CREAT)
    disk.pwrite(fd, b"abc", 0)
    disk.unlink(f"{folder}/file")
    assert not disk.exists(f"{folder}/file")
    assert disk.pread(fd, 3, 0) == b"abc"
    disk.close(fd)


def test_names_are_made_moved_listed_and_removed(disk_and_folder: tuple[Disk, str]) -> None:
    disk, folder = disk_and_folder
    disk.make_folder(f"{folder}/a")
    disk.make_folders(f"{folder}/x/y")
    disk.close(disk.open(f"{folder}/a/one", os.O_CREAT | os.O_WRONLY))
    disk.close(disk.open(f"{folder}/two", os.O_CREAT | os.O_WRONLY))
    assert sorted(disk.list_folder(folder)) == ["a", "two", "x"]
    assert disk.is_folder(f"{folder}/a")
    disk.rename(f"{folder}/a", f"{folder}/b")
    assert disk.list_folder(f"{folder}/b") == ["one"]
    disk.rename(f"{folder}/two", f"{folder}/b/one")
    assert sorted(disk.list_folder(folder)) == ["b", "x"]
    disk.sync_dir(folder)
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        disk.remove_folder(f"{folder}/b")
    disk.unlink(f"{folder}/b/one")
    disk.remove_folder(f"{folder}/b")
    for missing in (disk.unlink, disk.size, disk.list_folder, disk.sync_dir, disk.modified_ms):
        with pytest.raises(FileNotFoundError):
            missing(f"{folder}/b")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{folder}/none/file", os.O_CREAT)
    with pytest.raises(FileExistsError):
        disk.make_folder(f"{folder}/x")


def test_a_file_range_goes_to_a_socket(disk_and_folder: tuple[Disk, str]) -> None:
    disk, folder = disk_and_folder
    fd = disk.open(f"{folder}/file", os.O_RDWR | os.O_CREAT)
    disk.pwrite(fd, b"0123456789", 0)
    receiver, sender = os.pipe()
    assert disk.send_range(sender, fd, 3, 4) == 4
    assert os.read(receiver, 100) == b"3456"
    os.close(receiver)
    os.close(sender)
    disk.close(fd)


def test_a_crash_takes_what_was_not_synced(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    disk.make_folder("/d")
    disk.sync_dir("/")
    for name in ("synced", "renamed", "unnamed"):
        fd = disk.open(f"/d/{name}", os.O_RDWR | os.O_CREAT)
        disk.pwrite(fd, b"kept", 0)
        disk.fsync(fd)
        if name != "unnamed":
            disk.sync_dir("/d")
        disk.pwrite(fd, b"lost", 4)
    disk.rename("/d/renamed", "/d/new-name")
    disk.make_folder("/e")

    disk.crash(keep_unsynced_bytes=lambda unsynced: unsynced // 2)

    assert disk.list_folder("/") == ["d"]
    assert sorted(disk.list_folder("/d")) == ["renamed", "synced"]
    assert disk.pread(disk.open("/d/synced", os.O_RDONLY), 100, 0) == b"keptlo"


def test_a_full_disk_writes_what_fits_and_then_nothing(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    disk.capacity_bytes = 5
    fd = disk.open("/file", os.O_RDWR | os.O_CREAT)
    assert disk.pwrite(fd, b"abcdef", 0) == 5
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        disk.pwrite(fd, b"f", 5)
    assert disk.pwrite(fd, b"xyz", 0) == 3, "what is there may be written over"


def test_a_lock_is_exclusive_until_it_is_closed(clock: ManualClock) -> None:
    disk = SimulatedDisk(clock)
    fd = disk.lock("/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/.lock")
    disk.close(fd)
    disk.close(disk.lock("/.lock"))
