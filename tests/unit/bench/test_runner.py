"""Rounds with brokers that do nothing and cases that say what they are told."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from bench.__main__ import main
from bench.case import Context, LifecycleCase, Plan, SteadyCase
from bench.nodes import Node, Side
from bench.runner import RATE_WITHOUT_KAFKA_PER_SECOND, Runner, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.case import Case

SLEEP_FOREVER = [sys.executable, "-c", "import signal; signal.pause()"]


class IdleBroker:
    """A process that serves nothing, with a log of what was done to it."""

    port = 1
    bootstrap = "127.0.0.1:1"

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._calls.append("start")
        self._process = subprocess.Popen(SLEEP_FOREVER)

    def stop(self) -> None:
        self._calls.append("stop")
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _side(label: str, calls: list[str]) -> Side[Node]:
    @contextlib.contextmanager
    def make(data_dir: Path) -> Iterator[Node]:
        assert data_dir.parent.is_dir()
        broker = IdleBroker(calls)
        try:
            yield broker
        finally:
            broker.kill()

    return Side(label, make, lambda node: [node.pid])


def _run(runner: Runner[Node], cases: list[Case[Node]], sides: list[Side[Node]], rounds: int) -> None:
    with contextlib.closing(runner):
        for step in steps(cases, sides, rounds):
            runner.run(step)


def _case(name: str, run: Callable[[Context, Node], dict[str, float]]) -> SteadyCase[Node]:
    return SteadyCase(name, (), run)


def test_the_warm_up_is_not_counted_and_one_broker_lives_through_all_rounds(tmp_path: Path) -> None:
    calls: list[str] = []
    sides = [_side("ours", calls), _side("theirs", calls)]
    runner = Runner(sides, Plan(), tmp_path)
    _run(runner, [_case("c", lambda _context, node: {"pid": node.pid})], sides, rounds=2)
    samples = runner.results.samples["c"]
    assert {side: list(rounds) for side, rounds in samples.items()} == {"ours": [1, 2], "theirs": [1, 2]}
    assert samples["ours"][1] == samples["ours"][2] != samples["theirs"][1]
    assert calls == ["start", "start"]
    assert list(tmp_path.iterdir()) == []


def test_cases_that_kill_nodes_come_after_all_rounds_of_the_others_and_lives_before() -> None:
    cases: list[Case[Node]] = [
        SteadyCase("kills", (), lambda _context, _node: {}, kills_nodes=True),
        _case("steady", lambda _context, _node: {}),
        LifecycleCase("life", (), lambda _plan, _node: {}),
    ]
    names = [step.case.name for step in steps(cases, [_side("ours", [])], 1)]
    assert names == ["life", "life", "steady", "steady", "kills", "kills"]


def test_the_warm_up_may_take_longer_than_a_round(tmp_path: Path) -> None:
    sides = [_side("ours", [])]
    seconds: list[float] = []

    def note(context: Context, _node: Node) -> dict[str, float]:
        seconds.append(context.plan.seconds)
        return {}

    _run(Runner(sides, Plan(seconds=2.0, warm_up_seconds=9.0), tmp_path), [_case("c", note)], sides, rounds=2)
    assert seconds == [9.0, 2.0, 2.0]


def test_a_run_that_fails_is_noted_and_the_rest_goes_on(tmp_path: Path) -> None:
    sides = [_side("ours", [])]
    runner = Runner(sides, Plan(), tmp_path)

    def fail(_context: Context, _node: Node) -> dict[str, float]:
        raise ValueError("no such luck")

    _run(runner, [_case("bad", fail), _case("good", lambda _context, _node: {"rate": 1.0})], sides, rounds=1)
    assert runner.results.failures == [
        "bad on ours, round 0: no such luck",
        "bad on ours, round 1: no such luck",
    ]
    assert runner.results.samples == {"good": {"ours": {1: {"rate": 1.0}}}}


def test_a_broker_that_is_gone_ends_the_run(tmp_path: Path) -> None:
    sides = [_side("ours", [])]
    runner = Runner(sides, Plan(), tmp_path)

    def crash(_context: Context, node: Node) -> dict[str, float]:
        node.kill()
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        _run(runner, [_case("c", crash)], sides, rounds=1)


def test_round_trips_under_load_run_at_half_of_the_other_sides_requests(tmp_path: Path) -> None:
    sides = [_side("ours", []), _side("theirs", [])]
    rates: list[float] = []
    requests = iter([1e6, 30_000.0, 20_000.0, 1e6])

    def note(context: Context, _node: Node) -> dict[str, float]:
        rates.append(context.loaded_rate_per_second)
        return {}

    def answer(_context: Context, _node: Node) -> dict[str, float]:
        return {"rate": next(requests)}

    _run(Runner(sides, Plan(), tmp_path), [_case("requests", answer), _case("loaded", note)], sides, rounds=1)
    assert rates == [15_000.0, 15_000.0, 12_500.0, 12_500.0]


def test_alone_round_trips_under_load_run_at_a_fixed_rate(tmp_path: Path) -> None:
    sides = [_side("ours", [])]
    rates: list[float] = []

    def note(context: Context, _node: Node) -> dict[str, float]:
        rates.append(context.loaded_rate_per_second)
        return {"rate": 1e6}

    _run(Runner(sides, Plan(), tmp_path), [_case("requests", note)], sides, rounds=1)
    assert rates == [RATE_WITHOUT_KAFKA_PER_SECOND] * 2


def test_each_life_has_a_broker_of_its_own_and_the_first_only_starts(tmp_path: Path) -> None:
    calls: list[str] = []
    sides = [_side("ours", calls)]
    runner = Runner(sides, Plan(), tmp_path)

    def live(_plan: Plan, node: Node) -> dict[str, float]:
        node.start()
        calls.append("live")
        return {"seconds": 1.0}

    _run(runner, [LifecycleCase("life", (), live)], sides, rounds=2)
    assert calls == ["start", "stop", "start", "live", "start", "live"]
    assert list(runner.results.samples["life"]["ours"]) == [1, 2]


def test_the_cases_can_be_listed_and_one_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "roundtrip-idle" in capsys.readouterr().out.split()
    assert main(["--only", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().out
    assert main(["clusters", "--list"]) == 0
    assert "leader-killed" in capsys.readouterr().out.split()
    assert main(["clusters", "--only", "requests"]) == 2
    assert "python -m bench clusters --list" in " ".join(capsys.readouterr().out.split())
