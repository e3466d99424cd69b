"""A process of Spark does not look through what it has imported for garbage, and ends without a word."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.python_workers import quiet
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import gc, os
from barnabas.spark.python_workers import settle_in
settle_in()
first = gc.get_freeze_count()
assert first > 1000, first
class Later:
    pass
settle_in()
assert gc.get_freeze_count() == first, "it is done once"
if os.fork() == 0:
    settle_in()
    os._exit(0 if gc.get_freeze_count() > first else 1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, "a child does it for itself"
"""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for sockets, whose paths have about a hundred characters at most."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


PLANNER = """
import os, sys
from pyspark.serializers import read_int, write_int

def main(infile, outfile):
    try:
        read_int(infile)
    except EOFError:
        write_int(-1, outfile)  # as those that plan do, whatever has gone wrong
        return
    from barnabas.spark.python_workers import settle_in
    settle_in()
    write_int(os.getpid(), outfile)
"""


def test_a_process_freezes_its_libraries_once() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)


def test_a_worker_is_otherwise_as_it_was() -> None:
    def at_a_loss(_connection: socket.socket, _is_authenticated: bool) -> int:
        raise OSError("no space left")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert quiet(lambda _connection, is_authenticated: 7 if is_authenticated else 0)(ours, True) == 7
        with pytest.raises(OSError, match="no space"):
            quiet(at_a_loss)(ours, True)


def test_nothing_is_on_the_screen_when_spark_ends_a_process_that_has_planned(short_path: Path) -> None:
    """PySpark's own daemon, with a worker module of ours: it takes one request and is hung up on."""
    (short_path / "pyspark_planner.py").write_text(PLANNER)
    environment = os.environ | {
        "PYTHONPATH": str(short_path),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(short_path),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    daemon = subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "ignore", "-m", "pyspark.daemon", "pyspark_planner"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        path = daemon.stdout.read(int.from_bytes(daemon.stdout.read(4), "big")).decode()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            with connection.makefile("rwb") as stream:
                process_id = int.from_bytes(stream.read(4), "big")
                stream.write((1).to_bytes(4, "big"))
                stream.flush()
                assert int.from_bytes(stream.read(4), "big") == process_id
        wait_until(lambda: not Path(f"/proc/{process_id}").exists(), "the worker has ended")
        daemon.stdin.close()
        assert daemon.stderr.read() == b""
