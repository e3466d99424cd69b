"""Apache Kafka's three nodes beside ours, for what its tools print of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.clients.with_confluent import ConfluentClient
from tools import apache_kafka

from interop import clusters
from interop.conftest import SETTINGS
from interop.three_nodes.side_by_side import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interop.clusters import ThreeNodes


@pytest.fixture(scope="package")
def pair(three_nodes: ThreeNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    with clusters.running_cluster("kafka", tmp_path_factory.mktemp("beside"), SETTINGS) as beside:
        yield Pair(three_nodes, beside)


@pytest.fixture(scope="session")
def client(three_nodes: ThreeNodes) -> ConfluentClient:
    return ConfluentClient(three_nodes.bootstrap)
