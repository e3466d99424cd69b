"""File systems of a few megabytes, in memory, that a test can fill. Mounting one needs root."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK_BYTES = 32 << 20


@contextmanager
def small_disk(folder: Path, size_bytes: int = DISK_BYTES) -> Iterator[Path]:
    """A small file system for as long as the block lasts; where none can be mounted, the test is skipped."""
    refused = mount(folder, size_bytes)
    if refused is not None:
        pytest.skip(f"a small tmpfs cannot be mounted here, which needs root: {refused}")
    try:
        yield folder
    finally:
        unmount(folder)


def mount(folder: Path, size_bytes: int) -> str | None:
    """Makes the folder, and mounts a file system of that size there; why not, if that is refused."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip() if done.returncode != 0 else None


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
