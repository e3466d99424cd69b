"""The processes of one pipeline, and what can be said about its progress from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.committed import committed_offsets
from tests.chaos.pipeline_process import PipelineOptions, PipelineProcess
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROGRESS_S_MAX = 180.0
PLANNED_BEFORE_MAX = 2
"""So many batches may be seen to be finished after any moment that were planned before it: the one that runs, and one
that is done already."""


class Pipeline:
    """The processes of one pipeline, one after the other: each goes on from the checkpoint of the one before."""

    def __init__(self, bootstrap: str, group: str, source: str, sink: str, partitions: int, folder: Path) -> None:
        self._options = PipelineOptions(
            bootstrap, group, source, sink, str(folder / "checkpoint"), str(folder / "scratch")
        )
        self._partitions = partitions
        self._log = folder / "pipeline.log"
        self._processes: list[PipelineProcess] = []
        self.start()

    @property
    def current(self) -> PipelineProcess:
        return self._processes[-1]

    def start(self) -> None:
        self._processes.append(PipelineProcess(self._options, self._log))

    def processed(self) -> list[int]:
        """How much of each partition is in finished batches, as the pipeline says by its consumer group."""
        found: list[int] = []

        def is_known() -> bool:
            asked = committed_offsets(
                self._options.bootstrap, self._options.group, self._options.source, self._partitions
            )
            found[:] = asked or []
            return asked is not None

        wait_until(is_known, "the offsets of the pipeline's group are known", PROGRESS_S_MAX)
        return [max(offset, 0) for offset in found]

    def await_progress(self) -> None:
        before = self.processed()
        self._await(lambda: self.processed() != before, "the pipeline finishes a batch")

    def await_end_of_source(self, ends: list[int]) -> None:
        self._await(lambda: self.processed() == ends, "all of the source is processed")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        """While nothing is done to it that it does not survive."""

        def has_come() -> bool:
            assert self.current.is_running(), f"it ended by itself:\n{self.current.last_words()}"
            return condition()

        wait_until(has_come, what, PROGRESS_S_MAX, 0.1)

    def survive(self) -> None:
        """After the death of a worker: what ran there is run again, or else all of it, as its service manager would.

        If it was the process of the source, the query ends when the next batch is to be planned, and not before.
        """
        for _ in range(PLANNED_BEFORE_MAX + 1):
            self._await_progress_or_end(self.processed())
        if not self.current.is_running():
            self.start()

    def _await_progress_or_end(self, before: list[int]) -> None:
        wait_until(
            lambda: not self.current.is_running() or self.processed() != before,
            "the pipeline goes on, or ends",
            PROGRESS_S_MAX,
            0.1,
        )

    def kill(self) -> None:
        for each in self._processes:
            each.kill()
        for each in self._processes:
            each.await_end_of_workers()
