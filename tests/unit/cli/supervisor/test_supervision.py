"""A supervisor and its processes: started together, started again, stopped in order, never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).with_name("run_supervisor.py")


class Supervised:
    def __init__(self, folder: Path, *nodes: str) -> None:
        self.journal = folder / "journal"
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [sys.executable, str(PROGRAM), str(self.journal), *nodes]
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    @property
    def events(self) -> list[str]:
        """Everything that nodes wrote down, without the ids of their processes."""
        return [line.rpartition(" ")[0] for line in self._lines()]

    def pid_of(self, name: str) -> int:
        """The process that was last started for a node."""
        return int(next(line.split()[-1] for line in reversed(self._lines()) if line.startswith(f"{name} starts")))

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_until_ready(self) -> None:
        wait_until(lambda: "all ready" in self.out, "all nodes are ready")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []


@contextlib.contextmanager
def supervised(folder: Path, *nodes: str) -> Iterator[Supervised]:
    running = Supervised(folder, *nodes)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def is_alive(pid: int) -> bool:
    """A process that has ended and was not waited for counts as alive: it would be a zombie of ours."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_cluster_is_ready_when_all_nodes_are_and_lines_have_names(tmp_path: Path) -> None:
    with supervised(tmp_path, "c1", "b2") as cluster:
        cluster.wait_until_ready()
        assert cluster.out == "first ready\nall ready\n"
        wait_until(lambda: cluster.err.count("barnabas ready") == 2, "what nodes say is shown")
        assert sorted(cluster.err.splitlines()) == [
            "b2 | barnabas ready: PLAINTEXT://b2:1",
            "c1 | barnabas ready: PLAINTEXT://c1:1",
        ]


def test_a_node_that_dies_is_named_and_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path, "c1", "b2") as cluster:
        cluster.wait_until_ready()
        killed = cluster.pid_of("b2")
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: cluster.events.count("b2 starts") == 2, "the node is started again")
        assert f"b2 (process {killed}) was ended by SIGKILL; starting it again in 0.2 s" in cluster.err
        assert not is_alive(killed)
        assert cluster.events.count("c1 starts") == 1
        wait_until(lambda: cluster.err.count("b2 | barnabas ready") == 2, "it serves again")
        cluster.signal(signal.SIGTERM)
        assert cluster.process.wait(20) == 0
        assert cluster.out == "first ready\nall ready\n"


def test_brokers_stop_before_the_quorum(tmp_path: Path) -> None:
    with supervised(tmp_path, "c1", "c2:slow", "c3", "b4:slow", "b5") as cluster:
        cluster.wait_until_ready()
        cluster.signal(signal.SIGTERM)
        assert cluster.process.wait(20) == 0
        stops = [event for event in cluster.events if not event.endswith("starts")]
        assert sorted(stops[:2]) == ["b4 ends", "b5 ends"]
        assert sorted(stops[2:5]) == [f"c{number} has no broker any more" for number in (1, 2, 3)]
        assert sorted(stops[5:]) == ["c1 ends", "c2 ends", "c3 ends"]


def test_the_only_controller_stops_broker_and_controller_in_one(tmp_path: Path) -> None:
    with supervised(tmp_path, "c1", "b2:slow") as cluster:
        cluster.wait_until_ready()
        cluster.signal(signal.SIGINT)
        assert cluster.process.wait(20) == 0
        assert cluster.events[2:] == ["b2 ends", "c1 ends"]


def test_a_controller_that_is_dead_is_not_waited_for(tmp_path: Path) -> None:
    with supervised(tmp_path, "c1", "c2", "c3:clings") as cluster:
        cluster.wait_until_ready()
        cluster.signal(signal.SIGTERM)
        wait_until(lambda: "c3 clings" in cluster.events, "one of three does not stop its broker")
        wait_until(lambda: cluster.events.count("c2 has no broker any more") == 1, "another does")
        assert "c1 ends" not in cluster.events
        os.kill(cluster.pid_of("c3"), signal.SIGKILL)
        assert cluster.process.wait(20) == 1
        assert "c3 was ended by SIGKILL instead of stopping cleanly" in cluster.err
        assert sorted(cluster.events[-2:]) == ["c1 ends", "c2 ends"]


def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    with supervised(tmp_path, "c1", "b2:clings", "b3") as cluster:
        cluster.wait_until_ready()
        pids = [cluster.pid_of(name) for name in ("c1", "b2", "b3")]
        cluster.signal(signal.SIGTERM)
        wait_until(lambda: "b2 clings" in cluster.events, "one node does not stop")
        cluster.signal(signal.SIGINT)
        assert cluster.process.wait(20) == 1
        assert not any(map(is_alive, pids))
        assert "SIGINT again: ending all nodes at once" in cluster.err
        assert "c1 ends" not in cluster.events


def test_no_node_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with supervised(tmp_path, "c1", "b2:clings") as cluster:
        cluster.wait_until_ready()
        pids = [cluster.pid_of(name) for name in ("c1", "b2")]
        cluster.signal(signal.SIGKILL)
        cluster.process.wait()
        wait_until(lambda: not any(map(is_running, pids)), "the nodes are gone")


def is_running(pid: int) -> bool:
    """Unlike `is_alive`: who waits for these processes now is the system, and it may take its time."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_node_that_cannot_start_ends_the_cluster_with_its_reason(tmp_path: Path) -> None:
    with supervised(tmp_path, "c1", "b2:fails") as cluster:
        assert cluster.process.wait(20) == 1
        assert "b2 | listeners is wrong" in cluster.err
        assert "b2 ended with exit code 3 before it was ready: stopping all nodes" in cluster.err
        assert "all ready" not in cluster.out
        assert cluster.events.count("b2 starts") == 1
