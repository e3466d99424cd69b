"""The newest offset of each key in the dirty part of a log, in bounded memory.

Keys are told apart by a hash of 128 bits (`key_hashes`), as in Kafka: two that share one are as good as impossible, and
an entry takes 24 bytes, however long its key. The entries lie in a table with open addressing, which is small at first,
so that few keys stay close together, and grows up to the memory that it may take. All keys of a request are looked for
at the same time: first each where its hash says, then those that met another key there where their strides say, and so
on.

A map that is full takes no new key. The pass that fills it stops at that record; the rest of the log is cleaned next
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from barnabas.log.cleaning.key_hashes import Hashes
    from barnabas.protocol.record_bounds import Ints

ENTRY_BYTES: Final = 24
SLOTS_MIN: Final = 3
SLOTS_AT_FIRST: Final = 1 << 14
GROWTH: Final = 4
FILLED_MAX: Final = 0.5
"""How much of the table is in use before it grows, as long as it may: the less, the sooner keys are found."""

NOT_FOUND: Final = -1
_LOW, _HIGH, _BEHIND = range(3)
"""The columns of the table: the hash of a key, and the offset after its newest; 0 in an empty slot."""


class OffsetMap:
    """`latest_offset` is how far the log has been put in: records after it are not known to the map."""

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        self._slots_max = _prime_at_most(max(memory_bytes // ENTRY_BYTES, SLOTS_MIN))
        self.capacity = min(max(int(self._slots_max * load_factor), 1), self._slots_max - 1)
        """One slot is always empty: there the search for a key ends that is not in the map."""
        self.latest_offset = NOT_FOUND
        self._stored = 0
        self._table = _empty_table(min(self._slots_max, _prime_at_most(SLOTS_AT_FIRST)))

    def __len__(self) -> int:
        return self._stored

    def put_all(self, hashes: Hashes, offsets: Ints) -> int:
        """Puts keys in, in the order of their offsets. Returns how many were taken: fewer than all if the map is
        full."""
        taken = 0
        while taken < len(offsets):
            rest = hashes[taken:]
            slots = self._slots_of(rest)
            new = np.flatnonzero(self._table[slots, _BEHIND] == 0)
            room = self.capacity - self._stored
            # A new key may be among these more than once: then there is room for more of them in the next round.
            count = int(new[room]) if len(new) > room else len(rest)
            if not count:
                break
            new = new[:room]
            if self._grow_for(len(new)):
                slots = self._slots_of(rest)
            slots[new] = self._claim(rest[new], slots[new])
            # Where a slot comes more than once, the last stays.
            self._table[slots[:count], _BEHIND] = offsets[taken : taken + count] + 1
            taken += count
        return taken

    def find_all(self, hashes: Hashes) -> Ints:
        """The newest offset of each key; -1 for one that is not in the map."""
        found: Ints = self._table[self._slots_of(hashes), _BEHIND].astype(np.int64) - 1
        return found

    def _grow_for(self, more: int) -> bool:
        """False if the table is large enough for so many more, or as large as it may be."""
        size = len(self._table)
        while size < self._slots_max and self._stored + more > size * FILLED_MAX:
            size = min(size * GROWTH, self._slots_max)
        if size == len(self._table):
            return False
        entries = self._table[self._table[:, _BEHIND] != 0]
        self._table = _empty_table(_prime_at_most(size))
        self._stored = 0
        hashes = entries[:, : _HIGH + 1]
        self._table[self._claim(hashes, self._first_slots(hashes)), _BEHIND] = entries[:, _BEHIND]
        return True

    def _slots_of(self, hashes: Hashes) -> Ints:
        """For each key, the slot where it is, or an empty one where it would be."""
        slots, sought = self._first_slots(hashes), np.arange(len(hashes))
        while len(sought):
            entries = self._table.take(slots[sought], axis=0)
            sought = sought[(entries[:, _BEHIND] != 0) & _differ(entries, hashes[sought])]
            self._move_on(slots, sought, hashes)
        return slots

    def _claim(self, hashes: Hashes, slots: Ints) -> Ints:
        """Puts keys that are not in the table there, from these slots on; returns where each is. What is behind it is
        to be set."""
        sought = np.arange(len(hashes))
        while len(sought):
            wanted = slots[sought]
            claimants = sought[self._table[wanted, _BEHIND] == 0]
            if len(claimants):
                # Of those that want the same slot, the last to write its number there has it, and all with its key.
                numbers = (claimants + 1).astype(np.uint64)
                self._table[slots[claimants], _BEHIND] = numbers
                winners = claimants[self._table[slots[claimants], _BEHIND] == numbers]
                self._table[slots[winners], : _HIGH + 1] = hashes[winners]
                self._stored += len(winners)
            sought = sought[_differ(self._table.take(wanted, axis=0), hashes[sought])]
            self._move_on(slots, sought, hashes)
        return slots

    def _first_slots(self, hashes: Hashes) -> Ints:
        """Where each key is looked for first."""
        slots: Ints = (hashes[:, _LOW] % np.uint64(len(self._table))).astype(np.int64)
        return slots

    def _move_on(self, slots: Ints, which: Ints, hashes: Hashes) -> None:
        """Each key has a stride of its own, so that they do not crowd."""
        size = len(self._table)
        strides = 1 + (hashes[which, _HIGH] % np.uint64(size - 1)).astype(np.int64)
        slots[which] = (slots[which] + strides) % size


def _differ(entries: Hashes, hashes: Hashes) -> NDArray[np.bool_]:
    differ: NDArray[np.bool_] = (entries[:, _LOW] != hashes[:, _LOW]) | (entries[:, _HIGH] != hashes[:, _HIGH])
    return differ


def _empty_table(slots: int) -> Hashes:
    return np.zeros((slots, ENTRY_BYTES // 8), np.uint64)


def _prime_at_most(limit: int) -> int:
    """With a prime number of slots, every stride visits all of them."""
    while limit > SLOTS_MIN and any(limit % divisor == 0 for divisor in range(2, int(limit**0.5) + 1)):
        limit -= 1
    return limit
