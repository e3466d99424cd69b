"""Where in a JSON document something is, and what it has to be: `.user.tags[0]`, `amount>=10`, `items[*].name~^a`.

A path is names and `[numbers]`, one after the other; `[*]` is every element of a list or every value of an object, and
a name with odd letters is written `["like this"]`. A condition holds if it holds for one of the values found; a path
alone holds where there is something, null included.
"""

from __future__ import annotations

import json
import operator
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STEP: Final = re.compile(
    r"""\.?(?P<name>[^\s.\[\]=!<>~]+)|\[(?:(?P<index>-?\d+)|(?P<every>\*)|(?P<quoted>"[^"]*"))\]"""
)
_OPERATOR: Final = re.compile(r"!=|<=|>=|=|<|>|~")
_ORDERED: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class PathError(ValueError):
    """No path, or no condition."""


class _Every:
    """The step to everything in a list or an object."""


EVERY: Final = _Every()
Step = str | int | _Every
"""A name in an object, a place in a list, or all of either."""


class Condition(NamedTuple):
    """What some value at a path has to be."""

    path: tuple[Step, ...]
    holds: Callable[[Any], bool]

    def is_met_by(self, document: Any) -> bool:
        return any(self.holds(value) for value in values_at(document, self.path))


def parse_condition(text: str) -> Condition:
    path, end = _parse_steps(text)
    rest = text[end:].lstrip()
    if not rest:
        return Condition(path, lambda _: True)
    found = _OPERATOR.match(rest)
    if found is None:
        raise PathError(f"{text!r}: {rest!r} is neither a path nor one of = != < <= > >= ~")
    return Condition(path, _comparison(found[0], rest[found.end() :].strip(), text))


def parse_path(text: str) -> tuple[Step, ...]:
    path, end = _parse_steps(text)
    if end != len(text):
        raise PathError(f"{text!r}: {text[end:]!r} is no part of a path")
    return path


def values_at(document: Any, path: tuple[Step, ...]) -> Iterator[Any]:
    """What is there; nothing where a step leads nowhere."""
    if not path:
        yield document
        return
    step, *rest = path
    for value in _below(document, step):
        yield from values_at(value, tuple(rest))


def _below(document: Any, step: Step) -> list[Any]:
    if isinstance(step, _Every):
        if isinstance(document, dict):
            return list(document.values())
        return document if isinstance(document, list) else []
    if isinstance(step, int):
        is_there = isinstance(document, list) and -len(document) <= step < len(document)
    else:
        is_there = isinstance(document, dict) and step in document
    return [document[step]] if is_there else []


def _parse_steps(text: str) -> tuple[tuple[Step, ...], int]:
    at = 1 if text.startswith("$") else 0
    steps: list[Step] = []
    if text in (".", "$"):
        return (), len(text)
    while (found := _STEP.match(text, at)) is not None:
        at = found.end()
        if found["name"] is not None:
            steps.append(EVERY if found["name"] == "*" else found["name"])
        elif found["index"] is not None:
            steps.append(int(found["index"]))
        else:
            steps.append(EVERY if found["every"] else found["quoted"][1:-1])
    if not steps:
        raise PathError(f"{text!r} does not begin with a path such as .user.name or items[0]")
    return tuple(steps), at


def _comparison(sign: str, wanted: str, text: str) -> Callable[[Any], bool]:
    if sign == "~":
        try:
            pattern = re.compile(wanted)
        except re.error as error:
            raise PathError(f"{text!r}: {error}") from None
        return lambda value: pattern.search(_text_of(value)) is not None
    if sign in ("=", "!="):
        is_equality = sign == "="
        return lambda value: _is_equal(value, wanted) is is_equality
    number = _number(wanted)
    compare = _ORDERED[sign]
    return lambda value: _is_ordered(compare, value, wanted, number)


def _is_equal(value: Any, wanted: str) -> bool:
    """As text, or as the JSON that the text is: 5 and "5" both equal 5, and 5.0 does as well."""
    if _text_of(value) == wanted:
        return True
    number = _number(wanted)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and number is not None and bool(value == number)


def _is_ordered(compare: Callable[[Any, Any], bool], value: Any, wanted: str, number: float | None) -> bool:
    """By number beside a number, where both are such; else by text, as for dates."""
    if number is None:
        return isinstance(value, str) and compare(value, wanted.strip('"'))
    if isinstance(value, str):
        value = _number(value)
    return isinstance(value, int | float) and not isinstance(value, bool) and compare(value, number)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
