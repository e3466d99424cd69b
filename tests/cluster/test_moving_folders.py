"""Replicas move between the folders of their brokers while they are written to, led and followed, through a kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import Error
from tests.clients.with_confluent import ConfluentClient
from tests.cluster.clusters import QUICK, WHOLE_S, create_replicated, running, wait_until
from tests.cluster.writers import require_each_once, wait_until_on, writing
from tests.nodes import Cluster
from tests.wire.connection import Connection
from tests.wire.test_alter_log_dirs import Place, alter, places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = (1, 2, 3)
TOPIC = "moving"


def folders_of(root: Path, node_id: int) -> list[str]:
    return [f"{root}/node-{node_id}", f"{root}/node-{node_id}-too"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings_of = {node_id: {"log.dirs": ",".join(folders_of(tmp_path, node_id))} for node_id in NODES}
    with Cluster(tmp_path, settings=QUICK, settings_of=settings_of) as started:
        yield started


def place(cluster: Cluster, node_id: int) -> set[Place]:
    with Connection(cluster[node_id].port) as connection:
        return places(connection, TOPIC)


def test_leaders_and_followers_move_while_they_are_written(cluster: Cluster, tmp_path: Path) -> None:
    create_replicated(cluster, TOPIC, partitions=1)
    wait_until(lambda: all(len(place(cluster, node_id)) == 1 for node_id in NODES), "every node has its replica")
    client = ConfluentClient(running(cluster))
    with writing([client], [TOPIC], 1) as writers:
        targets = {}
        for node_id in NODES:
            (now,) = place(cluster, node_id)
            (targets[node_id],) = set(folders_of(tmp_path, node_id)) - {now.folder}
            with Connection(cluster[node_id].port) as connection:
                assert alter(connection, {targets[node_id]: {TOPIC: [0]}}) == {(TOPIC, 0): Error.NONE}
        cluster.kill(2)
        cluster.start_node(2)
        for node_id in NODES:
            wait_until(
                lambda node_id=node_id: place(cluster, node_id) == {Place(targets[node_id], False)},  # type: ignore[misc]
                f"the replica of node {node_id} has moved",
                deadline_s=WHOLE_S,
            )
        wait_until_on(writers)
    require_each_once([client], [TOPIC], writers)
