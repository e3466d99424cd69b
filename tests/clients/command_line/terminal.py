"""Commands at a terminal: as a person types them, with ^C and ^D, and with what the person sees."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

START: Final = "import sys; from barnabas.cli.main import main; sys.exit(main())"
DEADLINE_S: Final = 30.0
_LOOK_S: Final = 0.05
INTERRUPT, END_OF_INPUT = "\x03", "\x04"


class Terminal:
    """One of Kafka's tools, running at a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self._process = process
        self._screen = screen
        self._seen = b""

    @property
    def seen(self) -> str:
        """All that is to be read on the terminal by now."""
        return self._seen.decode().replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def wait_for(self, text: str) -> None:
        """Until this is to be read there."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} within {DEADLINE_S} s, but:\n{self.seen}"
            self.look()

    def end(self) -> int:
        """The exit code, once the tool has ended."""
        deadline = time.monotonic() + DEADLINE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end within {DEADLINE_S} s:\n{self.seen}"
            self.look()
        while self.look():
            pass
        return self._process.returncode

    def look(self) -> bool:
        """Read what has come, after a moment if nothing has; whether there was something."""
        if not select.select([self._screen], [], [], _LOOK_S)[0]:
            return False
        try:
            data = os.read(self._screen, 1 << 16)
        except OSError:  # nobody has the other side open any more
            return False
        self._seen += data
        return bool(data)


@contextlib.contextmanager
def at_terminal(*words: str) -> Iterator[Terminal]:
    """`barnabas kafka …` at a terminal. What still runs at the end of the block is killed."""
    screen, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START, "kafka", *words],
        stdin=side,
        stdout=side,
        stderr=side,
        start_new_session=True,
        preexec_fn=_make_it_the_terminal,
    )
    os.close(side)
    try:
        yield Terminal(process, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def _make_it_the_terminal() -> None:
    """In the new process: signals of the keyboard go to whoever has the terminal as its own."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
