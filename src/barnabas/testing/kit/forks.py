"""Commands that start in a moment, because they are forked from a process that has everything imported.

That process (`cli/test_kit/fork_server`) is started with the first of them, and ends with this one, and everything that
it has forked with it, however this one ends. A process that was itself forked starts one of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import barnabas

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ANSWER_BYTES_MAX: Final = 4_096


class ForkServerError(Exception):
    """The process that forks is gone, or could not be started."""


class ForkedProcess:
    """A command that was forked: what `subprocess.Popen` is for one that was not. Several threads may wait for it."""

    def __init__(self, server: ForkServer, pid: int, exits: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._exits = exits
        self._reading = threading.Lock()
        # Not when the exit code has been read: another thread may be about to look, and the number then means any file.
        weakref.finalize(self, os.close, exits)

    def poll(self) -> int | None:
        """The exit code, if there is one already."""
        self._look(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._look(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            self._server.send_signal(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> None:
        if self.returncode is not None:
            return
        readable, _, _ = select.select([self._exits], [], [], timeout)
        with self._reading:
            if readable and self.returncode is None:
                code = os.read(self._exits, _ANSWER_BYTES_MAX)
                self.returncode = int(code) if code else -signal.SIGKILL  # it was killed together with its server


class ForkServer:
    """May be used by several threads."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "barnabas.cli.test_kit.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": _python_path()},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the tests, which then end what they have started
            )
        self._asking = ours

    @property
    def is_usable(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def run(self, words: Sequence[str], log: int, channel: socket.socket | None = None) -> ForkedProcess:
        """Runs a `barnabas` command, with `log` as its standard output and error; a node that is given a channel
        listens there for faults."""
        exits, end_of_child = os.pipe()
        try:
            fds = [log, end_of_child] + ([channel.fileno()] if channel is not None else [])
            pid = self._ask({"run": list(words)}, fds)["pid"]
        except BaseException:
            os.close(exits)
            raise
        finally:
            os.close(end_of_child)
        return ForkedProcess(self, pid, exits)

    def send_signal(self, pid: int, number: int) -> None:
        self._ask({"signal": int(number), "pid": pid})

    def remove_at_the_end(self, folder: str) -> None:
        """Has a folder removed when this process is gone, whether it had time for that or not."""
        self._ask({"temporary": folder})

    def close(self) -> None:
        """Ends the process and all that it has forked."""
        if self._owner != os.getpid():
            return
        self._asking.close()
        self._process.wait()

    def _ask(self, question: Mapping[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock:
            try:
                socket.send_fds(self._asking, [json.dumps(question).encode() + b"\n"], fds)
                answer = self._asking.recv(_ANSWER_BYTES_MAX)
            except OSError as error:
                raise ForkServerError(f"the process that forks brokers is gone: {error}") from error
        if not answer:
            raise ForkServerError(f"the process that forks brokers ended with exit code {self._process.wait()}")
        said: dict[str, Any] = json.loads(answer)
        return said


_server: ForkServer | None = None
_starting = threading.Lock()


def fork_server() -> ForkServer:
    """The one of this process; a new one if there is none that can be used."""
    global _server
    with _starting:
        if _server is None or not _server.is_usable:
            _server = ForkServer()
            atexit.register(_server.close)
        return _server


def run_forked(words: Sequence[str], deadline_s: float) -> tuple[int, str]:
    """Runs a `barnabas` command to its end; returns its exit code and what it printed."""
    with tempfile.TemporaryFile() as output:
        code = fork_server().run(words, output.fileno()).wait(deadline_s)
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _python_path() -> str:
    """So that the same package is found, also where only the tests were told where it is."""
    here = str(Path(barnabas.__file__).parents[1])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
