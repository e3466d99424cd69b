"""A terminal in which a command runs: what it shows is read, keys are pressed, and the window can be resized."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

DEADLINE_S = 30.0
CTRL_C = b"\x03"
SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"
LEAVE_SCREEN, ENTER_SCREEN = b"\x1b[?1049l", b"\x1b[?1049h"
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]")


class Terminal:
    """`barnabas WORDS…` at a terminal of its own, which is its controlling one: ^C reaches it as SIGINT."""

    def __init__(
        self, *words: str, columns: int = 100, rows: int = 30, environment: Mapping[str, str] | None = None
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        settings = {**inherited, "TERM": "xterm-256color", **(environment or {})}
        command = ["setsid", "--ctty", sys.executable, "-m", "barnabas", *words]
        self._process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=settings)
        os.close(slave)
        self.seen = b""

    @property
    def text(self) -> str:
        """What was shown so far, without what moves the cursor or colours."""
        return _ESCAPES.sub(b"", self.seen).decode(errors="replace").replace("\r\n", "\n")

    @property
    def is_as_before(self) -> bool:
        """Whether the cursor is to be seen, and no screen of its own is left."""
        return self.seen.rfind(SHOW_CURSOR) >= self.seen.rfind(HIDE_CURSOR) and self.seen.rfind(
            LEAVE_SCREEN
        ) >= self.seen.rfind(ENTER_SCREEN)

    def resize(self, columns: int, rows: int) -> None:
        """As somebody does who drags the corner of the window: the command gets SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, pattern: str, *, after: int = 0) -> int:
        """Return the number of characters up to the end of what fits the pattern, once that has been shown."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = re.compile(pattern).search(self.text, after)
            if found is not None:
                return found.end()
            assert self._read(deadline), f"{pattern!r} was not shown, but this:\n{self.text}"

    def end(self) -> int:
        """The exit code, once the command has ended by itself."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read(deadline):
            pass
        return self._process.wait(max(0.1, deadline - time.monotonic()))

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def _read(self, deadline: float) -> bool:
        """Read what there is; False where nothing comes any more."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # EIO: nobody has the other end open any more
            return False
        self.seen += data
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
