"""A family of cases that becomes one table: brokers beside Kafka's, clusters beside Kafka's.

All families have the same options; which of their cases run, on which sides and for how many rounds, is chosen here.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from tools import apache_kafka

from bench import report, results
from bench.case import QUICK
from bench.measuring import measure
from bench.nodes import N

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from bench.case import Case, Plan
    from bench.nodes import Side
    from bench.results import Results

RESULTS = Path(__file__).with_name("results")
QUICK_ROUNDS = 1


@dataclass(frozen=True, slots=True)
class Family(Generic[N]):
    command: str
    ours: Side[N]
    theirs: Side[N]
    standard_cases: Callable[[Plan], list[Case[N]]]
    full_cases: Callable[[Plan], list[Case[N]]]
    plan: Plan
    rounds: int
    table: str
    """What its table is called, where it is kept and published."""
    cpu_note: str


def main(family: Family[N], arguments: Sequence[str], console: Console) -> int:
    chosen = _parse(family, arguments)
    plan = QUICK if chosen.quick else family.plan
    every = family.full_cases(plan) if chosen.full else family.standard_cases(plan)
    if chosen.list:
        console.print("\n".join(case.name for case in every))
        return 0
    if unknown := set(chosen.only) - {case.name for case in every}:
        console.print(f"no case is called {', '.join(sorted(unknown))}: see `{family.command} --list`")
        return 2
    selected = [case for case in every if not chosen.only or case.name in chosen.only]
    rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else family.rounds)
    found = measure(selected, _sides(family, chosen, console), plan, rounds, chosen.work_dir, console)
    _report(family, selected, found, plan, console)
    return 1 if found.failures else 0


def _parse(family: Family[N], arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=family.command, description=__doc__)
    parser.add_argument("--full", action="store_true", help="the full grid of factors instead of one at a time")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="these cases only; see --list")
    parser.add_argument("--list", action="store_true", help="the names of the cases, and nothing else")
    parser.add_argument("--rounds", type=int, help=f"rounds after the warm-up (default {family.rounds})")
    parser.add_argument("--quick", action="store_true", help="short loads and one round: shows that it works, no more")
    sides = parser.add_mutually_exclusive_group()
    sides.add_argument("--barnabas-only", action="store_true", help="without Apache Kafka")
    sides.add_argument(
        "--noise-floor", action="store_true", help="Apache Kafka against itself: how far equals differ on this machine"
    )
    parser.add_argument("--work-dir", type=Path, help="where data folders go (default: the folder for temporary files)")
    return parser.parse_args(arguments)


def _sides(family: Family[N], chosen: argparse.Namespace, console: Console) -> list[Side[N]]:
    if chosen.barnabas_only:
        return [family.ours]
    if (reason := apache_kafka.missing()) is not None:
        console.print(f"Barnabas alone, as there is no Apache Kafka to compare with. {reason}", style="yellow")
        return [family.ours]
    if chosen.noise_floor:
        return [dataclasses.replace(family.theirs, label=f"{family.theirs.label} {letter}") for letter in "AB"]
    return [family.ours, family.theirs]


def _report(family: Family[N], selected: Sequence[Case[N]], found: Results, plan: Plan, console: Console) -> None:
    for failure in found.failures:
        console.print(failure, style="red", markup=False)
    if not found.samples:
        return
    rounds = max(len(by_round) for sides in found.samples.values() for by_round in sides.values())
    about = report.About(
        table=family.table,
        title=f"{' beside '.join(found.sides)}: medians of {rounds} interleaved {'round' if rounds == 1 else 'rounds'}",
        machine=results.machine(),
        plan=dataclasses.asdict(plan),
        cpu_note=family.cpu_note,
    )
    report.show(console, RESULTS, selected, found, about)
