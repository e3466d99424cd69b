"""A hundred seeds without a broken promise. `make sim` looks at ten thousand."""

from __future__ import annotations

import pytest

from barnabas.testing.simulator.load.mixed_load import MixedLoad
from barnabas.testing.simulator.run import Scenario, simulate
from tests.sim.commands import LIMIT_S, outcomes
from tests.sim.planted_bugs import PRODUCERS

SEEDS_EACH = 10


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("first", range(1, 91, SEEDS_EACH))
def test_three_nodes_keep_their_promises(first: int) -> None:
    runs = outcomes("--seed", str(first), "--seeds", str(SEEDS_EACH))
    assert [run["seed"] for run in runs] == list(range(first, first + SEEDS_EACH))
    for run in runs:
        assert run["simulated_seconds"] >= 60
        assert sum(run["faults"].values()) >= 5
        assert run["acknowledged_records"] >= 1_000


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(("nodes", "seeds"), [(1, 3), (2, 3), (5, 10)])
def test_clusters_of_other_sizes_keep_their_promises(nodes: int, seeds: int) -> None:
    runs = outcomes("--nodes", str(nodes), "--seed", "1001", "--seeds", str(seeds))
    assert [run["seed"] for run in runs] == list(range(1001, 1001 + seeds))


def test_a_first_batch_that_is_refused_for_now_is_not_overtaken() -> None:
    """A leader without enough replicas in sync refuses it, and has enough of them when the next one would come."""
    scenario = Scenario(45, seconds=30.0, records=0, kinds=("kill", "power loss"))
    outcome = simulate(scenario, make_load=lambda cluster: MixedLoad(cluster, PRODUCERS))
    assert outcome.violations == ()
