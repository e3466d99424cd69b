"""Draws of values, each of which Hypothesis can shrink: to the first of a choice, to the smallest number."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    T = TypeVar("T")


@cache
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


class Chance:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def below(self, count: int) -> int:
        """A number from 0 on."""
        return self._draw(_below(count)) if count > 1 else 0

    def choice(self, options: Sequence[T]) -> T:
        """One of them. The first should be the simplest, and what is to come up more often is there more often."""
        return options[self.below(len(options))]

    def one_in(self, count: int) -> bool:
        return self.below(count) == count - 1
