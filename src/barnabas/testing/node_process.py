"""A real node in a subprocess, for tests of Kafka applications.

    with Node(tmp_path / "data") as node:
        producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})

The node is the same `barnabas start` that a user runs, so a test sees no difference. It listens on a free port, which
the same `Node` keeps when it is started again, as clients expect that survive a restart. Every wait is for a condition,
with a deadline, and every failure shows the end of the node's log.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

START_DEADLINE_S: Final = 30.0
STOP_DEADLINE_S: Final = 30.0
LOG_TAIL_BYTES: Final = 8_192

_BROKER_STOPPED: Final = b"barnabas broker stopped\n"
_READY: Final = re.compile(rb"^barnabas ready: (\S.*)\n", re.MULTILINE)
_ENDPOINT: Final = re.compile(r"\w+://(?P<host>\[[^]]+]|[^:,\s]+):(?P<port>\d+)")
_POLL_INTERVAL_S: Final = 0.005


class NodeError(Exception):
    """A node did not start, stop or stay alive as requested; the text ends with the last lines of its log."""


class Process(Protocol):
    """What is used of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...


class Node:
    """One broker process and its data folder.

    `settings` are passed as `--set key=value`; those given to `start` or `restart` are added to them permanently.
    Without a `port` the node picks a free one and announces it when it is ready. If `advertised.listeners` is among the
    settings, it announces those instead, and a `port` must be given.
    With a `config_file`, a properties file, that one says where the node listens and where its data is; `data_dir` and
    `port` must agree with it.
    The log of every run is appended to `log_file`, which is beside the data folder by default.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        log_file: str | os.PathLike[str] | None = None,
        config_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.host = host
        self.port = port
        self.settings: dict[str, str] = dict(settings or {})
        self.log_file = Path(log_file) if log_file is not None else self.data_dir.with_name(self.data_dir.name + ".log")
        self.config_file = config_file
        self._process: Process | None = None
        self._log_start = 0

    @property
    def bootstrap(self) -> str:
        """What a client takes as `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, settings: Mapping[str, str] | None = None, *, deadline_s: float = START_DEADLINE_S) -> Self:
        """Starts the node, and returns when it has announced that it is ready."""
        self.launch(settings)
        self.wait_until_ready(deadline_s=deadline_s)
        return self

    def launch(self, settings: Mapping[str, str] | None = None) -> None:
        """Starts the node without waiting: one of several may not be ready before the others have been started."""
        if self._process is not None:
            raise NodeError(f"the node of {self.data_dir} has been started already: stop, kill or restart it")
        self.settings.update(settings or {})
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = self._spawn(log)

    def wait_until_ready(self, *, deadline_s: float = START_DEADLINE_S) -> None:
        """Returns when a node that was launched has announced that it is ready; one that does not is killed."""
        try:
            self._await_ready(self._log_start, time.monotonic() + deadline_s)
        except BaseException:
            self.kill()
            raise

    def pause(self) -> None:
        """Stops the process in the middle of what it does (SIGSTOP), until `resume`. Its connections stay open."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def wait_until_broker_stopped(self, *, deadline_s: float = STOP_DEADLINE_S) -> None:
        """For a node that was sent SIGUSR1: returns when its broker has left the cluster."""
        deadline = time.monotonic() + deadline_s
        while _BROKER_STOPPED not in self._log_from(self._log_start):
            if not self.is_running or time.monotonic() > deadline:
                raise NodeError(f"the broker of the node has not stopped in time{self._log_tail()}")
            time.sleep(_POLL_INTERVAL_S)

    def stop(self, *, deadline_s: float = STOP_DEADLINE_S) -> None:
        """Stops the node cleanly (SIGTERM), and checks that its exit code is 0."""
        self.send(signal.SIGTERM)
        self.wait_until_stopped(deadline_s=deadline_s)

    def wait_until_stopped(self, *, deadline_s: float = STOP_DEADLINE_S) -> None:
        """For a node that was sent SIGTERM: returns when it has ended, and checks that its exit code is 0."""
        code = self._wait(signal.SIGTERM, deadline_s)
        if code != 0:
            raise NodeError(f"the node exited with code {code} after SIGTERM{self._log_tail()}")

    def end(self, number: signal.Signals, *, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Sends a signal that should end the node, and returns its exit code."""
        self.send(number)
        return self._wait(number, deadline_s)

    def send(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def kill(self) -> None:
        """Ends the node with SIGKILL, as abruptly as a power cut. Does nothing if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self, settings: Mapping[str, str] | None = None) -> Self:
        """Stops the node if it is running, and starts it again with the same folder and port."""
        if self._process is not None:
            self.stop()
        return self.start(settings)

    def log_text(self) -> str:
        """The log of all runs of the node so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _wait(self, number: signal.Signals, deadline_s: float) -> int:
        try:
            code = self._running().wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeError(
                f"the node was still running {deadline_s} s after {number.name}{self._log_tail()}"
            ) from None
        self._process = None
        return code

    def _spawn(self, log: BinaryIO) -> Process:
        return subprocess.Popen(  # noqa: S603 - our own interpreter, arguments of the test
            self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "barnabas", *self._words()]

    def _words(self) -> list[str]:
        """What follows `barnabas`."""
        command = ["start"]
        if self.config_file is None:
            command += ["--data-dir", str(self.data_dir), "--listen", f"{self.host}:{self.port}"]
        else:
            command += ["--config", str(self.config_file)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def _await_ready(self, log_start: int, deadline: float) -> None:
        process = self._running()
        while True:
            ready = _READY.search(self._log_from(log_start))
            if ready is not None:
                break
            code = process.poll()
            if code is not None:
                raise NodeError(f"the node exited with code {code} before it was ready{self._log_tail()}")
            if time.monotonic() > deadline:
                raise NodeError(f"the node was not ready in time{self._log_tail()}")
            time.sleep(_POLL_INTERVAL_S)
        endpoint = _ENDPOINT.search(ready.group(1).decode())
        if endpoint is None:
            raise NodeError(f"no HOST:PORT in the ready line {ready.group(0)!r}")
        if self.port == 0:
            self.port = int(endpoint["port"])

    def _running(self) -> Process:
        if self._process is None:
            raise NodeError(f"the node of {self.data_dir} is not running")
        return self._process

    def _log_from(self, position: int) -> bytes:
        with self.log_file.open("rb") as log:
            log.seek(position)
            return log.read()

    def _log_tail(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
            return f"; the end of {self.log_file}:\n{log.read().decode(errors='replace')}"
