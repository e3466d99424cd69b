"""What Linux says of a process tree: CPU seconds used and memory resident; and of the machine's memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads, its ended children, and its living descendants."""
    return _sum_over_tree(_cpu_seconds_of_one, pid)


def resident_bytes(pid: int) -> int:
    return int(_sum_over_tree(resident_bytes_of_one, pid))


def available_bytes() -> int:
    """Memory that programs and the page cache can have, as Linux estimates it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo does not say how much memory is available")


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended but was not waited for does not."""
    return start_ticks(pid) is not None


def start_ticks(pid: int) -> int | None:
    """When a process that runs was started, since the machine was; None of one that does not run.

    It tells a process from another one, or from a thread, that has got its number later.
    """
    try:
        fields = _stat_fields(pid)
    except FileNotFoundError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def descendants(pid: int) -> Iterator[int]:
    """Children, their children and so on, as far as they live."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except FileNotFoundError:
            # The thread has ended meanwhile, and its children have passed to another.
            continue
        for child in map(int, children):
            yield child
            yield from descendants(child)


def _sum_over_tree(measure: Callable[[int], float], pid: int) -> float:
    """Of a process, which must live, and of its descendants, which may end while they are looked at."""
    total = measure(pid)
    for each in descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += measure(each)
    return total


def _cpu_seconds_of_one(pid: int) -> float:
    utime, stime, children_utime, children_stime = map(int, _stat_fields(pid)[11:15])
    return (utime + stime + children_utime + children_stime) / _TICKS_PER_SECOND


def _stat_fields(pid: int) -> list[str]:
    # The command's name, in parentheses, may itself hold spaces and parentheses: the fields start after the last one.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def resident_bytes_of_one(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
