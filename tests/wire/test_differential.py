"""The differential run itself, with nodes of ours on both sides: it finds what differs, and nothing else."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from interop.differential.campaign import DifferenceError, Tally, hunt
from interop.differential.nodes import ready
from interop.differential.running import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REQUESTS = 300


@contextlib.contextmanager
def pair(folder: Path, *settings: dict[str, str]) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        sides = []
        for number, each in enumerate(settings):
            (folder / str(number)).mkdir()
            sides.append(stack.enter_context(ready(f"side {number}", "barnabas", folder / str(number), each)))
        yield Pair(*sides)


def test_a_node_answers_like_another_node(tmp_path: Path) -> None:
    tally = Tally()
    with pair(tmp_path, {}, {}) as nodes:
        hunt(nodes, 1, REQUESTS, tally, lambda _: None)
    assert tally.requests >= REQUESTS
    assert tally.unsteady.total() == 0


def test_a_node_with_another_setting_is_found_by_a_single_request(tmp_path: Path) -> None:
    with (
        pair(tmp_path, {}, {"compression.type": "gzip"}) as nodes,
        pytest.raises(DifferenceError) as found,
    ):
        hunt(nodes, 1, REQUESTS, Tally(), lambda _: None)
    assert "  1. CreateTopicsRequest" in str(found.value)
    assert "  2. " not in str(found.value)
