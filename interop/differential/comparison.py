"""Where two answers differ, field by field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from interop.differential.allowed import Allowed, allowance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.protocol.compiler.structs import Message
    from interop.differential.canonical import Canon, Tree
    from interop.differential.running import Exchange
    from interop.differential.sides import Answer

_INDEX = re.compile(r"\[\d+\]")


class Difference(NamedTuple):
    number: int
    """Of the step."""
    path: str
    ours: Any
    kafkas: Any

    @property
    def signature(self) -> str:
        """The same for differences that are likely to have the same cause."""
        return f"{_INDEX.sub('', self.path)}: {_short(self.ours)} / {_short(self.kafkas)}"


class Found(NamedTuple):
    differences: list[Difference]
    allowed: list[Allowed]


def compare(exchange: Exchange, canons: tuple[Canon, Canon], earlier: Sequence[Message] = ()) -> Found:
    """`earlier` are the requests of the sequence before this one."""
    ours, kafkas = (shown(answer, canon) for answer, canon in zip(exchange.answers, canons, strict=True))
    found = Found([], [])
    api = type(exchange.step.request).__name__[: -len("Request")]
    for path, one, other in _differing(ours, kafkas, api):
        plain = _INDEX.sub("", path)
        excuse = allowance(plain, one, other, exchange.asked[0].request, earlier)
        if excuse is None:
            found.differences.append(Difference(exchange.number, path, one, other))
        else:
            found.allowed.append(excuse)
    return found


def shown(answer: Answer, canon: Canon) -> Tree:
    return answer.instead if answer.message is None else canon.tree(answer.message, answer.version)


def _differing(ours: Tree, kafkas: Tree, path: str) -> Iterator[tuple[str, Tree, Tree]]:
    if isinstance(ours, dict) and isinstance(kafkas, dict) and ours.keys() == kafkas.keys():
        for key in ours:
            yield from _differing(ours[key], kafkas[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(kafkas, list) and len(ours) == len(kafkas):
        for index, (one, other) in enumerate(zip(ours, kafkas, strict=True)):
            yield from _differing(one, other, f"{path}[{index}]")
    elif ours != kafkas and not (ours != ours and kafkas != kafkas):
        yield path, ours, kafkas


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} elements"
    if isinstance(value, dict):
        return "a message"
    return repr(re.sub(r"\d+", "N", value) if isinstance(value, str) else value)[:100]
