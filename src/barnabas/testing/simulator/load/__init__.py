"""Simulated clients: what they do to a cluster, and what they were told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.simulator.load.mixed_load import MixedLoad

if TYPE_CHECKING:
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.protocols import Load


def make_load(cluster: SimulatedCluster) -> Load:
    """Clients of all kinds, for a cluster that is ready."""
    return MixedLoad(cluster)
