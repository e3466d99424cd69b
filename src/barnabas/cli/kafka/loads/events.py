"""What verifiable clients do, as lines of JSON on standard output: programs that start them follow them by these."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from typing import TYPE_CHECKING, Any

from barnabas.cli.command_line import EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_BY_SIGNAL = 128
"""What a shell reports for a command that a signal ended is this and the signal's number."""


class Ending:
    """Whether somebody wants the process to end: it does so in order, and tells of what is on its way. Who wants it
    twice has it at once."""

    def __init__(self) -> None:
        self.signal_number = 0

    @property
    def is_wanted(self) -> bool:
        return self.signal_number != 0

    @property
    def exit_code(self) -> int:
        return _EXIT_BY_SIGNAL + self.signal_number if self.signal_number else EXIT_OK

    def note(self, signal_number: int, _frame: FrameType | None) -> None:
        if self.signal_number:
            raise KeyboardInterrupt
        self.signal_number = signal_number


@contextlib.contextmanager
def watching_for_the_end() -> Iterator[Ending]:
    """Signals are noted for the time of the block. librdkafka's calls do not take exceptions from them."""
    ending = Ending()
    before = {each: signal.signal(each, ending.note) for each in _SIGNALS}
    try:
        yield ending
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def print_event(name: str, **fields: Any) -> None:
    event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
    print(json.dumps(event, ensure_ascii=False, separators=(",", ":")), flush=True)
