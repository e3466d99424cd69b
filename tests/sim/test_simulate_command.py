"""What `barnabas simulate` says, and what it refuses."""

from __future__ import annotations

import errno
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.command_line import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from tests.sim.commands import LIMIT_S, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT = ("--seconds", "10", "--records", "50")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--nodes", "0"], "--nodes"),
        (["--nodes", "many"], "--nodes"),
        (["--seed", "first"], "'first' is not a valid seed"),
        (["--seed", "-1"], "--seed"),
        (["--seeds", "0"], "--seeds"),
        (["--seconds", "1"], "at least 10 simulated seconds"),
        (["--seconds", "soon"], "'soon' is not a number of seconds"),
        (["--jobs", "0"], "--jobs"),
        (["--sed", "1"], "--seed"),
    ],
)
def test_words_that_make_no_sense_are_refused_in_one_line(words: list[str], complaint: str) -> None:
    done = simulate(*words)
    assert done.returncode == EXIT_USAGE
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_not_there_is_named() -> None:
    done = simulate("--config", "/nowhere/server.properties")
    assert (done.returncode, done.stdout) == (EXIT_FAILED, "")
    assert done.stderr == "barnabas: cannot read /nowhere/server.properties: No such file or directory\n"


def test_a_setting_that_is_invalid_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=few\n")
    done = simulate("--config", str(file))
    assert done.returncode == EXIT_FAILED
    assert "num.partitions" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_supplies_settings_and_its_listeners_and_folders_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.session.timeout.ms=4000\nlisteners=PLAINTEXT://elsewhere:1\nlog.dirs=/nowhere\nnode.id=9\n")
    done = simulate("--config", str(file), "--seed", "1", "--trace", *SHORT)
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    assert "elsewhere" not in done.stdout


def test_kafkas_own_file_breaks_no_promise_and_it_is_said_once_what_does_not_happen(tmp_path: Path) -> None:
    """Its internal topics have one replica, and in these runs power fails, or a sync, where that is not so."""
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "log.dirs=/tmp/kraft-combined-logs\noffsets.topic.replication.factor=1\n"
        "share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    )
    done = simulate("--config", str(file), "--seed", "3", "--seeds", "4")
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert "have single nodes acknowledge records of __consumer_offsets and __transaction_state" in line
    assert simulate("--config", str(file), "--nodes", "2", "--seed", "1", *SHORT).stderr == "", (
        "power never fails there"
    )


def test_a_summary_counts_faults_records_and_violations() -> None:
    done = simulate("--seeds", "2", "--jobs", "2", *SHORT)
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    assert ["violations", "0"] in words
    assert ["seeds", "2"] in words
    assert any(row[:2] == ["acknowledged", "records"] for row in words)
    assert any(row[:3] == ["seeds", "per", "second"] for row in words)


def test_a_broken_promise_is_told_with_its_trace_and_the_command_that_replays_it() -> None:
    """That a million records are acknowledged in two minutes of simulated time is a promise that is sure to break."""
    done = simulate("--seed", "3", "--seconds", "10", "--records", "1000000")
    assert done.returncode == EXIT_FAILED
    assert "  VIOLATION  " in done.stdout
    assert "  FAULT  " in done.stdout
    replay = done.stdout.splitlines()[-1]
    assert replay.startswith("replay: barnabas simulate --seed 3 ")
    again = simulate(*shlex.split(replay.partition(": barnabas simulate ")[2]))
    assert again.returncode == EXIT_FAILED
    violation = next(line for line in done.stdout.splitlines() if "  VIOLATION  " in line)
    assert violation in again.stdout.splitlines()


def read_to_end(terminal: int) -> str:
    """What appears at a terminal until nobody has it open any more."""
    chunks = []
    while True:
        try:
            chunks.append(os.read(terminal, 65_536))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b"".join(chunks).decode()


def test_a_terminal_shows_how_far_it_is_and_the_output_stays_clean() -> None:
    words = [sys.executable, "-m", "barnabas", "simulate", "--seeds", "3", "--jobs", "1", *SHORT]
    terminal, its_end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=its_end, text=True, env=environment) as process:
        os.close(its_end)
        shown = read_to_end(terminal)
        assert process.stdout is not None
        out = process.stdout.read()
    os.close(terminal)
    assert process.returncode == EXIT_OK, shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    steps = re.findall(r"simulating .*?(\d)/3 +seeds", plain)
    assert steps[0] == "0"
    assert steps[-1] == "3"
    assert {"1", "2"}.intersection(steps), "not only at its end"
    assert re.search(r"100% 3/3 +seeds +\d+\.\d/s", plain), "and how fast that was"
    assert "simulating" not in out
    assert ["seeds", "3"] in [line.split() for line in out.splitlines()]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What is started in the background of a script ignores SIGINT, and so would all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_whoever_interrupts_a_long_run_still_gets_a_summary() -> None:
    words = [sys.executable, "-u", "-m", "barnabas", "simulate", "--seeds", "10000", "--jobs", "1"]
    # So short of records that each seed breaks a promise, and is told on stderr.
    words += ["--seconds", "10", "--records", "1000000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("seed 1: ")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == EXIT_FAILED
    assert ["violations", "1"] in [line.split() for line in out.splitlines()]
