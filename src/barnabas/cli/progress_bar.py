"""A progress bar on stderr if that is a terminal, and nothing otherwise."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    Advance = Callable[[int], None]


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
    with Progress(*columns, console=stderr_console(), transient=True) as progress:
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
    with Progress(*columns, console=stderr_console()) as progress:
        task = progress.add_task(label, total=total, rate="")

        def advance(amount: int) -> None:
            progress.advance(task, amount)
            speed = progress.tasks[0].speed
            progress.update(task, rate="" if speed is None else f"{speed:,.1f}/s")

        yield advance


def stderr_console() -> Console:
    from rich.console import Console

    return Console(stderr=True)
