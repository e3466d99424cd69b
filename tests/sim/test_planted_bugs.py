"""The simulator finds bugs: those that are planted here, within a few seeds, and by the promise that each breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.testing.simulator.load.mixed_load import MixedLoad
from barnabas.testing.simulator.run import Scenario, simulate
from tests.sim.planted_bugs import BUGS

if TYPE_CHECKING:
    from tests.sim.planted_bugs import PlantedBug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_the_promise_that_it_breaks(bug: PlantedBug) -> None:
    found: list[str] = []
    for seed in range(1, bug.seeds + 1):
        scenario = Scenario(seed, nodes=bug.nodes, seconds=bug.seconds, records=0, kinds=bug.faults)
        with bug.planted():
            outcome = simulate(scenario, make_load=lambda cluster: MixedLoad(cluster, bug.mix))
        found += outcome.violations
        if any(violation.startswith(bug.invariant) for violation in outcome.violations):
            return
    pytest.fail(f"{bug.seeds} seeds did not break {bug.invariant!r}, but {found or 'nothing'}")
