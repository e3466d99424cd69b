from __future__ import annotations

import os
import subprocess
import sys
import time

from bench import procfs

SPIN = "import time\nwhile time.process_time() < 0.3: pass\nprint('spun', flush=True)\ninput()"
SPIN_IN_A_CHILD = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPIN!r}])"


def _start(program: str) -> subprocess.Popen[str]:
    """A process that has said its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "spun\n"
    return process


def test_cpu_seconds_count_what_a_process_used() -> None:
    with _start(SPIN) as process:
        assert 0.29 <= procfs.cpu_seconds(process.pid) < 5
        process.communicate("\n")


def test_cpu_seconds_and_memory_include_living_children() -> None:
    with _start(SPIN_IN_A_CHILD) as process:
        assert procfs.cpu_seconds(process.pid) >= 0.29
        assert procfs.resident_bytes(process.pid) > 2 * 4_000_000
        process.communicate("\n")


def test_a_process_that_ended_is_not_alive_even_before_it_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert procfs.is_alive(process.pid)
        process.kill()
        deadline = time.monotonic() + 10
        while procfs.is_alive(process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not procfs.is_alive(process.pid)


def test_processes_are_told_apart_by_their_start() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = procfs.start_ticks(process.pid)
        assert started is not None
        assert started >= (procfs.start_ticks(os.getpid()) or 0) > 0
        assert procfs.start_ticks(process.pid) == started
        process.communicate(b"\n")
    assert procfs.start_ticks(process.pid) is None


def test_own_memory_is_plausible() -> None:
    assert 5_000_000 < procfs.resident_bytes(os.getpid()) < 10_000_000_000
