"""The programs of the README and of the page on clients run as they stand there, but for the address of the node."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.peers import Peer

ROOT = Path(__file__).parents[2]
README, CLIENTS = ROOT / "README.md", ROOT / "docs" / "clients.md"
ADDRESS = "127.0.0.1:9092"
TIMEOUT_S = 60.0


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


PROGRAMS = {
    library: next(block for block in blocks(page, "python") if f"from {library} import" in block)
    for library, page in (("confluent_kafka", README), ("aiokafka", CLIENTS), ("kafka", CLIENTS))
}


@pytest.mark.parametrize("library", PROGRAMS)
def test_a_program_prints_a_greeting(library: str, group_node: Peer, topic: str) -> None:
    program = (
        PROGRAMS[library].replace(ADDRESS, group_node.bootstrap).replace("greetings", topic).replace("readers", topic)
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout.startswith("b'hello from "), done.stderr


def test_the_commands_of_the_readme_work_one_after_the_other(node: Peer, topic: str) -> None:
    (commands,) = (block for block in blocks(README, "sh") if "barnabas topic create orders" in block)
    script = re.sub(r"^(.*barnabas \w+.*)$", rf"\1 --bootstrap-server {node.bootstrap}", commands, flags=re.MULTILINE)
    script = script.replace("orders", topic).replace("barnabas ", f"{sys.executable} -m barnabas ")
    done = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()[1:3]) == ["alice\t2 apples", "bob\t1 pear"]
    assert f"{topic}  id " in done.stdout
