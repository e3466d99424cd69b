"""Failures in work that comes back: each is said when it begins, not in every round, and keeps nothing else from its
turn."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    import logging
    from collections.abc import Hashable, Iterator


class Failures:
    """Of one chore, which visits many things in each of its rounds."""

    def __init__(self, chore: str, logger: logging.Logger) -> None:
        self._chore = chore
        self._logger = logger
        self._before: set[Hashable] = set()
        self._now: set[Hashable] = set()

    def begin_round(self) -> None:
        self._before, self._now = self._now, set()

    @contextmanager
    def of(self, thing: Hashable) -> Iterator[None]:
        """What the disk refuses within the block is this thing's failure alone; the next round tries it again."""
        try:
            yield
        except (OSError, KafkaError) as error:
            self._now.add(thing)
            if thing not in self._before:
                self._logger.error("%s failed for %s, and is tried again: %s", self._chore, thing, error)
