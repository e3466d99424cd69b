"""The programs of the page on delivery guarantees run as they stand, but for the address, and print what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests.peers import Peer

PAGE = Path(__file__).parents[2] / "docs" / "delivery-guarantees.md"
ADDRESS = "127.0.0.1:9092"
TIMEOUT_S = 60.0


class Example(NamedTuple):
    heading: str
    program: str
    output: str


def examples() -> list[Example]:
    """Each program with the heading that it stands under and the output that follows it."""
    found = []
    for section in re.split(r"^#{2,} ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        blocks = re.findall(r"^```(python|text)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        if blocks:
            (_, program), (_, output) = blocks
            found.append(Example(section.splitlines()[0], program, output))
    return found


def test_each_guarantee_has_a_program() -> None:
    headings = [example.heading.partition(":")[0] for example in examples()]
    assert headings == [
        "At most once",
        "At least once",
        "Into a topic",
        "Across topics",
        "From topic to topic",
        "Into a database",
    ]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.heading)
def test_a_program_on_delivery_guarantees_prints_what_the_page_says(example: Example, group_node: Peer) -> None:
    program = example.program.replace(ADDRESS, group_node.bootstrap)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.stdout, done.returncode) == (example.output, 0), done.stderr
