"""A client program that answers, fails, falls silent and dies, as a few lines of Python."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import pytest
from interop.kafka_tools import table
from interop.programs import Program, ScenarioError
from interop.toolchains import Launch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    print("doing", request["scenario"], file=sys.stderr, flush=True)
    if request["scenario"] == "silent":
        time.sleep(60)
    if request["scenario"] == "dies":
        sys.exit(3)
    if request["scenario"] == "fails":
        print(json.dumps({"error": "no such topic"}), flush=True)
    else:
        print(json.dumps({"result": [sys.argv[1], os.environ["LIBRARY"], os.getpid(), request]}), flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    launch = Launch((sys.executable, "-c", PROGRAM), {"LIBRARY": "kept"})
    with contextlib.closing(Program(launch, "127.0.0.1:9092", tmp_path / "log")) as program:
        yield program


def test_one_process_answers_scenario_after_scenario(program: Program) -> None:
    bootstrap, library, process, request = program.run("first", topic="t")
    assert (bootstrap, library, request) == ("127.0.0.1:9092", "kept", {"scenario": "first", "topic": "t"})
    assert program.run("second")[2] == process


def test_a_scenario_that_failed_says_why_and_the_next_one_goes_on(program: Program) -> None:
    with pytest.raises(ScenarioError, match="no such topic") as failure:
        program.run("fails")
    assert "doing fails" in str(failure.value)
    assert program.run("next")[3] == {"scenario": "next"}


@pytest.mark.parametrize(("scenario", "why"), [("silent", "no answer in time"), ("dies", "the program ended")])
def test_a_program_that_does_not_answer_is_started_anew(program: Program, scenario: str, why: str) -> None:
    before = program.run("before")[2]
    with pytest.raises(ScenarioError, match=why):
        program.run(scenario, deadline_s=1.0)
    assert program.run("after")[2] != before


def test_a_table_of_kafkas_tools_is_read_by_its_columns() -> None:
    text = "\nnote\nGROUP  COORDINATOR (ID)     STATE   #MEMBERS\ng      127.0.0.1:9092 (1)   Stable  3\n"
    (row,) = table(text, "GROUP")
    assert (row["GROUP"], row["STATE"], row["#MEMBERS"]) == ("g", "Stable", "3")
