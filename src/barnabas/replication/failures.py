"""Failures in recurring work: each is logged when it begins, not in every round, and does not affect the rest of the
work."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    import logging
    from collections.abc import Hashable, Iterator


class Failures:
    """The failures of one chore, which visits many things in each of its rounds."""

    def __init__(self, chore: str, logger: logging.Logger) -> None:
        self._chore = chore
        self._logger = logger
        self._before: set[Hashable] = set()
        self._now: set[Hashable] = set()

    def begin_round(self) -> None:
        self._before, self._now = self._now, set()

    @contextmanager
    def of(self, thing: Hashable) -> Iterator[None]:
        """An error within the block is a failure of this thing only; the next round tries it again."""
        try:
            yield
        except (OSError, KafkaError) as error:
            self._now.add(thing)
            if thing not in self._before:
                self._logger.error("%s failed for %s, will retry: %s", self._chore, thing, error)
