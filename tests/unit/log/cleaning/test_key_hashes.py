"""Hashes stand for keys: they are the same for the same key, wherever it lies, and for no two others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.cleaning.key_hashes import KeyHashes
from barnabas.ports import SystemRandom
from barnabas.protocol.record_bounds import RecordBytes

KEYS = st.lists(
    st.binary(max_size=9) | st.integers(0, 300).map(bytes) | st.binary(min_size=120, max_size=140), max_size=12
)


def hashes_of(hashes: KeyHashes, keys: list[bytes], before: bytes) -> list[tuple[int, ...]]:
    data = before + b"".join(keys) + b"!!"
    sizes = np.array([len(key) for key in keys], np.int64)
    starts = len(before) + np.cumsum(sizes) - sizes
    return [tuple(row) for row in hashes.hash_all(RecordBytes(memoryview(data)), starts, sizes).tolist()]


@given(keys=KEYS, others=KEYS, before=st.binary(max_size=5))
def test_only_equal_keys_have_equal_hashes(keys: list[bytes], others: list[bytes], before: bytes) -> None:
    hashes = KeyHashes(SystemRandom())
    found = dict(zip(keys, hashes_of(hashes, keys, b""), strict=True))
    found_together = hashes_of(hashes, [*others, *keys], before)
    assert found_together[len(others) :] == [found[key] for key in keys]
    assert len(set(found_together)) == len({*others, *keys})


def test_each_cleaning_has_hashes_of_its_own() -> None:
    first, second = (hashes_of(KeyHashes(SystemRandom()), [b"key", b"k" * 500], b"") for _ in range(2))
    assert not {*first} & {*second}


def test_all_bits_depend_on_every_byte() -> None:
    hashes = KeyHashes(SystemRandom())
    keys = [bytes(20), *(bytes(at) + b"\1" + bytes(19 - at) for at in range(20))]
    whole, *changed = (low << 64 | high for low, high in hashes_of(hashes, keys, b""))
    for each in changed:
        assert 32 < (whole ^ each).bit_count() < 96
