"""Client programs of other languages, driven from here: a scenario goes in as a line of JSON, its result comes out.

    program = Program(toolchains.go(), node.bootstrap, tmp_path / "go.log")
    program.run("round-trip", topic="t", codec="zstd")

A program stays for all scenarios of a run, as a JVM takes longer to start than most of them take. One that does not
answer in time is killed, and the next scenario starts it anew.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from interop.toolchains import Launch

DEADLINE_S = 120.0
LOG_TAIL_CHARS = 6_000


class ScenarioError(Exception):
    """A scenario that failed in the client, or did not end; the text has what the program said of it."""


class Program:
    """One process of a client program, started by the first scenario. What it logs is appended to a file."""

    def __init__(self, launch: Launch, bootstrap: str, log_file: Path) -> None:
        self._launch = launch
        self._bootstrap = bootstrap
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def run(self, scenario: str, *, deadline_s: float = DEADLINE_S, **arguments: object) -> Any:
        """What the scenario found out, as the program wrote it."""
        process = self._started()
        assert process.stdin is not None
        request = {"scenario": scenario, **arguments}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(self._next_line(process, request, time.monotonic() + deadline_s))
        if "error" in answer:
            raise ScenarioError(f"{request} failed: {answer['error']}\n{self._log_tail()}")
        return answer["result"]

    def close(self) -> None:
        """The end of its input tells the program to leave; one that stays is killed."""
        process, self._process = self._process, None
        self._unread = b""
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            with self._log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    [*self._launch.command, self._bootstrap],
                    env={**os.environ, **self._launch.environment},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
        return self._process

    def _next_line(self, process: subprocess.Popen[bytes], request: object, deadline: float) -> bytes:
        assert process.stdout is not None
        while b"\n" not in self._unread:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(process.stdout.fileno(), 65_536) if ready else b""
            if not data:
                process.kill()
                self.close()
                why = "the program ended" if ready else "no answer in time"
                raise ScenarioError(f"{request}: {why}\n{self._log_tail()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _log_tail(self) -> str:
        text = self._log_file.read_text(errors="replace") if self._log_file.exists() else ""
        return text[-LOG_TAIL_CHARS:]
