"""Rounds: every case on every side, in turn, under conditions that are the same for all.

In each round a case runs on one side right after the other, and who goes first alternates. Before each run dirty
pages are written back and the brokers have come to rest, so that no run pays for the one before it. Round 0 warms up
and is not counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from bench import procfs
from bench.case import Context, LifecycleCase, SteadyCase
from bench.nodes import N
from bench.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bench.case import Case, Plan
    from bench.nodes import Side
    from bench.results import Figures

RATE_WITHOUT_KAFKA_PER_SECOND = 10_000.0
"""Rate of the loaded round trips where no Kafka tells its most."""

TOUCHED_BYTES_MAX = 8 << 30
TOUCHED_PIECE_BYTES = 16 << 20

REST_WINDOW_SECONDS = 0.2
REST_CPU_SECONDS_MAX = 0.04
REST_SECONDS_MAX = 10.0


def touch_page_cache(folder: Path) -> Iterator[float]:
    """Writes and removes as much as the page cache will hold, and tells how far it is, from 0 to 1.

    The first use of a page of memory costs more than a broker does where the machine is a virtual one: its host has to
    find the page. After this every round finds pages that were used before.
    """
    size = min(procfs.available_bytes() // 2, TOUCHED_BYTES_MAX)
    path = folder / "touched"
    piece = os.urandom(TOUCHED_PIECE_BYTES)
    try:
        with path.open("wb", buffering=0) as file:
            for written in range(0, size, TOUCHED_PIECE_BYTES):
                file.write(piece)
                yield min(written / size, 1.0)
    finally:
        path.unlink()


@dataclass(frozen=True, slots=True)
class Step(Generic[N]):
    """One case on one side in one round."""

    round_number: int
    case: Case[N]
    side: Side[N]


def steps(cases: Iterable[Case[N]], sides: Sequence[Side[N]], rounds: int) -> Iterator[Step[N]]:
    """All steps of a run in their order: lives of brokers while no other broker is up, then what needs warm ones, then
    what leaves others behind."""
    by_stage: dict[int, list[Case[N]]] = {0: [], 1: [], 2: []}
    for case in cases:
        by_stage[_stage(case)].append(case)
    for chosen in by_stage.values():
        for number in range(rounds + 1):
            in_turn = sides if number % 2 == 0 else sides[::-1]
            yield from (Step(number, case, side) for case in chosen for side in in_turn)


def _stage(case: Case[N]) -> int:
    match case:
        case LifecycleCase():
            return 0
        case SteadyCase():
            return 2 if case.kills_nodes else 1


class Runner(Generic[N]):
    """Runs steps in order and keeps what they found. `close` ends every broker that it started."""

    def __init__(self, sides: Sequence[Side[N]], plan: Plan, work_dir: Path) -> None:
        self.results = Results(tuple(side.label for side in sides))
        self._plan = plan
        self._work_dir = work_dir
        self._reference = sides[-1] if len(sides) > 1 else None
        self._reference_rates: list[float] = []
        self._warm: dict[str, tuple[Side[N], N]] = {}
        """By side, what lives through all rounds."""
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        self._stack.close()

    def run(self, step: Step[N]) -> None:
        """A run that fails is noted, and the rest goes on; a broker that is gone ends it all."""
        try:
            figures = self._figures(step)
        except Exception as error:
            self.results.failures.append(f"{step.case.name} on {step.side.label}, round {step.round_number}: {error}")
            if not all(map(procfs.is_alive, self._pids())):
                raise
            return
        if step.case.name == "requests" and step.side is self._reference:
            self._reference_rates.append(figures["rate"])
        if step.round_number > 0:
            self.results.add(step.case.name, step.side.label, step.round_number, figures)

    def _figures(self, step: Step[N]) -> Figures:
        match step.case:
            case LifecycleCase() as case:
                return self._live_once(case, step)
            case SteadyCase() as case:
                node = self._warm_node(step.side)
                self._rest()
                return case.run(Context(self._plan_of(step.round_number), self._loaded_rate()), node)

    def _plan_of(self, round_number: int) -> Plan:
        if round_number > 0:
            return self._plan
        return dataclasses.replace(self._plan, seconds=self._plan.warm_up_seconds)

    def _live_once(self, case: LifecycleCase[N], step: Step[N]) -> Figures:
        os.sync()
        with self._new_node(step.side) as node:
            if step.round_number > 0:
                return case.run(self._plan, node)
            # The first start fills the page cache with the program; there is nothing else to warm up.
            node.start()
            node.stop()
            return {}

    def _warm_node(self, side: Side[N]) -> N:
        """The broker of this side that lives through all rounds."""
        if side.label not in self._warm:
            node = self._stack.enter_context(self._new_node(side))
            node.start()
            self._warm[side.label] = side, node
        return self._warm[side.label][1]

    @contextlib.contextmanager
    def _new_node(self, side: Side[N]) -> Iterator[N]:
        """A node that is yet to be started, on a folder of its own. What it leaves there takes no space, but is removed
        at the end of the run only: for minutes after ten thousands of files were removed, ext4 makes new ones twenty
        times as slowly, and the next node would pay for that."""
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(dir=self._work_dir)))
        with side.make(folder / "data") as node:
            yield node
        for file in folder.rglob("*"):
            if file.is_file():
                os.truncate(file, 0)

    def _loaded_rate(self) -> float:
        if not self._reference_rates:
            return RATE_WITHOUT_KAFKA_PER_SECOND
        return statistics.median(self._reference_rates) / 2

    def _rest(self) -> None:
        """Returns when no page is dirty and no broker is still busy with what was before."""
        os.sync()
        deadline = time.monotonic() + REST_SECONDS_MAX
        while self._busy_seconds() > REST_CPU_SECONDS_MAX and time.monotonic() < deadline:
            pass

    def _busy_seconds(self) -> float:
        """CPU time of all brokers over a short window."""
        before = self._cpu_seconds()
        time.sleep(REST_WINDOW_SECONDS)
        return self._cpu_seconds() - before

    def _cpu_seconds(self) -> float:
        return sum(map(procfs.cpu_seconds, self._pids()))

    def _pids(self) -> list[int]:
        """The processes of all brokers that live through all rounds."""
        return [pid for side, node in self._warm.values() for pid in side.pids(node)]
