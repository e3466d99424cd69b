"""Chance that is the same for the same seed."""

from __future__ import annotations

import random

from barnabas.protocol.uuids import Uuid


class SeededRandom:
    """A `Random`. What it gives to one that asks depends on what others have asked for before: each node of a
    simulation gets its own."""

    __slots__ = ("_random",)

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> Uuid:
        return Uuid(self._random.randbytes(16))

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)
