"""A progress bar on stderr for a person at a terminal, and nothing at all for anybody else."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    Advance = Callable[[int], None]


def silent(amount: int) -> None:
    """The bar that nobody sees."""


@contextmanager
def byte_bar(label: str, total_bytes: int | None) -> Iterator[Advance]:
    """A bar over bytes read; without a known total it shows what has passed so far."""
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
def record_bar(label: str, total: int) -> Iterator[Advance]:
    """A bar over a known number of records."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=stderr_console()) as progress:
        task = progress.add_task(label, total=total)
        yield lambda amount: progress.advance(task, amount)


def stderr_console() -> Console:
    from rich.console import Console

    return Console(stderr=True)
