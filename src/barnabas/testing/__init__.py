"""For tests of Kafka applications: brokers that are there in a moment and fail on demand, alone or as a cluster.

    from barnabas.testing import Broker, Cluster

Beside these (`kit`), here are nodes in subprocesses that are just what a user starts (`node_process`,
`cluster_processes`), and simulated twins of the ports.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.kit.asynchronous import AsyncBroker, AsyncCluster
    from barnabas.testing.kit.broker import Broker
    from barnabas.testing.kit.client_helpers import Record, unique_name
    from barnabas.testing.kit.cluster import Cluster
    from barnabas.testing.kit.faults import Fault, FaultError, Faults
    from barnabas.testing.node_process import NodeError

__all__ = [
    "AsyncBroker",
    "AsyncCluster",
    "Broker",
    "Cluster",
    "Fault",
    "FaultError",
    "Faults",
    "NodeError",
    "Record",
    "unique_name",
]

_MODULES = {
    "AsyncBroker": "kit.asynchronous",
    "AsyncCluster": "kit.asynchronous",
    "Broker": "kit.broker",
    "Cluster": "kit.cluster",
    "Fault": "kit.faults",
    "FaultError": "kit.faults",
    "Faults": "kit.faults",
    "NodeError": "node_process",
    "Record": "kit.client_helpers",
    "unique_name": "kit.client_helpers",
}


def __getattr__(name: str) -> object:
    """Imported when they are used: simulated nodes, and whoever has the pytest plugin and does not use it, do not."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
