"""`barnabas completion`: what a shell is offered at Tab."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.completion.candidates import FILES, candidates
from barnabas.cli.main import COMMANDS, main

if TYPE_CHECKING:
    from tests.clients.barnabas_command.command import Barnabas


def offered(*words: str) -> list[str]:
    return [each.word for each in candidates(words)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("tran",), ["transactions"]),
        (("group", "delete"), ["delete", "delete-offsets"]),
        (("group", "describe", "--wat"), ["--watch"]),
        (("consume", "t", "--output", ""), ["text", "json", "hex", "table"]),
        (("produce", "t", ""), [FILES]),
        (("start", "--config", ""), [FILES]),
        (("config", "set", "c"), ["client-metrics"]),
        (("kafka", "kafka-top"), ["kafka-topics"]),
        (("kafka", "kafka-topics", "--bootstrap-s"), ["--bootstrap-server"]),
        (("nope", ""), []),
        (("group", "nope", ""), []),
        ((), []),
    ],
)
def test_words_are_completed_by_what_the_commands_take(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_can_be_completed(name: str) -> None:
    assert name in offered(name)
    offered(name, "--bootstrap-server", "127.0.0.1:1", "")


def test_names_come_from_the_cluster(barnabas: Barnabas, topic: str, group: str) -> None:
    server = ("--bootstrap-server", barnabas.bootstrap)
    barnabas.printed("topic", "create", topic)
    barnabas.printed("group", "reset", group, "--topic", topic, "--to", "end", "--yes")
    assert topic in offered("consume", *server, "")
    assert group in offered("group", "describe", *server, "group")
    assert topic in offered("group", "reset", "g", *server, "--topic", "")
    assert offered("config", "set", "topic", *server, topic)[0] == topic
    assert offered("config", "set", "topic", topic, *server, "retention.m") == ["retention.ms="]
    assert offered("consume", "--bootstrap-server", "127.0.0.1:1", "") == []


def test_bash_is_offered_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "some file").touch()
    ask = 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _barnabas; printf "%s\\n" "${COMPREPLY[@]}"'
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for words, expected in (("group me", ["members"]), ("produce t some", ["some file"])):
        done = subprocess.run(
            ["bash", "-c", f"{script}\nCOMP_WORDS=(barnabas {words}); {ask}"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        assert (done.stdout.splitlines(), done.stderr) == (expected, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_another_shell_is_one(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the shell is there, it reads the script; its words are those that bash is offered."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "completion words --" in script
    if shutil.which(shell) is not None:
        done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
