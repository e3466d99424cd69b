"""Simulated clients: what they do to a cluster, and what they were told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config.cluster_layout import NODES_FOR_MIN_ISR_OF_TWO, REPLICAS_MAX
from barnabas.testing.simulator.load.mixed_load import Mix, MixedLoad

if TYPE_CHECKING:
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.protocols import Load


def make_load(cluster: SimulatedCluster) -> Load:
    """Clients of all kinds, for a cluster that is ready."""
    nodes = len(cluster.nodes)
    min_isr = 2 if nodes >= NODES_FOR_MIN_ISR_OF_TWO else 1
    return MixedLoad(cluster, Mix(replication_factor=min(REPLICAS_MAX, nodes), min_insync_replicas=min_isr))
