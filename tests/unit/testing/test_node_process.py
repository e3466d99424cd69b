"""One node as a process of a test: when it counts as ready."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from barnabas.testing.node_process import Node
from tests.peers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

HALVES = """
import pathlib, sys, time
print("barnabas ready: PLAINTEXT://1", end="", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
print("27.0.0.1:4711", flush=True)
time.sleep(60)
"""


class NodeInHalves(Node):
    """Its line reaches the log in two pieces, as any line may whose bytes lie on two pages of a file."""

    def _command(self) -> list[str]:
        return [sys.executable, "-c", HALVES, str(self.data_dir)]

    def _log_from(self, position: int) -> bytes:
        found = super()._log_from(position)
        self.data_dir.touch()  # the second half may follow as soon as the first was looked at
        return found


def test_half_of_the_ready_line_is_not_taken_for_it(tmp_path: Path) -> None:
    node = NodeInHalves(tmp_path / "more")
    try:
        node.launch()
        wait_until(lambda: "ready" in node.log_text(), "the first half is written")
        node.wait_until_ready()
        assert node.port == 4711
    finally:
        node.kill()
