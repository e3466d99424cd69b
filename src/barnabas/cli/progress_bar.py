"""A progress bar on stderr if that is a terminal, and nothing otherwise."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.cli.live import drawing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.progress import Progress

    Advance = Callable[[int], None]


BAR_DELAY_S = 0.2


def silent(amount: int) -> None:
    """Stands in for a bar where there is no terminal."""


@contextmanager
def byte_bar(label: str, total_bytes: int | None) -> Iterator[Advance]:
    """A bar for bytes read; if the total is not known, it shows how many there were so far."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=stderr_console(), transient=True)
    with drawing(progress.live):
        task = progress.add_task(label, total=total_bytes)
        yield lambda amount: progress.advance(task, amount)


@contextmanager
def counting_bar(label: str, total: int, what: str) -> Iterator[Advance]:
    """A bar for a known number of things, with how many there are in a second."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn(what),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=stderr_console())
    with drawing(progress.live):
        task = progress.add_task(label, total=total, rate="")

        def advance(amount: int) -> None:
            progress.advance(task, amount)
            speed = progress.tasks[0].speed
            progress.update(task, rate="" if speed is None else f"{speed:,.1f}/s")

        yield advance


def stderr_console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


class SearchBar:
    """Passes on what is printed, and shows below it how far a search is; without a terminal it only prints."""

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)

    def advance(self, looked_at: int, found: int) -> None:
        """So many more records were looked at, of which so many were what is searched for."""


class DrawnSearchBar(SearchBar):
    """Appears once the search has taken a moment, so that a short one does not flicker."""

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._looked_at = self._found = 0
        self._appears_at = time.monotonic() + BAR_DELAY_S
        self._progress: Progress | None = None

    def write(self, data: bytes) -> None:
        if self._progress is not None and sys.stdout.isatty():
            self._progress.console.out(data.decode(errors="replace"), end="", highlight=False)
        else:
            super().write(data)

    def advance(self, looked_at: int, found: int) -> None:
        self._looked_at += looked_at
        self._found += found
        if self._progress is None and self._looked_at < self._total and time.monotonic() >= self._appears_at:
            self._appear()
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=self._looked_at, found=self._found)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _appear(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        sys.stdout.flush()
        counts = TextColumn("{task.completed:,.0f} of {task.total:,.0f} records, {task.fields[found]:,} printed")
        columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeElapsedColumn(), TimeRemainingColumn())
        console = Console() if sys.stdout.isatty() else stderr_console()
        progress = Progress(*columns, console=console, transient=True)
        progress.add_task(self._label, total=self._total, found=0)
        self._progress = progress  # at once, so that it goes again whatever comes between
        progress.start()


@contextmanager
def search_bar(label: str, total: int | None) -> Iterator[SearchBar]:
    """A bar for a search through so many records; none where there is no end."""
    if total is None or not sys.stderr.isatty():
        yield SearchBar()
        return
    bar = DrawnSearchBar(label, total)
    try:
        yield bar
    finally:
        bar.close()
