from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench import report, results
from bench.case import Plan, Row, SteadyCase
from bench.cases import full_cases, standard_cases
from bench.nodes import APACHE_KAFKA, BARNABAS
from bench.results import Results
from bench.runner import steps
from bench.stats import AtLeast, AtMost, Measure
from bench.stored import StoredRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.case import Case, Context
    from bench.nodes import Node

TARGETS = (AtLeast(Measure.RATIO, 1.1), AtMost(Measure.CPU_RATIO, 0.9), AtMost(Measure.VALUE, 5.0))


def _run(context: Context, node: Node) -> dict[str, float]:
    raise AssertionError("only its description is looked at")


CASE = SteadyCase("c", (Row("a case", "k/s", "rate", scale=1e-3, has_cpu=True, targets=TARGETS),), _run)


def _found(sides: tuple[str, ...], *rounds: tuple[dict[str, float], ...]) -> Results:
    found = Results(sides)
    for number, by_side in enumerate(rounds, 1):
        for side, figures in zip(sides, by_side, strict=True):
            found.add("c", side, number, figures)
    return found


def _figures(rate: float, cpu: float) -> dict[str, float]:
    return {"rate": rate, "cpu_per_million": cpu}


def test_a_line_holds_scaled_medians_ratios_and_verdicts() -> None:
    both = ("ours", "theirs")
    found = _found(both, (_figures(2000, 1.0), _figures(1000, 1.0)), (_figures(4000, 3.0), _figures(2000, 2.0)))
    (line,) = results.lines_of([CASE], found)
    assert line.medians == (3.0, 1.5)
    assert line.cpu_medians == (2.0, 1.5)
    assert line.ratio is not None
    assert line.ratio.median == pytest.approx(2.0)
    assert [verdict.is_met for verdict in line.verdicts] == [True, False, True]
    assert [verdict.text() for verdict in line.verdicts] == ["≥ 1.1 ✓", "CPU ≤ 0.9 ✗", "value ≤ 5 ✓"]


def test_alone_only_targets_of_a_value_are_judged() -> None:
    (line,) = results.lines_of([CASE], _found(("ours",), (_figures(9000, 1.0),)))
    assert line.ratio is None
    assert [verdict.text() for verdict in line.verdicts] == ["value ≤ 5 ✗"]


def test_a_case_that_never_finished_has_no_line_and_one_that_failed_on_one_side_no_ratio() -> None:
    found = Results(("ours", "theirs"))
    assert results.lines_of([CASE], found) == []
    found.add("c", "theirs", 1, _figures(1.0, 1.0))
    (line,) = results.lines_of([CASE], found)
    assert line.medians == (None, 0.001)
    assert not any(verdict.is_met for verdict in line.verdicts)


def test_the_page_is_a_markdown_table_with_one_cell_per_heading() -> None:
    both = ("ours", "theirs")
    found = _found(both, (_figures(2000, 1.0), _figures(1000, 2.0)))
    lines = tuple(results.lines_of([CASE], found))
    page = report.markdown(StoredRun("brokers", "title", "2026-11-17", {"processor": "one"}, both, "notes", lines))
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert "| a case | k/s | 2.00 | 1.00 | 2.00 (2.00–2.00) | 1.00 | 2.00 | 0.50 (0.50–0.50) |" in table[2]
    assert "processor one" in page


def test_every_case_runs_on_both_sides_in_each_round_and_who_goes_first_alternates() -> None:
    cases = standard_cases(Plan())
    order = [(step.round_number, step.case.name, step.side.label) for step in steps(cases, [BARNABAS, APACHE_KAFKA], 5)]
    assert len(set(order)) == len(order) == 6 * 2 * len(cases)
    firsts = {number: next(side for at, _, side in order if at == number) for number in range(6)}
    assert list(firsts.values()) == ["Barnabas", "Kafka"] * 3
    for before, after in zip(order[::2], order[1::2], strict=True):
        assert before[:2] == after[:2]


def test_brokers_of_the_lifecycle_live_while_no_other_is_up() -> None:
    names = [step.case.name for step in steps(standard_cases(Plan()), [BARNABAS], 2)]
    assert names[:6] == ["lifecycle", "many-groups"] * 3
    assert not {"lifecycle", "many-groups"} & set(names[6:])


@pytest.mark.parametrize("make", [standard_cases, full_cases])
def test_case_names_are_distinct_and_the_rate_is_known_before_it_is_halved(
    make: Callable[[Plan], list[Case[Node]]],
) -> None:
    names = [case.name for case in make(Plan())]
    assert len(set(names)) == len(names)
    assert names.index("requests") < names.index("roundtrip-loaded")


def test_the_machine_is_described() -> None:
    machine = results.machine()
    assert "logical processors" in machine["processor"]
    assert machine["memory"].endswith("GiB")
