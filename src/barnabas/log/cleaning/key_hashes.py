"""Hashes of 128 bits that stand for the keys of records, of thousands at once.

A key is taken as a row of words of 32 bits, after its size. Each word is multiplied by a number of 64 bits of its own,
and the upper half of the sum is 32 bits of the hash; four such sums make it whole. The multipliers are drawn anew for
each cleaning. So two keys share a hash with a probability of at most 2^-128, however the keys were chosen: multilinear
hashing is strongly universal (Lemire and Kaser, "Strongly universal string hashing is fast"). That matters, as the
older of two records that share one is lost.

Keys that are longer than `WORDS_MAX` words go through BLAKE2b, with a secret key, one by one.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barnabas.ports import Random
    from barnabas.protocol.record_bounds import Ints, RecordBytes

Hashes: TypeAlias = "NDArray[np.uint64]"
"""A row of two words of 64 bits for each key."""

WORD_BYTES: Final = 4
WORDS_MAX: Final = 32
HASH_BYTES: Final = 16
_SUMS: Final = HASH_BYTES // WORD_BYTES
_HALF: Final = np.uint64(32)


class KeyHashes:
    def __init__(self, random: Random) -> None:
        drawn = [[random.below(1 << 64) for _ in range(_SUMS)] for _ in range(1 + WORDS_MAX)]
        self._of_size, *of_words = np.array(drawn, np.uint64)
        self._of_words = np.array(of_words)
        self._secret = self._of_words.tobytes()[: blake2b.MAX_KEY_SIZE]

    def hash_all(self, records: RecordBytes, starts: Ints, sizes: Ints) -> Hashes:
        """The hashes of the keys at these places."""
        hashes = np.empty((len(starts), 2), np.uint64)
        long = np.flatnonzero(sizes > WORD_BYTES * WORDS_MAX)
        hashes[long] = self._hash_long(records, starts[long], sizes[long])
        counts = np.bincount(sizes) if not len(long) else np.bincount(np.delete(sizes, long))
        for size in np.flatnonzero(counts).tolist():
            if counts[size] == len(starts):
                return self._hash_short(records, starts, size)
            same = np.flatnonzero(sizes == size)
            hashes[same] = self._hash_short(records, starts[same], size)
        return hashes

    def _hash_short(self, records: RecordBytes, starts: Ints, size: int) -> Hashes:
        """Of keys that all have this size."""
        count = -(-size // WORD_BYTES)
        octets = np.zeros((len(starts), count * WORD_BYTES), np.uint8)
        if size:
            octets[:, :size] = records.rows(starts, size)
        sums = octets.view("<u4").astype(np.uint64) @ self._of_words[:count] + self._of_size * np.uint64(size)
        sums >>= _HALF
        hashes: Hashes = sums[:, :2] << _HALF | sums[:, 2:]
        return hashes

    def _hash_long(self, records: RecordBytes, starts: Ints, sizes: Ints) -> Hashes:
        digests = [
            blake2b(records.data[start : start + size], digest_size=HASH_BYTES, key=self._secret).digest()
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
        return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
