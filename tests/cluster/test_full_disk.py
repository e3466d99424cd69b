"""One node of three has no space left: records flow on where they can, and everywhere when space returns."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.clients.conftest import LIBRARIES
from tests.cluster.clusters import QUICK, create_replicated, described, make_whole, running, status, wait_until
from tests.cluster.writers import require_each_once, wait_until_on, writing
from tests.disks import small_disk
from tests.nodes import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = {**QUICK, "replica.lag.time.max.ms": "2000"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Each node has its folder on a small disk."""
    made = Cluster(tmp_path, settings=SETTINGS)
    with contextlib.ExitStack() as stack:
        for node in made.nodes.values():
            stack.enter_context(small_disk(node.data_dir))
        yield stack.enter_context(made)


def fill(filler: Path) -> None:
    """Takes all the space that there is, to the last byte."""
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def test_a_full_disk_on_one_of_three_nodes_loses_and_doubles_nothing(cluster: Cluster, topic: str) -> None:
    """What the node follows goes on without it, and what it leads waits for space."""
    clients = [library(running(cluster)) for library in LIBRARIES]
    names = [f"{topic}-{client.name}" for client in clients]
    full = next(node_id for node_id in cluster.nodes if node_id != status(cluster)["quorum"]["leader"])
    others = sorted({1, 2, 3} - {full})
    led = [f"{name}-led" for name in names]
    for name in names:
        create_replicated(cluster, name, assignment=[[others[0], full, others[1]]], min_insync_replicas="2")
    for name in led:
        create_replicated(cluster, name, assignment=[[full, *others]], min_insync_replicas="2")
    with writing(clients, names, 1) as writers, writing(clients, led, 1) as waiting:
        filler = cluster[full].data_dir / "filler"
        fill(filler)
        wait_until(
            lambda: all(full not in described(cluster, name)[0].isrs for name in names),
            "the full node is no longer in sync",
            60,
        )
        wait_until_on(writers)
        filler.unlink()
        wait_until_on([*writers, *waiting])
        make_whole(cluster)
    require_each_once(clients, names, writers)
    require_each_once(clients, led, waiting)
    assert "No space left on device" in cluster.log_text(full)
