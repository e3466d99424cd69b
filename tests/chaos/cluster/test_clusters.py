"""Three and five nodes under load, killed, stopped, cut off, restarted and filled up: nothing acknowledged is lost,
nothing doubled, the order kept.

In full (`make chaos`) faults of all kinds come for half an hour in all, as a seed has them drawn, with a Spark pipeline
among the load; the seed is printed. The short form has one fault of each of three kinds. Either leaves a report with a
picture in the folder that it names at the end.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tests.chaos.cluster.report import save, show
from tests.chaos.cluster.run import RunOptions, run

if TYPE_CHECKING:
    from pathlib import Path

SHORT = RunOptions(
    nodes=3,
    seed=15,
    duration_s=0.0,
    kinds=("kill of a leader", "stop, longer than the session", "cut off"),
    in_order=True,
)
FULL_S = 900.0


def hold_together(folder: Path, options: RunOptions, capsys: pytest.CaptureFixture[str]) -> None:
    """What happens is printed as it happens: half an hour without a word would be too long."""
    with capsys.disabled():
        console = Console(soft_wrap=True)
        console.print()
        report = run(folder, options, lambda line: console.print(line, markup=False, highlight=False))
        save(report, folder)
        show(report, console)
        console.print(f"logs and report: {folder}")
    assert report.violations == []
    assert report.happened


@pytest.mark.timeout(600)
def test_three_nodes_lose_and_double_nothing_through_a_kill_a_stop_and_a_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold_together(tmp_path, SHORT, capsys)


@pytest.mark.full
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("nodes", [3, 5])
def test_clusters_lose_and_double_nothing_whatever_happens(
    nodes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    hold_together(tmp_path, RunOptions(nodes, seed, FULL_S, has_pipeline=True), capsys)
