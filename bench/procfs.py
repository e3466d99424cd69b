"""What Linux says of a process tree: CPU seconds used and memory resident."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads, its ended children, and its living descendants."""
    return sum(map(_cpu_seconds_of_one, _tree(pid)))


def resident_bytes(pid: int) -> int:
    return sum(_resident_bytes_of_one(each) for each in _tree(pid))


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended but was not waited for does not."""
    try:
        return _stat_fields(pid)[0] != "Z"
    except FileNotFoundError:
        return False


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except FileNotFoundError:
            # The thread has ended meanwhile, and its children have passed to another.
            continue
        for child in children:
            yield from _tree(int(child))


def _cpu_seconds_of_one(pid: int) -> float:
    utime, stime, children_utime, children_stime = map(int, _stat_fields(pid)[11:15])
    return (utime + stime + children_utime + children_stime) / _TICKS_PER_SECOND


def _stat_fields(pid: int) -> list[str]:
    # The command's name, in parentheses, may itself hold spaces and parentheses: the fields start after the last one.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _resident_bytes_of_one(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
