"""What is drawn anew every few seconds: on a screen of its own at a terminal, one below the other in a pipe.

The terminal is left as it was, however this ends: a screen of its own is not torn by a window that is resized, and
SIGTERM ends the drawing as ^C does.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from rich.console import RenderableType
    from rich.live import Live

_SIGNAL_EXIT_BASE: Final = 128
"""What a shell adds to the number of the signal that ended a process."""


def draw_again_and_again(draw: Callable[[], RenderableType], interval_s: float) -> None:
    """Draw on a screen of its own until ^C. What was drawn last stays in the terminal."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    drawn = draw()
    try:
        live = Live(drawn, console=console, screen=True, auto_refresh=True, vertical_overflow="ellipsis")
        with ending_with_signals(), drawing(live):
            while True:
                time.sleep(interval_s)
                drawn = draw()
                live.update(drawn, refresh=True)
    finally:
        console.print(drawn)


def print_again_and_again(show: Callable[[], None], interval_s: float) -> None:
    """The same where no terminal is: one after the other."""
    while True:
        show()
        sys.stdout.flush()
        time.sleep(interval_s)


@contextlib.contextmanager
def drawing(live: Live) -> Iterator[None]:
    """Like `with live`, but the terminal is put right even if a signal comes in the middle of the beginning."""
    try:
        live.start(refresh=True)
        yield
    finally:
        live.stop()


@contextlib.contextmanager
def ending_with_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end what is drawn, and not just the process, so that the terminal is put right."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(_SIGNAL_EXIT_BASE + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
