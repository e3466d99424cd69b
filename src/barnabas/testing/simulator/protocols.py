"""What a run asks of the clients that make the load, and of the promises that it checks.

`simulator.load.make_load` and `simulator.invariants.make_invariants` are what a run takes unless it is given others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.testing.simulator.cluster import SimulatedCluster

    MakeLoad = Callable[[SimulatedCluster], "Load"]
    """Called when all nodes are ready for the first time."""
    MakeInvariants = Callable[[SimulatedCluster, "Load"], Sequence["Invariant"]]
    """Called right after that."""


class Violation(Exception):  # noqa: N818 (nothing went wrong in the simulator)
    """A promise was broken. The text says where, and what was found instead."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text


class Load(Protocol):
    """Simulated clients, on machines and loops of their own (`cluster.client`)."""

    def start(self) -> None:
        """Begins to work, for the most part in tasks. It makes its topics by itself, too."""
        ...

    def stop(self) -> None:
        """Begins nothing new. What was begun is brought to an end, which takes time."""
        ...

    @property
    def is_drained(self) -> bool:
        """Whether everything that was begun has ended, after `stop`."""
        ...

    @property
    def acknowledged_records(self) -> int: ...

    @property
    def counts(self) -> Mapping[str, int]:
        """What else was done, for the summary: transactions, rebalances …"""
        ...

    def describe(self) -> str:
        """What is still under way, for the report on a load that does not drain."""
        ...


class Invariant(Protocol):
    """A promise that is checked from the first moment to the last. It raises `Violation`."""

    @property
    def name(self) -> str: ...

    def observe(self, cluster: SimulatedCluster) -> None:
        """Called every so often in simulated time, and after every fault. Looks, and changes nothing."""
        ...

    def finish(self, cluster: SimulatedCluster) -> None:
        """Called once, when all faults are healed, the load is drained and the cluster has settled."""
        ...
