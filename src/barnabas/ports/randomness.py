"""Chance: identifiers and jitter."""

from __future__ import annotations

import random
import uuid
from typing import Protocol

from barnabas.protocol.uuids import Uuid


class Random(Protocol):
    def uuid(self) -> Uuid: ...

    def below(self, limit: int) -> int:
        """A number from 0 up to, not including, `limit`."""
        ...


class SystemRandom:
    __slots__ = ()

    def uuid(self) -> Uuid:
        return Uuid(uuid.uuid4().bytes)

    def below(self, limit: int) -> int:
        return random.randrange(limit)
