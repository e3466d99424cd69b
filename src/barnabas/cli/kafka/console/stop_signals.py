"""How somebody ends a tool that runs on and on: ^C, a closed terminal, or `kill`. It finishes what it has begun.

Java's tools end with the signal's exit code once their shutdown hooks have run; so do these.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXIT_BASE: Final = 128


class Stopped(Exception):  # noqa: N818 - it is no error
    """Somebody has sent a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = exit_code_for(number)


class StopRequest:
    """Whether somebody wants the tool to end, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def exit_code(self) -> int | None:
        return None if self.signal is None else exit_code_for(self.signal)


def exit_code_for(number: int) -> int:
    """What a shell says of a program that a signal has ended."""
    return _EXIT_BASE + number


@contextlib.contextmanager
def noticing_signals() -> Iterator[StopRequest]:
    """The first signal is noted, for a loop that looks; a second one ends the process."""
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
        request.signal = number
        _restore()

    with _handling(note):
        yield request


@contextlib.contextmanager
def raising_signals() -> Iterator[None]:
    """The first signal is raised as `Stopped`, as waiting for input must end; a second one ends the process."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
        _restore()
        raise Stopped(number)

    with _handling(stop):
        yield


def _restore() -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def _handling(handler: object) -> Iterator[None]:
    before = {each: signal.signal(each, handler) for each in SIGNALS}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for each, previous in before.items():
            signal.signal(each, previous)
