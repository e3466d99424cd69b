"""The steps of the page on clusters, run as they stand there on three addresses of this machine."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.nodes import Node
from tests.peers import free_port

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
TIMEOUT_S = 60.0
HOSTS = {number: f"127.0.0.{number}" for number in (1, 2, 3)}


class Machines:
    """A folder for each machine, in which the blocks of the page are run with its address and with free ports."""

    def __init__(self, folder: Path) -> None:
        self.folders = {number: folder / f"host{number}" for number in HOSTS}
        for each in self.folders.values():
            each.mkdir()
        section = PAGE.read_text().partition("## Three machines from nothing")[2].partition("\n## ")[0]
        found = re.findall(r"^ +```(\w+)\n(.*?)^ +```$", section, re.MULTILINE | re.DOTALL)
        self.blocks = [(language, textwrap.dedent(block)) for language, block in found]
        self.ports = {"9092": str(free_port()), "9093": str(free_port())}

    def block(self, language: str, containing: str) -> str:
        (found,) = (text for kind, text in self.blocks if kind == language and containing in text)
        return found

    def adapted(self, text: str, number: int) -> str:
        for each, address in HOSTS.items():
            text = text.replace(f"host{each}", address)
        for port, free in self.ports.items():
            text = text.replace(port, free)
        return text.replace("/var/lib/barnabas", str(self.folders[number] / "data"))

    def run(self, containing: str, number: int = 1) -> str:
        script = self.adapted(self.block("sh", containing), number)
        script = script.replace("barnabas ", f"{sys.executable} -m barnabas ")
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=self.folders[number],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def test_three_machines_from_nothing(machines: Machines) -> None:
    machines.run("random-uuid")
    ids = (machines.folders[1] / "ids.sh").read_text()
    file = machines.block("properties", "node.id=1")
    for number, folder in machines.folders.items():
        (folder / "ids.sh").write_text(ids)
        own = file.replace("node.id=1", f"node.id={number}").replace("//host1:", f"//host{number}:")
        (folder / "node.properties").write_text(machines.adapted(own, number))
        machines.run("barnabas format", number)
    assert machines.block("sh", "barnabas start").strip() == "barnabas start --config node.properties"
    nodes = [
        Node(folder / "data", port=1, config_file=folder / "node.properties") for folder in machines.folders.values()
    ]
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready()
        assert machines.run("barnabas topic create").splitlines()[-1] == "2 apples"
        shown = machines.run("barnabas cluster status")
        for address in HOSTS.values():
            assert address in shown
        for node in nodes:
            node.stop()
    finally:
        for node in nodes:
            node.kill()
