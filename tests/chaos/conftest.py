"""Nodes to be ill-treated: each test has its own, with its folder on a disk of the test's choice."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from barnabas.testing.node_process import Node
from tests.peers import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Node]:
    """A running node of Barnabas, open to many clients at once; however the test leaves it, it is gone afterwards."""
    node = Node(tmp_path / "data", settings={**SETTINGS, "socket.listen.backlog.size": "4096"})
    node.start()
    yield node
    node.kill()


@pytest.fixture
def many_files() -> Iterator[int]:
    """As many open files as the system allows, for this process and the nodes it starts; the number."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
