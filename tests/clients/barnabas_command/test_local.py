"""`barnabas status`, `barnabas stop`: nodes of this machine, found by the folders that they have open."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.main import main
from tests.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node that the test may stop."""
    node = Node(tmp_path / "home" / "node-1").start()
    yield node
    node.kill()


def test_a_node_is_found_by_its_folder_and_stopped(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(node.data_dir)
    assert main(["status", folder]) == 0
    columns, row = capsys.readouterr().out.splitlines()
    assert columns.split() == ["folder", "node", "software", "state", "listens", "at", "pid", "up", "for", "memory"]
    assert row.split()[:4] == [folder, "1", "Barnabas", "serves"]
    assert node.bootstrap in row

    assert main(["status", "--json"]) in (0, 1)  # others may run on this machine, and be about to end
    (facts,) = [each for each in json.loads(capsys.readouterr().out) if each["folders"] == [folder]]
    assert (facts["pid"], facts["node_id"], facts["software"]) == (node.pid, 1, "barnabas")
    assert node.port in facts["answering"]

    assert main(["stop", folder]) == 0
    assert capsys.readouterr().out.startswith(f"stopped {folder} (process {node.pid}) in ")
    node.wait_until_stopped()
    assert main(["stop", folder]) == 1
    assert capsys.readouterr().err == f"barnabas: no node runs in {folder}\n"
    assert main(["status", folder]) == 1
    assert capsys.readouterr().err.startswith(f"barnabas: no node runs in {folder} (`barnabas start --data-dir")


def test_a_node_that_does_not_stop_is_named_and_killed_if_that_is_wanted(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(node.data_dir)
    node.pause()
    assert main(["stop", folder, "--timeout", "0.1"]) == 1
    complaint = capsys.readouterr().err
    assert f"{folder} has not stopped within 0.1 s; process {node.pid} goes on stopping" in complaint
    assert main(["stop", folder, "--timeout", "0.1", "--kill", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"pid": node.pid, "folders": [folder]}]


def test_one_node_of_several_is_not_stopped_alone(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """What runs the nodes of a cluster holds the lock of their common folder, and starts each again that ends."""
    home = node.data_dir.parent
    (home / "cluster.properties").write_text("")
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(home / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        assert main(["stop", str(node.data_dir)]) == 1
        complaint = capsys.readouterr().err
        assert f"is one of the nodes of {home}, which starts it again: stop {home}" in complaint
        assert main(["status", str(home)]) == 0
        assert "Barnabas, all nodes" in capsys.readouterr().out
        supervisor.communicate(b"\n")
    assert node.is_running


@pytest.mark.parametrize(
    ("words", "complaint", "code"),
    [
        (("status", "/nowhere/at/all"), "there is no folder /nowhere/at/all", 1),
        (("stop", "/tmp"), "/tmp is no data folder", 1),
        (("stop", "--all", "/tmp"), "--all is every node", 2),
    ],
)
def test_what_is_no_folder_of_a_node_is_told(
    words: tuple[str, ...], complaint: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == code
    assert complaint in capsys.readouterr().err
