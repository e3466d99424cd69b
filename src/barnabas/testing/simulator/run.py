"""One seed, one run: a cluster starts, is loaded, suffers, is healed, settles, and every promise was kept, or not.

    outcome = simulate(Scenario(seed=4711))
    outcome.violations        # empty, or what was broken first

A run goes on for at least so many simulated seconds and so many acknowledged records. When the faults are over, the
cluster has to settle by itself: all nodes serve, every partition has a leader and all its replicas in sync, and what
clients have begun comes to an end. Then the promises are checked a last time.
"""

from __future__ import annotations

import gc
import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.testing.event_loop import SimulationError
from barnabas.testing.simulator.cluster import SimulatedCluster
from barnabas.testing.simulator.faults import Faults, newest_image, plan
from barnabas.testing.simulator.protocols import Violation
from barnabas.testing.simulator.trace import NOBODY, LogLines, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.testing.simulator.protocols import Invariant, Load, MakeInvariants, MakeLoad

SECONDS: Final = 60.0
RECORDS_MIN: Final = 1_000
OBSERVE_EVERY_S: Final = 0.25
START_LIMIT_S: Final = 60.0
CALM_S: Final = 3.0
"""Before the first fault, and between the last one and the end of the load."""
PROGRESS_LIMIT_S: Final = 120.0
"""For the records that are still missing after the last fault."""
SETTLE_LIMIT_S: Final = 120.0
TRANSACTIONS_LIMIT_S: Final = 120.0
"""Three times as long as brokers wait for each other's answers."""

PROGRESS: Final = "clients make progress when all is healed"
SETTLED: Final = "the cluster settles when all is healed"
HANDLED: Final = "no exception goes unhandled"
TIME: Final = "time goes on"


class Scenario(NamedTuple):
    """All that a run depends on."""

    seed: int
    nodes: int = 3
    seconds: float = SECONDS
    records: int = RECORDS_MIN
    settings: Mapping[str, str] = {}
    kinds: tuple[str, ...] = ()
    """Of faults; all of them if none is named."""


class Outcome(NamedTuple):
    seed: int
    violations: tuple[str, ...]
    simulated_s: float
    cpu_s: float
    events: int
    faults: Mapping[str, int]
    acknowledged_records: int
    counts: Mapping[str, int]
    trace: tuple[str, ...] = ()
    """Lines, if the run was traced."""


def simulate(
    scenario: Scenario,
    *,
    make_load: MakeLoad | None = None,
    make_invariants: MakeInvariants | None = None,
    is_traced: bool = False,
) -> Outcome:
    """Runs a scenario to its end, or to the first violation."""
    from barnabas.testing.simulator import invariants, load

    with quiet():
        return _Run(
            scenario,
            make_load or load.make_load,
            make_invariants or invariants.make_invariants,
            is_traced=is_traced,
        ).run()


@contextmanager
def quiet() -> Iterator[None]:
    """Nobody reads the logs of simulated nodes, and garbage is collected afterwards, all at once: the order in which
    forgotten things come to their end must not depend on what ran before."""
    was_enabled = gc.isenabled()
    gc.disable()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
        if was_enabled:
            gc.enable()


class _Run:
    def __init__(
        self, scenario: Scenario, make_load: MakeLoad, make_invariants: MakeInvariants, *, is_traced: bool
    ) -> None:
        self._scenario = scenario
        self._make_load = make_load
        self._make_invariants = make_invariants
        self._cluster = SimulatedCluster(scenario.seed, scenario.nodes, scenario.settings, is_traced=is_traced)
        self._violations: list[Violation] = []
        self._load: Load | None = None
        self._invariants: Sequence[Invariant] = ()
        planned = plan(scenario.seed, scenario.seconds - 2 * CALM_S, scenario.kinds)
        self._faults = Faults(self._cluster, planned, self._observe, self._violations.append)

    def run(self) -> Outcome:
        began_s = time.process_time()
        with self._traced():
            try:
                self._play()
            except Violation as violation:
                self._violations.append(violation)
            except SimulationError as error:
                self._violations.append(Violation(TIME, str(error)))
            finally:
                self._cluster.close()
            for found in self._violations:
                self._cluster.trace.note("VIOLATION", str(found))
        cluster, load = self._cluster, self._load
        return Outcome(
            self._scenario.seed,
            tuple(map(str, self._violations)),
            cluster.now_s,
            time.process_time() - began_s,
            cluster.scheduler.events,
            dict(self._faults.injected),
            0 if load is None else load.acknowledged_records,
            {} if load is None else dict(load.counts),
            tuple(cluster.trace.lines),
        )

    def _play(self) -> None:
        cluster, scenario = self._cluster, self._scenario
        cluster.start()
        self._until(START_LIMIT_S, cluster.is_ready, lambda: f"nodes did not start: {self._state()}", SETTLED)
        load = self._load = self._make_load(cluster)
        self._invariants = self._make_invariants(cluster, load)
        load.start()
        self._go_on(CALM_S)
        self._faults.start()
        while not self._faults.is_over or cluster.now_s < scenario.seconds:
            self._go_on(OBSERVE_EVERY_S)
        self._until(
            PROGRESS_LIMIT_S,
            lambda: load.acknowledged_records >= scenario.records,
            lambda: f"{load.acknowledged_records} records were acknowledged; {load.describe()}; {self._state()}",
            PROGRESS,
        )
        load.stop()
        self._until(SETTLE_LIMIT_S, lambda: load.is_drained, lambda: f"{load.describe()}; {self._state()}", PROGRESS)
        self._until(SETTLE_LIMIT_S, self._is_settled, self._state, SETTLED)
        self._let_transactions_end()
        for invariant in self._invariants:
            invariant.finish(cluster)

    def _let_transactions_end(self) -> None:
        """A write that was under way for long, on a connection that nobody answers, may open a transaction after its
        producer has given up. It ends at its timeout; whether it does is for the promise on transactions to judge."""
        end_s = self._cluster.now_s + TRANSACTIONS_LIMIT_S
        while self._cluster.now_s < end_s and any(
            hosted.state.is_leader and hosted.last_stable_offset < hosted.state.high_watermark.offset
            for node in self._cluster.live_nodes
            for hosted in node.partitions
        ):
            self._go_on(OBSERVE_EVERY_S)

    def _until(self, limit_s: float, is_reached: Callable[[], bool], describe: Callable[[], str], promise: str) -> None:
        end_s = self._cluster.now_s + limit_s
        while not is_reached():
            if self._cluster.now_s >= end_s:
                raise Violation(promise, f"not in {limit_s:g} s: {describe()}")
            self._go_on(OBSERVE_EVERY_S)

    def _go_on(self, seconds: float) -> None:
        """Lets time pass, looks at everything, and ends the run if something was broken meanwhile."""
        self._cluster.run_for(seconds)
        self._observe()
        for node in self._cluster.nodes.values():
            for error in node.errors:
                text = f"{node.name}: {error.get('message')}: {error.get('exception')!r}"
                self._violations.append(Violation(HANDLED, text))
        if self._violations:
            raise self._violations.pop()

    def _observe(self) -> None:
        try:
            for invariant in self._invariants:
                invariant.observe(self._cluster)
        except Violation as violation:
            self._violations.append(violation)

    def _is_settled(self) -> bool:
        return self._cluster.is_ready() and not self._unsettled()

    def _unsettled(self) -> list[str]:
        image = newest_image(self._cluster)
        if image is None:
            return ["no node knows the metadata"]
        return [
            f"{topic.name}-{index} has leader {partition.leader} and ISR {partition.isr} of {partition.replicas}"
            for topic in image.topics
            for index, partition in enumerate(topic.partitions)
            if partition.leader == NOBODY or len(partition.isr) < len(partition.replicas)
        ]

    def _state(self) -> str:
        waiting = [f"{node.name} is not ready" for node in self._cluster.nodes.values() if not node.is_ready]
        return "; ".join([*waiting, *self._unsettled()]) or "all nodes are ready and in sync"

    @contextmanager
    def _traced(self) -> Iterator[None]:
        trace, scheduler = self._cluster.trace, self._cluster.scheduler
        if not trace.is_on:
            yield
            return
        scheduler.after_event = Watcher(self._cluster).look
        logger, lines = logging.getLogger("barnabas"), LogLines(trace)
        level, propagates, disabled = logger.level, logger.propagate, logging.root.manager.disable
        logging.disable(logging.NOTSET)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(lines)
        try:
            yield
        finally:
            logger.removeHandler(lines)
            logger.setLevel(level)
            logger.propagate = propagates
            logging.disable(disabled)
