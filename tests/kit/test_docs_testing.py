"""The programs of the page on testing run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"
TIMEOUT_S = 100.0
MY_APPLICATION = """
from confluent_kafka import Producer


class MyApplication:
    def __init__(self, bootstrap, topic):
        self.producer, self.topic = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}), topic

    def greet(self, whom):
        self.producer.produce(self.topic, f"hello {whom}")
        self.producer.flush()


"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def environment(*folders: Path) -> dict[str, str]:
    path = os.pathsep.join([*map(str, folders), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


PROGRAMS = [block for block in blocks("python") if "def test_" not in block]


def test_the_page_has_three_programs() -> None:
    assert len(PROGRAMS) == 3


@pytest.mark.parametrize("program", PROGRAMS, ids=["broker", "asyncio", "cluster"])
def test_a_program_does_what_the_page_says(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("" if "Cluster" in program else "hello\n")


def test_the_tests_of_the_page_pass(tmp_path: Path, registered: Path) -> None:
    (tests,) = (block for block in blocks("python") if "def test_" in block)
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_page.py").write_text(MY_APPLICATION + tests)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(folder)],
        cwd=folder,
        env=environment(registered),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_commands_of_the_page_print_what_it_says(tmp_path: Path) -> None:
    (commands,), (output,) = blocks("sh"), blocks("text")
    command = tmp_path / "barnabas"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        env={**environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.stdout == output, done.stderr
