"""Sequences by the thousand: Hypothesis makes them up from a seed, and shrinks those that show a difference."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import FlakyFailure

from barnabas.protocol.api import ApiKey
from interop.differential.canonical import Canon
from interop.differential.comparison import Difference, compare
from interop.differential.report import told
from interop.differential.sequences import LISTED, SERVED, sequences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.protocol.compiler.structs import Message
    from interop.differential.references import Step
    from interop.differential.running import Exchange, Pair
    from interop.differential.sides import Side

EXAMPLES = 6
"""Sequences for each API and version, before it is the next one's turn. Hypothesis begins with the smallest."""


class DifferenceError(AssertionError):
    """The sides differ; the message tells where, and the sequence that led there."""

    def __init__(self, difference: Difference, message: str) -> None:
        super().__init__(message)
        self.difference = difference


@dataclass(slots=True)
class Tally:
    """What was sent, and what came of it."""

    sent: Counter[tuple[ApiKey, int]] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    unsteady: Counter[str] = field(default_factory=Counter)
    """Differences that were not there when the same sequence was sent once more."""

    @property
    def requests(self) -> int:
        return self.sent.total()

    @property
    def missing(self) -> list[tuple[ApiKey, int]]:
        """What a node lists and was never asked."""
        return [each for each in LISTED if not self.sent[each]]

    def coverage(self) -> str:
        """How many requests were sent, by API and version."""
        lines = [f"{self.requests} requests"]
        for api in SERVED:
            counts = ", ".join(f"v{version}: {self.sent[key, version]}" for key, version in LISTED if key == api)
            lines.append(f"  {api.name:30} {counts}")
        if self.missing:
            lines.append(f"never asked: {', '.join(f'{api.name} v{version}' for api, version in self.missing)}")
        return "\n".join(lines)


def differences(pair: Pair, steps: list[Step], tally: Tally, keep: Callable[[Exchange], None]) -> list[Difference]:
    """The differences in the first answer of a sequence that has any."""
    found: list[Difference] = []
    canons: list[Canon] = []
    earlier: list[Message] = []

    def seen(exchange: Exchange) -> bool:
        if not canons:
            canons.extend(_canon(side, pair.prefix) for side in pair.sides)
        keep(exchange)
        tally.sent[ApiKey(exchange.step.request.api_key or 0), exchange.step.version] += 1
        compared = compare(exchange, (canons[0], canons[1]), earlier)
        earlier.append(exchange.asked[0].request)
        tally.allowed.update(each.reason for each in compared.allowed)
        found.extend(compared.differences)
        ours, kafkas = (answer.message is None for answer in exchange.answers)
        # A connection on which one side has not answered is of no more use.
        return ours == kafkas and not compared.differences and not any(each.ends for each in compared.allowed)

    pair.run(steps, seen)
    return found


def _canon(side: Side, prefix: str) -> Canon:
    return Canon(prefix, str(side.peer.data_dir), side.memory.names)


def hunt(pair: Pair, seed: int, requests: int, tally: Tally, progress: Callable[[int], None], only: str = "") -> None:
    """Sends so many requests. Raises DifferenceError with the shortest sequence that shows the first difference, or
    the first one in a field whose path begins with `only`."""

    def go(steps: list[Step]) -> None:
        exchanges: list[Exchange] = []
        found = differences(pair, steps, tally, exchanges.append)
        progress(tally.requests)
        if not found or not found[0].path.startswith(only):
            return
        if not differences(pair, steps, tally, lambda _: None):
            tally.unsteady[found[0].signature] += 1
            return
        raise DifferenceError(found[0], told(found, exchanges))

    for block in _blocks(tally, requests):
        try:
            _drive(go, seed, block, (Phase.generate, Phase.shrink))
        except FlakyFailure as failure:  # It was there twice, and not when Hypothesis sent the sequence again.
            for each in failure.exceptions:
                if not isinstance(each, DifferenceError):
                    raise
                tally.unsteady[each.difference.signature] += 1


def collect(pair: Pair, seed: int, requests: int, tally: Tally, progress: Callable[[int], None]) -> Iterator[str]:
    """Goes on after differences, and gives the first example of each kind: for those who look for all there are."""
    examples: list[str] = []

    def go(steps: list[Step]) -> None:
        exchanges: list[Exchange] = []
        found = differences(pair, steps, tally, exchanges.append)
        if found:
            tally.differences[found[0].signature] += 1
            if tally.differences[found[0].signature] == 1:
                examples.append(told(found, exchanges))
        progress(tally.requests)

    for block in _blocks(tally, requests):
        _drive(go, seed, block, (Phase.generate,))
        yield from examples
        examples.clear()


def _blocks(tally: Tally, requests: int) -> Iterator[int]:
    enough = tally.requests + requests
    return itertools.takewhile(lambda _: tally.requests < enough, itertools.count())


def _drive(test: Callable[[list[Step]], None], seed: int, block: int, phases: tuple[Phase, ...]) -> None:
    """Each seed begins with other APIs, so that a few of them come to all."""
    focus = LISTED[(block + seed * len(LISTED) // 4) % len(LISTED)]
    given = hypothesis.given(sequences(focus))(test)
    settings = hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    settings(hypothesis.seed(seed * 1_000_003 + block)(given))()
