"""The map of offsets against a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.cleaning import offset_map as offset_maps
from barnabas.log.cleaning.offset_map import ENTRY_BYTES, OffsetMap

if TYPE_CHECKING:
    from barnabas.log.cleaning.key_hashes import Hashes
    from barnabas.protocol.record_bounds import Ints

HASHES = st.tuples(st.integers(0, 40), st.integers(0, 3))
"""They often meet in a slot, and have few strides, so that they meet again."""


def rows(hashes: list[tuple[int, int]]) -> Hashes:
    return np.array(hashes, np.uint64).reshape(-1, 2)


def numbers(first: int, count: int) -> Ints:
    return np.arange(first, first + count)


@given(batches=st.lists(st.lists(HASHES, max_size=12), max_size=12), entries=st.sampled_from([200, 1_000]))
def test_the_newest_offset_of_each_key_is_found(batches: list[list[tuple[int, int]]], entries: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_maps, "SLOTS_AT_FIRST", 5)
        offset_map = OffsetMap(ENTRY_BYTES * entries, 0.9)
        newest: dict[tuple[int, int], int] = {}
        offset = 0
        for hashes in batches:
            assert offset_map.put_all(rows(hashes), numbers(offset, len(hashes))) == len(hashes)
            newest.update((key, offset + number) for number, key in enumerate(hashes))
            offset += len(hashes)
            assert len(offset_map) == len(newest)
        asked = [*newest, (41, 0), (5, 4)]
        assert offset_map.find_all(rows(asked)).tolist() == [*newest.values(), -1, -1]


@given(
    hashes=st.lists(HASHES, min_size=1, max_size=60),
    entries=st.integers(1, 40),
    load_factor=st.sampled_from([0.1, 0.9, 1.0]),
)
def test_a_full_map_takes_known_keys_and_no_new_ones(
    hashes: list[tuple[int, int]], entries: int, load_factor: float
) -> None:
    offset_map = OffsetMap(ENTRY_BYTES * entries, load_factor)
    taken = offset_map.put_all(rows(hashes), numbers(0, len(hashes)))
    known = set(hashes[:taken])
    assert len(known) <= offset_map.capacity
    if taken < len(hashes):
        assert len(known) == offset_map.capacity
        assert hashes[taken] not in known
    assert offset_map.put_all(rows(hashes[:taken]), numbers(100, taken)) == taken
    newest = {key: 100 + number for number, key in enumerate(hashes[:taken])}
    assert offset_map.find_all(rows(hashes)).tolist() == [newest.get(key, -1) for key in hashes]


@pytest.mark.parametrize(("memory_bytes", "capacity"), [(0, 2), (24 * 100, 87), (128 << 20, 5_033_135)])
def test_its_memory_says_how_many_keys_it_holds(memory_bytes: int, capacity: int) -> None:
    assert OffsetMap(memory_bytes, 0.9).capacity == capacity
