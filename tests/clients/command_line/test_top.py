"""`barnabas top` beside a node: in a pipe, as JSON, and at a terminal that is resized and left."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.nodes import Node
from tests.peers import HOST, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = [sys.executable, "-m", "barnabas", "top"]
ALTERNATE_SCREEN, MAIN_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a node with a record tells its metrics."""
    where = f"{HOST}:{free_port()}"
    with Node(tmp_path_factory.mktemp("top") / "data", settings={"barnabas.metrics.listener": where}) as node:
        producer = Producer({"bootstrap.servers": node.bootstrap})
        producer.produce("orders", b"x")
        assert producer.flush(30) == 0
        yield where


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TOP, *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_in_a_pipe_it_prints_a_picture_and_ends(address: str) -> None:
    done = run("--metrics", address)
    assert (done.returncode, done.stderr) == (0, "")
    assert "brokers 1   controllers 1   offline 0" in done.stdout
    assert f"{address} controller" in done.stdout
    assert "orders" in done.stdout
    assert "\x1b" not in done.stdout


def test_with_json_each_line_is_an_object(address: str) -> None:
    done = run("--metrics", address, "--json", "--count", "2", "--interval", "0.1")
    assert done.returncode == 0
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["brokers"] == second["active_controllers"] == 1
    assert [topic["topic"] for topic in second["topics"]] == ["orders"]
    assert second["nodes"][0]["memory_bytes"] > 10_000_000


def test_a_node_that_is_not_there_and_wrong_words_are_told_in_one_line() -> None:
    nothing = f"{HOST}:{free_port()}"
    done = run("--metrics", nothing)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert f"nothing tells metrics at {nothing} (`barnabas start --metrics 9308` tells them there)" in done.stderr
    assert run("--interval", "soon").returncode == 2


class Terminal:
    """`barnabas top` at a terminal of some size."""

    def __init__(self, words: list[str], columns: int, rows: int) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.process = subprocess.Popen(
            [*TOP, *words], stdin=slave, stdout=slave, stderr=slave, env=environment | {"TERM": "xterm-256color"}
        )
        self.output = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, text: bytes, start: int = 0) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.output[start:]:
            assert time.monotonic() < deadline, f"{text!r} does not come: {self.output[-2000:]!r}"
            self.read(0.1)

    def read(self, timeout_s: float) -> None:
        if select.select([self._master], [], [], timeout_s)[0]:
            self.output += os.read(self._master, 65536)

    def wait(self) -> int:
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self.read(0.1)
        while select.select([self._master], [], [], 0)[0]:
            self.read(0)
        return self.process.returncode

    def is_as_before(self) -> bool:
        return termios.tcgetattr(self._slave) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_a_terminal_it_fills_the_screen_follows_its_size_and_leaves_it_as_it_was(
    address: str, number: signal.Signals
) -> None:
    terminal = Terminal(["--metrics", address, "--interval", "60"], 100, 30)
    try:
        terminal.read_until(b"orders")
        assert ALTERNATE_SCREEN in terminal.output
        assert HIDE_CURSOR in terminal.output
        width = "─" * 110
        assert width.encode() not in terminal.output
        start = len(terminal.output)
        terminal.resize(140, 40)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.read_until(width.encode(), start)
        terminal.process.send_signal(number)
        assert terminal.wait() == 0
        assert terminal.output.rindex(MAIN_SCREEN) > terminal.output.rindex(ALTERNATE_SCREEN)
        assert terminal.output.rindex(SHOW_CURSOR) > terminal.output.rindex(HIDE_CURSOR)
        assert b"Traceback" not in terminal.output
        assert terminal.is_as_before()
    finally:
        terminal.close()
