"""The processes of one loop that consumes, processes and produces: several workers of one group."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.chaos.loop_process import LoopOptions, LoopProcess
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.loop_process import GroupProtocol

PROGRESS_S_MAX = 120.0


class Workers:
    """The loop's processes. Each has a transactional id of its own, which its successor takes over."""

    def __init__(
        self, bootstrap: str, group: str, source: str, sink: str, count: int, protocol: GroupProtocol = "classic"
    ) -> None:
        self._options = [
            LoopOptions(bootstrap, group, source, sink, f"{group}-{number}", protocol) for number in range(count)
        ]
        self._processes = [LoopProcess(each) for each in self._options]
        self._committed_before = 0

    def committed(self) -> int:
        """How many records the workers say they have committed; one that was killed may have said too little."""
        return self._committed_before + sum(each.committed for each in self._processes)

    def await_progress(self) -> None:
        before = self.committed()
        wait_until(lambda: self.committed() > before, "the loop commits something", PROGRESS_S_MAX)

    def replace(self, number: int) -> None:
        """SIGKILL one and start another in its place."""
        killed = self._processes[number]
        killed.kill()
        self._committed_before += killed.committed
        self._processes[number] = LoopProcess(self._options[number])

    def end(self) -> None:
        assert all(each.is_running() for each in self._processes), "a worker has ended by itself"
        codes = [each.end() for each in self._processes]
        assert not any(codes), f"workers ended with {codes}"

    def kill(self) -> None:
        for each in self._processes:
            each.kill()


@contextlib.contextmanager
def loop(
    bootstrap: str, group: str, source: str, sink: str, count: int, protocol: GroupProtocol = "classic"
) -> Iterator[Workers]:
    workers = Workers(bootstrap, group, source, sink, count, protocol)
    try:
        yield workers
    finally:
        workers.kill()
