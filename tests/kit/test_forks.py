"""Commands that are forked, as those who start and end them see them."""

from __future__ import annotations

import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from barnabas.testing.kit.forks import fork_server

if TYPE_CHECKING:
    from pathlib import Path

THREADS = 16
DEADLINE_S = 30.0


def test_every_thread_that_waits_for_a_command_learns_how_it_ended(tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as log, ThreadPoolExecutor(THREADS) as threads:
        words = ["start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
        command = fork_server().run(words, log.fileno())
        waits = [threads.submit(command.wait, DEADLINE_S) for _ in range(THREADS)]
        command.kill()
        assert [each.result() for each in waits] == [-signal.SIGKILL] * THREADS
        assert command.poll() == -signal.SIGKILL
