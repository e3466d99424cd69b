"""Where the replicas of new partitions go."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.controller.decisions.placement import UsableBroker, place_replicas
from barnabas.protocol.errors import Error, KafkaError


def first(_limit: int) -> int:
    return 0


def cluster(racks: dict[str | None, list[int]], fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(broker, rack, broker in fenced) for rack, brokers in racks.items() for broker in brokers]


def test_one_broker_gets_everything() -> None:
    assert place_replicas(cluster({None: [7]}), 3, 1, first) == [(7,), (7,), (7,)]


def test_racks_and_the_brokers_in_them_take_turns() -> None:
    brokers = cluster({"a": [10, 11, 12], "b": [20, 21, 22], "c": [30, 31, 32]})
    assert place_replicas(brokers, 3, 3, first) == [(10, 20, 30), (21, 31, 11), (32, 12, 22)]


def test_a_fenced_broker_never_leads_and_follows_only_when_the_others_run_out() -> None:
    brokers = cluster({None: [1, 2, 3]}, fenced=(2,))
    for replicas in place_replicas(brokers, 20, 2, Random(1).randrange):
        assert 2 not in replicas
    for replicas in place_replicas(brokers, 20, 3, Random(1).randrange):
        assert replicas[0] != 2
        assert set(replicas) == {1, 2, 3}


@pytest.mark.parametrize(
    ("racks", "fenced", "factor", "message"),
    [
        ({None: [1]}, (), 0, "Invalid replication factor 0: the replication factor must be positive."),
        (
            {None: [1]},
            (1,),
            1,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        ),
        (
            {None: [1]},
            (),
            2,
            (
                "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or some "
                "brokers have all their log directories cordoned."
            ),
        ),
    ],
)
def test_what_cannot_be_placed_is_refused_in_kafkas_words(
    racks: dict[str | None, list[int]], fenced: tuple[int, ...], factor: int, message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        place_replicas(cluster(racks, fenced), 1, factor, first)
    assert (refused.value.error, refused.value.message) == (Error.INVALID_REPLICATION_FACTOR, message)


@given(
    rack_sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    factor=st.integers(1, 4),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_replicas_lie_on_different_brokers_on_as_many_racks_as_there_are(
    rack_sizes: list[int], factor: int, partitions: int, seed: int
) -> None:
    racks: dict[str | None, list[int]] = {
        f"rack {number}": [number * 10 + index for index in range(size)] for number, size in enumerate(rack_sizes)
    }
    brokers = cluster(racks)
    factor = min(factor, len(brokers))
    placed = place_replicas(brokers, partitions, factor, Random(seed).randrange)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({broker // 10 for broker in replicas}) == min(factor, len(racks))


@given(
    rack_count=st.integers(1, 4),
    rack_size=st.integers(1, 4),
    partitions=st.integers(1, 60),
    seed=st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_leaders_are_spread_evenly_over_racks_of_equal_size(
    rack_count: int, rack_size: int, partitions: int, seed: int
) -> None:
    brokers = cluster({f"rack {rack}": [rack * 10 + index for index in range(rack_size)] for rack in range(rack_count)})
    placed = place_replicas(brokers, partitions, 1, Random(seed).randrange)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders[broker.id] for broker in brokers) - min(leaders[broker.id] for broker in brokers) <= 1
