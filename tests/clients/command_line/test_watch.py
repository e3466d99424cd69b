"""`barnabas watch` beside a node: what it measures, what it says of a node that is gone, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.nodes import Node
from tests.peers import HOST, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

WATCH = [sys.executable, "-m", "barnabas", "watch"]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("watch") / "data") as node:
        yield node


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WATCH, *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_it_says_how_available_and_how_quick_a_node_is(node: Node) -> None:
    words = ("--bootstrap-server", node.bootstrap, "--count", "5", "--interval", "0.01", "--within", "5000")
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    figures, objective = done.stdout.splitlines()
    assert re.fullmatch(
        r"5 probes, 0 failed, available 100\.000 %; acknowledged p50 [\d.]+ p95 [\d.]+ p99 [\d.]+ ms; "
        r"read p50 [\d.]+ p95 [\d.]+ p99 [\d.]+ ms",
        figures,
    )
    assert objective == "SLO 99.9 % read back within 5000 ms: met, 100.000 %"


def test_with_json_it_says_so_in_an_object(node: Node) -> None:
    done = run("--bootstrap-server", node.bootstrap, "--count", "2", "--interval", "0.01", "--json")
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert (found["probes"], found["failed"], found["availability_percent"]) == (2, 0, 100.0)
    assert 0 < found["latency"]["acknowledged"]["p50_ms"] <= found["latency"]["read"]["p50_ms"]


def test_probes_of_a_node_that_goes_away_fail_and_the_objective_is_missed(node: Node) -> None:
    words = ("--bootstrap-server", node.bootstrap, "--interval", "0.1", "--timeout", "0.5", "--report", "0.1")
    process = subprocess.Popen([*WATCH, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    assert "0 failed" in process.stdout.readline()
    try:
        node.pause()
        assert re.search(r"partition 0: not (acknowledged|read back)", process.stderr.readline())
    finally:
        node.resume()
        process.send_signal(signal.SIGINT)
        try:
            output, errors = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "MISSED" in output.splitlines()[-1]


def test_where_nobody_is_it_says_so_in_one_line() -> None:
    done = run("--bootstrap-server", f"{HOST}:{free_port()}", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "no broker answers within 0.5 s" in done.stderr
    assert run("--slo", "101").returncode == 2
