"""The operating system's side of the ports, on real files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from barnabas.ports import SystemDisk

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTE = 1 << 20


def test_a_range_is_in_memory_once_it_was_loaded(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(5 * MEBIBYTE))
    fd = disk.open(str(path), os.O_RDWR)
    try:
        # Where the file system cannot tell, it says no even of what was just written.
        can_tell = disk.is_resident(fd, 0, 5 * MEBIBYTE)
        disk.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        disk.read_in_order(fd)
        disk.load(fd, MEBIBYTE, 3 * MEBIBYTE)
        assert disk.is_resident(fd, MEBIBYTE, 3 * MEBIBYTE) is can_tell
    finally:
        disk.close(fd)


def test_loading_beyond_the_end_of_a_file_ends_there(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 1000)
    fd = disk.open(str(path), os.O_RDONLY)
    try:
        disk.load(fd, 500, 10 * MEBIBYTE)
    finally:
        disk.close(fd)
