"""Answers that no client must ever get, whatever the nodes look like from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.simulator.protocols import Violation

if TYPE_CHECKING:
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.load.history import History


class NobodyComplains:
    """A client that complains names the promise that was broken."""

    name = "no client complains"

    def __init__(self, history: History) -> None:
        self._history = history
        self._heard = 0

    def observe(self, cluster: SimulatedCluster) -> None:  # noqa: ARG002 (others look at the nodes)
        for complaint in self._history.complaints[self._heard :]:
            self._heard += 1
            raise Violation(complaint.promise, f"{complaint.found}, at {complaint.at_s:.3f} s")

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)
