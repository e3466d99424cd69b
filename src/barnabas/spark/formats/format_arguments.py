"""Checks of the arguments of `from_topic`, `to_topic` and `dead_letters`: errors before any data is read or written."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class ArgumentError(ValueError):
    """An invalid argument; the message names it, and says what it could be."""

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)
        self.argument = argument
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.argument}: {self.problem}"


def nearest(name: str, known: Collection[str]) -> str:
    """The end of an error message about a name: the known one that was probably meant, else all of them."""
    spelling = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), spelling, n=1)
    if close:
        return f"did you mean {spelling[close[0]]}?"
    return f"there are only {', '.join(sorted(known))}" if known else "there are none"


def check_choice(argument: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise ArgumentError(argument, f"{value!r} is not known; {nearest(str(value), choices)}")


def check_columns(columns: Collection[str], needed: Collection[str], why: str) -> None:
    for name in needed:
        if name not in columns:
            raise ArgumentError("frame", f"there is no column {name}, {why}; {nearest(name, columns)}")


def check_options(options: Mapping[str, object] | None, known: Collection[str], of: str) -> dict[str, str]:
    """Options in the spelling of Spark's documentation; like Spark, this accepts them in any case."""
    spelling = {name.lower(): name for name in known}
    checked = {}
    for name, value in (options or {}).items():
        if name.lower() not in spelling:
            raise ArgumentError("options", f"{name} is not an option of {of}; {nearest(name, known)}")
        checked[spelling[name.lower()]] = str(value).lower() if isinstance(value, bool) else str(value)
    return checked
