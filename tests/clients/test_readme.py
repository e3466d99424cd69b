"""The README's programs run as they stand there, but for the address of the node."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.peers import Peer

README = Path(__file__).parents[2] / "README.md"
ADDRESS = "127.0.0.1:9092"
TIMEOUT_S = 60.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


PROGRAMS = {
    library: next(block for block in blocks("python") if f"from {library} import" in block)
    for library in ("confluent_kafka", "aiokafka", "kafka")
}


@pytest.mark.parametrize("library", PROGRAMS)
def test_a_program_of_the_readme_prints_a_greeting(library: str, node: Peer, topic: str) -> None:
    program = PROGRAMS[library].replace(ADDRESS, node.bootstrap).replace("greetings", topic).replace("readers", topic)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout.startswith("b'hello from "), done.stderr


def test_the_commands_of_the_readme_work_one_after_the_other(node: Peer, topic: str) -> None:
    (commands,) = (block for block in blocks("sh") if "barnabas topic create" in block)
    script = re.sub(r"^(.*barnabas \w+.*)$", rf"\1 --bootstrap-server {node.bootstrap}", commands, flags=re.MULTILINE)
    script = script.replace("orders", topic).replace("barnabas ", f"{sys.executable} -m barnabas ")
    done = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()[1:3]) == ["alice\t2 apples", "bob\t1 pear"]
    assert f"{topic}  id " in done.stdout
