"""The benchmark's groups: what its leader assigns, and what its book of owners lets pass."""

from __future__ import annotations

import pytest
from bench.loads.classic_member import assign_cooperatively
from bench.loads.ownership import Ownership, OwnershipError


def test_partitions_of_a_new_group_are_shared_evenly() -> None:
    assigned = assign_cooperatively({"a": set(), "b": set(), "c": set()}, 7)
    assert sorted(len(each) for each in assigned.values()) == [2, 2, 3]
    assert set.union(*assigned.values()) == set(range(7))


def test_what_a_member_has_too_much_is_free_only_after_it_was_given_up() -> None:
    first = assign_cooperatively({"a": {0, 1, 2, 3}, "b": set()}, 4)
    assert first == {"a": {0, 1}, "b": set()}
    assert assign_cooperatively(first, 4) == {"a": {0, 1}, "b": {2, 3}}


def test_a_restarted_member_moves_nothing_but_its_own_partitions() -> None:
    assert assign_cooperatively({"a": {0, 1}, "new": set(), "c": {4, 5}}, 6) == {
        "a": {0, 1},
        "new": {2, 3},
        "c": {4, 5},
    }


def test_a_partition_with_two_owners_is_an_error() -> None:
    ownership = Ownership(2, idle_seconds_max=60)
    ownership.acquire("a", [0, 1])
    assert ownership.is_complete
    with pytest.raises(OwnershipError, match="a still has"):
        ownership.acquire("b", [1])


def test_a_partition_without_an_owner_for_too_long_is_an_error() -> None:
    ownership = Ownership(1, idle_seconds_max=0)
    ownership.check_idle()  # nobody had it yet, so nobody misses it
    ownership.acquire("a", [0])
    ownership.release("a", [0])
    with pytest.raises(OwnershipError, match="no owner"):
        ownership.check_idle()


def test_nobody_gives_up_what_is_not_its_own() -> None:
    ownership = Ownership(1, idle_seconds_max=60)
    ownership.acquire("a", [0])
    with pytest.raises(OwnershipError, match="of a"):
        ownership.release("b", [0])
