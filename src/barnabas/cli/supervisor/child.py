"""One process of a node: started, listened to, told to stop.

A node says on its standard output, in a line each, what its supervisor waits for:

    barnabas ready: …          clients are served
    barnabas broker stopped    the answer to SIGUSR1: its broker has left the cluster, its controller goes on

The process has a session of its own, so that Ctrl-C at the terminal reaches only the supervisor, which knows the order
in which nodes must stop. If the supervisor dies, however abruptly, the system kills the process.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Final

from barnabas.cli.supervisor.console import LineSplitter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READY: Final = "barnabas ready: "
BROKER_STOPPED: Final = "barnabas broker stopped"
STOP_BROKER: Final = signal.SIGUSR1
"""Asks a node that is broker and controller to stop its broker only."""

READ_BYTES: Final = 64 * 1024
OUTPUT_AFTER_END_S: Final = 5.0

_PR_SET_PDEATHSIG: Final = 1


class Child:
    def __init__(self, process: asyncio.subprocess.Process, show: Callable[[str], None]) -> None:
        self._process = process
        self._show = show
        self.is_ready = asyncio.Event()
        self.broker_stopped = asyncio.Event()
        self._reading = [
            asyncio.ensure_future(self._read(process.stdout, self._hear)),
            asyncio.ensure_future(self._read(process.stderr, show)),
        ]
        self._ending = asyncio.ensure_future(self._end())

    @classmethod
    async def start(cls, command: Sequence[str], show: Callable[[str], None]) -> Child:
        """`show` gets every line that the process prints, on either output."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        return cls(process, show)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    def send(self, number: signal.Signals) -> None:
        if self.is_running:
            self._process.send_signal(number)

    async def wait(self) -> int:
        """The exit code, when the process has ended and everything it printed has been shown. Any number may wait."""
        return await asyncio.shield(self._ending)

    async def _end(self) -> int:
        code = await self._process.wait()
        # A process that the node started may outlive it for a moment, and hold its outputs open.
        _, unread = await asyncio.wait(self._reading, timeout=OUTPUT_AFTER_END_S)
        for task in unread:
            task.cancel()
        self.broker_stopped.set()
        return code

    def _hear(self, line: str) -> None:
        self._show(line)
        if line.startswith(READY):
            self.is_ready.set()
        elif line == BROKER_STOPPED:
            self.broker_stopped.set()

    async def _read(self, stream: asyncio.StreamReader | None, take: Callable[[str], None]) -> None:
        assert stream is not None
        lines = LineSplitter()
        while data := await stream.read(READ_BYTES):
            for line in lines.feed(data):
                take(line)
        for line in lines.end():
            take(line)


def die_with_parent() -> Callable[[], None]:
    """What a new process does first: asks Linux to be killed when the thread that started it is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def exit_text(code: int) -> str:
    """How a process ended, in words."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
