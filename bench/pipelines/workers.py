"""How much memory the Python processes of a Spark session take, watched while it works."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench import procfs

if TYPE_CHECKING:
    from types import TracebackType

INTERVAL_SECONDS = 0.05
DAEMONS = (b"pyspark.daemon", b"barnabas.spark_daemon")
"""Workers are forks of processes that were started under these names, and keep them."""


class PeakMemory:
    """The most that a single worker had resident while the `with` block lasted, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._is_over.wait(INTERVAL_SECONDS):
            self.bytes = max([self.bytes, *map(_resident_bytes, procfs.descendants(os.getpid()))])


def _resident_bytes(pid: int) -> int:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        is_worker = not set(command).isdisjoint(DAEMONS)
        return procfs.resident_bytes_of_one(pid) if is_worker else 0
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended between two looks
