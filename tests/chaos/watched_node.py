"""A node that knows the longest turn of each of its event loops: `python -m tests.chaos.watched_node start ...`.

A timer on each loop goes off every millisecond and compares the processor time of its thread with what it was the
time before. Processor time, because that is what a turn of the loop costs whatever else the machine is doing; the
millisecond is what a turn is overestimated by. SIGUSR2 has the longest turns since the last one written to the file
that BARNABAS_TURNS names.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from barnabas.cli.main import main
from barnabas.testing.node_process import Node

if TYPE_CHECKING:
    from collections.abc import Callable

    NewLoop = Callable[[], asyncio.AbstractEventLoop]

TURNS_FILE = "BARNABAS_TURNS"
_INTERVAL_S = 0.001


class LoopWatch:
    """The longest turn of one loop in seconds of its thread's processor time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before_s: float | None = None
        self.name = ""
        self.longest_s = 0.0
        loop.call_soon(self._look)

    def _look(self) -> None:
        now_s = time.thread_time()
        if self._before_s is None:
            self.name = threading.current_thread().name
        else:
            self.longest_s = max(self.longest_s, now_s - self._before_s)
        self._before_s = now_s
        self._loop.call_later(_INTERVAL_S, self._look)


WATCHES: list[LoopWatch] = []


def watched(new_loop: NewLoop) -> NewLoop:
    def new_watched_loop() -> asyncio.AbstractEventLoop:
        loop = new_loop()
        WATCHES.append(LoopWatch(loop))
        return loop

    return new_watched_loop


def report(*_: Any) -> None:
    turns = {watch.name: watch.longest_s for watch in WATCHES}
    for watch in WATCHES:
        watch.longest_s = 0.0
    written = Path(os.environ[TURNS_FILE] + ".new")
    written.write_text(json.dumps(turns))
    written.replace(os.environ[TURNS_FILE])


class WatchedNode(Node):
    """A node in a subprocess that can be asked for its longest turns."""

    @property
    def turns_file(self) -> Path:
        return self.data_dir.with_name(self.data_dir.name + ".turns")

    def longest_turns_s(self, deadline_s: float = 60.0) -> dict[str, float]:
        """By the name of the loop's thread, since the last time that this was asked."""
        self.turns_file.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR2)
        deadline = time.monotonic() + deadline_s
        while not self.turns_file.exists():
            assert time.monotonic() < deadline, "the node did not tell its longest turns"
            time.sleep(0.005)
        turns: dict[str, float] = json.loads(self.turns_file.read_text())
        return turns

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("barnabas")
        return ["env", f"{TURNS_FILE}={self.turns_file}", *command[:at], "tests.chaos.watched_node", *command[at + 1 :]]


if __name__ == "__main__":
    uvloop.new_event_loop = watched(uvloop.new_event_loop)  # type: ignore[assignment]
    asyncio.new_event_loop = watched(asyncio.new_event_loop)
    signal.signal(signal.SIGUSR2, report)
    sys.exit(main())
