"""`python -m bench pipelines`: the table of source and sink beside Spark's own connector."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tools import spark_connector

import barnabas.spark
from bench import report, results
from bench.nodes import BARNABAS
from bench.pipelines import cases
from bench.pipelines.case import OURS, QUICK, SPARKS, Bench, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from bench.pipelines.case import Connector, PipelineCase

RESULTS = Path(__file__).parents[1] / "results"
ROUNDS = 3
CPU_NOTE = "CPU: seconds of Spark, its driver and Python workers included, per million rows."


def main(arguments: Sequence[str], console: Console) -> int:
    chosen = _parse(arguments)
    plan = QUICK if chosen.quick else Plan()
    every = cases.every(plan)
    if unknown := set(chosen.only) - {case.name for case in every}:
        console.print(f"no case is called {', '.join(sorted(unknown))}: {', '.join(case.name for case in every)}")
        return 2
    selected = [case for case in every if not chosen.only or case.name in chosen.only]
    connectors, settings = _connectors(console)
    rounds = chosen.rounds or (1 if chosen.quick else ROUNDS)
    found = results.Results(tuple(connector.label for connector in connectors))
    with _started(plan, settings) as bench:
        _run(bench, list(_steps(selected, connectors, rounds)), found, console)
    for failure in found.failures:
        console.print(failure, style="red", markup=False)
    if found.samples:
        _report(selected, found, plan, rounds, console)
    return 1 if found.failures else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench pipelines", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="these cases only")
    parser.add_argument("--rounds", type=int, help=f"rounds after the warm-up (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="few rows and one round: shows that it works, no more")
    return parser.parse_args(arguments)


def _connectors(console: Console) -> tuple[list[Connector], Mapping[str, str]]:
    try:
        return [OURS, SPARKS], spark_connector.settings()
    except spark_connector.ConnectorMissingError as error:
        console.print(f"Barnabas alone, as there is nothing to compare with. {error}", style="yellow")
        return [OURS], {}


@contextlib.contextmanager
def _started(plan: Plan, settings: Mapping[str, str]) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name:
        folder = Path(name)
        with BARNABAS.make(folder / "data") as node:
            node.start()
            spark = barnabas.spark.session("bench", settings={"spark.local.dir": str(folder / "scratch"), **settings})
            spark.sparkContext.setLogLevel("ERROR")
            try:
                yield Bench(spark, node, plan, folder)
            finally:
                spark.stop()


def _steps(
    selected: Sequence[PipelineCase], connectors: Sequence[Connector], rounds: int
) -> Iterator[tuple[int, PipelineCase, Connector]]:
    """Round 0 warms up and is not counted; who goes first alternates."""
    for number in range(rounds + 1):
        for case in selected:
            in_turn = connectors if number % 2 == 0 else connectors[::-1]
            yield from ((number, case, each) for each in in_turn if each is OURS or not case.ours_only)


def _run(
    bench: Bench, todo: Sequence[tuple[int, PipelineCase, Connector]], found: results.Results, console: Console
) -> None:
    """A run that fails is noted, and the rest goes on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(todo))
        for number, case, connector in todo:
            what = f"round {number}" if number else "warm-up"
            progress.update(task, description=f"{what}: {case.name} with {connector.label}")
            os.sync()
            try:
                figures = case.run(bench, connector)
            except Exception as error:
                found.failures.append(f"{case.name} with {connector.label}, round {number}: {error}")
            else:
                if number > 0:
                    found.add(case.name, connector.label, number, figures)
            progress.advance(task)


def _report(
    selected: Sequence[PipelineCase], found: results.Results, plan: Plan, rounds: int, console: Console
) -> None:
    about = report.About(
        table="pipelines",
        title=f"Pipelines, {' beside '.join(found.sides)}: medians of {rounds} interleaved rounds",
        machine={**results.machine(), "PySpark": metadata.version("pyspark"), SPARKS.label: spark_connector.VERSION},
        plan=dataclasses.asdict(plan),
        cpu_note=CPU_NOTE,
    )
    report.show(console, RESULTS, selected, found, about)
