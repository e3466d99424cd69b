"""`barnabas simulate`: whole clusters in simulated time, with faults drawn from seeds, and every promise checked.

A seed that breaks a promise is told at once; at the end the first of them is run again and its trace printed. The exit
code is 1 then, and the command to replay it is the last line. A long run that is interrupted still prints the summary
of what there is.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.command_line import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, CommandError, Parser, positive_int
from barnabas.cli.output import Column, number, print_json, print_table
from barnabas.cli.progress_bar import counting_bar
from barnabas.cli.start_command import read_properties
from barnabas.config.cluster_layout import NODES_FOR_MIN_ISR_OF_TWO
from barnabas.config.values import ConfigError
from barnabas.testing.simulator.cluster import examine_settings
from barnabas.testing.simulator.run import RECORDS_MIN, SECONDS, Scenario
from barnabas.testing.simulator.workers import Task, Workers, warm_up_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from barnabas.testing.simulator.run import Outcome

SEEDS = 100
FIRST_SEED = 1
SECONDS_MIN = 10
TRACE_LINES = 400
"""How much of a trace is printed without being asked for all of it."""
FAULT_MARK = "  FAULT  "
EPILOG = """examples:
  barnabas simulate --nodes 5 --seeds 1000
  barnabas simulate --seed 4711 --trace
  barnabas simulate --config server.properties --seconds 120

Nothing is started and nothing is written: nodes, disks, network and time are simulated in this process and its
children. Listeners, roles and folders in a properties file are ignored, all other settings count.
"""


class Summary(NamedTuple):
    outcomes: list[Outcome]
    seconds: float

    @property
    def broken(self) -> list[Outcome]:
        return sorted(outcome for outcome in self.outcomes if outcome.violations)

    @property
    def seeds_per_second(self) -> float:
        return len(self.outcomes) / self.seconds if self.seconds else 0.0

    def total(self, mappings: Iterable[str]) -> Counter[str]:
        total: Counter[str] = Counter()
        for name in mappings:
            for outcome in self.outcomes:
                total.update(getattr(outcome, name))
        return total


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    settings = read_properties(options.config) if options.config else {}
    try:
        exposed = examine_settings(options.nodes, settings)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    if exposed and options.nodes >= NODES_FOR_MIN_ISR_OF_TWO:
        print(
            f"barnabas: these settings have single nodes acknowledge records of {' and '.join(exposed)} (one replica, "
            "or a min ISR of 1), which are not promised to outlive a power failure: nodes that have such partitions "
            "lose no power, and their syncs do not fail",
            file=sys.stderr,
        )
    first = FIRST_SEED if options.seed is None else options.seed
    count = options.seeds or (SEEDS if options.seed is None else 1)
    scenarios = [
        Scenario(seed, nodes=options.nodes, seconds=options.seconds, records=options.records, settings=settings)
        for seed in range(first, first + count)
    ]
    began_s = time.monotonic()
    jobs = min(options.jobs or len(os.sched_getaffinity(0)), count)
    was_interrupted = False
    with Workers(jobs, warm_up_of(scenarios[0])) as workers:
        outcomes: list[Outcome] = []
        try:
            with counting_bar("simulating", count, "seeds") as advance:
                for outcome in workers.run(Task(each, is_traced=options.trace) for each in scenarios):
                    outcomes.append(outcome)
                    advance(1)
                    if outcome.violations:
                        print(f"seed {outcome.seed}: {outcome.violations[0]}", file=sys.stderr)
        except KeyboardInterrupt:
            if not outcomes:
                raise
            was_interrupted = True
        summary = Summary(outcomes, time.monotonic() - began_s)
        traced = None
        if summary.broken and not options.trace and not was_interrupted:
            scenario = next(each for each in scenarios if each.seed == summary.broken[0].seed)
            (traced,) = workers.run([Task(scenario, is_traced=True)])
    if options.json:
        print_json(as_json(summary, options))
    else:
        show(summary, traced, options)
    if summary.broken:
        return EXIT_FAILED
    return EXIT_INTERRUPTED if was_interrupted else EXIT_OK


def build_parser() -> Parser:
    parser = Parser("barnabas simulate", "Check simulated clusters for violated guarantees.", EPILOG)
    parser.add_argument("--nodes", type=positive_int, default=3, metavar="N", help="nodes of a cluster (default 3)")
    parser.add_argument("--seeds", type=positive_int, metavar="N", help=f"how many runs (default {SEEDS})")
    parser.add_argument("--seed", type=seed, metavar="N", help="first seed; without --seeds, run only this one")
    parser.add_argument(
        "--seconds",
        type=simulated_seconds,
        default=SECONDS,
        metavar="S",
        help=f"simulated seconds of a run, at least {SECONDS_MIN} (default {SECONDS:g})",
    )
    parser.add_argument(
        "--records",
        type=positive_int,
        default=RECORDS_MIN,
        metavar="N",
        help=f"a run goes on until so many records are acknowledged (default {RECORDS_MIN:,})",
    )
    parser.add_argument("--config", metavar="FILE", help="a properties file, for all nodes alike")
    parser.add_argument(
        "--jobs", type=positive_int, metavar="N", help="processes (default: as many as there are cores)"
    )
    parser.add_argument("--trace", action="store_true", help="print everything that happened, violation or not")
    parser.add_argument("--json", action="store_true", help="print the outcome of every seed as JSON")
    return parser


def seed(text: str) -> int:
    from argparse import ArgumentTypeError

    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"{text!r} is not a valid seed: expected a number from 0 on")
    return int(text)


def simulated_seconds(text: str) -> float:
    from argparse import ArgumentTypeError

    try:
        seconds = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not SECONDS_MIN <= seconds < float("inf"):
        raise ArgumentTypeError(f"{text!r}: a run has at least {SECONDS_MIN} simulated seconds")
    return seconds


def show(summary: Summary, traced: Outcome | None, options: argparse.Namespace) -> None:
    outcomes, broken = summary.outcomes, summary.broken
    if options.trace:
        for outcome in sorted(outcomes):
            print_trace(outcome, whole=True)
    elif traced is not None:
        print_trace(traced, whole=False)
        if traced.violations != broken[0].violations:
            print(f"the replay of seed {traced.seed} differed: {'; '.join(traced.violations) or 'no violation'}")
    faults = summary.total(["faults"])
    print_table((Column("faults injected"), number("times")), [*faults.most_common(), ("all", faults.total())])
    print()
    rows: list[tuple[str, str]] = [
        ("seeds", f"{len(outcomes):,}"),
        ("seeds per second", f"{summary.seeds_per_second:.2f}"),
        ("simulated seconds", f"{sum(outcome.simulated_s for outcome in outcomes):,.0f}"),
        ("acknowledged records", f"{sum(outcome.acknowledged_records for outcome in outcomes):,}"),
        ("fewest in a run", f"{min(outcome.acknowledged_records for outcome in outcomes):,}"),
        *((name, f"{times:,}") for name, times in sorted(summary.total(["counts"]).items())),
        ("events", f"{sum(outcome.events for outcome in outcomes):,}"),
        ("CPU seconds per seed", f"{sum(outcome.cpu_s for outcome in outcomes) / len(outcomes):.2f}"),
        ("violations", f"{len(broken):,}"),
    ]
    print_table((Column("in all runs"), number("")), rows)
    for outcome in broken:
        print()
        print(f"seed {outcome.seed}: {outcome.violations[0]}")
        print(f"replay: {replay_command(outcome.seed, options)}")


def print_trace(outcome: Outcome, *, whole: bool) -> None:
    lines = list(outcome.trace)
    if not whole and len(lines) > TRACE_LINES:
        earlier = [line for line in lines[:-TRACE_LINES] if FAULT_MARK in line]
        left_out = len(lines) - TRACE_LINES - len(earlier)
        lines = [*earlier, f"… {left_out} lines are left out; --trace prints them", *lines[-TRACE_LINES:]]
    print(f"seed {outcome.seed}")
    for line in lines:
        print(line)
    print()


def replay_command(number: int, options: argparse.Namespace) -> str:
    words = ["barnabas", "simulate", "--seed", str(number), "--nodes", str(options.nodes)]
    if options.seconds != SECONDS:
        words += ["--seconds", f"{options.seconds:g}"]
    if options.records != RECORDS_MIN:
        words += ["--records", str(options.records)]
    if options.config:
        words += ["--config", options.config]
    return shlex.join([*words, "--trace"])


def as_json(summary: Summary, options: argparse.Namespace) -> dict[str, object]:
    return {
        "nodes": options.nodes,
        "seeds": len(summary.outcomes),
        "seeds_per_second": round(summary.seeds_per_second, 3),
        "violations": len(summary.broken),
        "faults": dict(summary.total(["faults"])),
        "runs": [
            {
                "seed": outcome.seed,
                "violations": list(outcome.violations),
                "simulated_seconds": round(outcome.simulated_s, 3),
                "cpu_seconds": round(outcome.cpu_s, 3),
                "events": outcome.events,
                "acknowledged_records": outcome.acknowledged_records,
                "faults": dict(outcome.faults),
                **outcome.counts,
                **({"trace": list(outcome.trace)} if outcome.trace else {}),
                **({"replay": replay_command(outcome.seed, options)} if outcome.violations else {}),
            }
            for outcome in sorted(summary.outcomes)
        ],
    }
