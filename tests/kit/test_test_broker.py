"""`barnabas test-broker`, as a test suite in another language uses it: by its output, its input and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from barnabas.testing.kit.client_helpers import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-m", "barnabas", "test-broker"]


class TestBroker:
    """The command, while it runs."""

    __test__ = False

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.ready = self._read()
        self.bootstrap: str = self.ready["bootstrap"]

    def ask(self, **question: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the command has ended"
        return json.loads(line)


@contextmanager
def started(*words: str) -> Iterator[TestBroker]:
    with subprocess.Popen([*COMMAND, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield TestBroker(process)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


def write(bootstrap: str, topic: str, **settings: Any) -> Any:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 10_000, "log_level": 0, **settings})
    errors: list[Any] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(15)
    return errors[0]


def processes_below(pid: int) -> list[int]:
    """Those that it has started, and that these have."""
    children = [
        int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()
    ]
    return children + [each for child in children for each in processes_below(child)]


def is_there(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(") ")[2][0] != "Z"


def test_it_says_where_it_is_and_has_the_topics_and_settings_that_it_was_told() -> None:
    with started("--topic", "orders:3", "--topic", "greetings", "--set", "num.partitions=5") as broker:
        assert set(broker.ready) == {"bootstrap", "pid", "brokers"}
        assert broker.ready["brokers"] == {"1": broker.bootstrap}
        assert broker.ready["pid"] == broker.process.pid
        assert write(broker.bootstrap, "on-first-use") is None
        topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
        # A client of another test may look for a broker that is gone, and find this one where it listened.
        told = {"orders": 3, "greetings": 1, "on-first-use": 5}
        assert {name: len(topics[name].partitions) for name in told} == told


def test_it_is_told_to_fail_and_to_be_well_again_line_by_line() -> None:
    with started("--topic", "t") as broker:
        begun = broker.ask(do="begin", fault="answer", api="Produce", error="TOPIC_AUTHORIZATION_FAILED")
        assert begun == {"fault": 1}
        assert write(broker.bootstrap, "t").name() == "TOPIC_AUTHORIZATION_FAILED"
        assert broker.ask(do="struck", fault=1) == {"struck": 1}
        assert broker.ask(do="end", fault="all") == {}
        assert write(broker.bootstrap, "t") is None
        assert broker.ask(do="kill") == {}
        assert write(broker.bootstrap, "t", **{"message.timeout.ms": 500}) is not None
        assert broker.ask(do="start") == {}
        assert write(broker.bootstrap, "t") is None


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({"do": "explode"}, "unknown: 'explode'; known: kill, stop"),
        ({"do": "kill", "node": 2}, "there is no node 2: there are 1"),
        ({"do": "begin", "fault": "answer", "api": "Prodduce", "error": "NONE"}, "did you mean 'Produce'?"),
        ({"fault": 1}, "cannot be understood"),
    ],
)
def test_what_it_does_not_understand_it_says_and_goes_on(question: dict[str, Any], complaint: str) -> None:
    with started("--topic", "t") as broker:
        assert complaint in broker.ask(**question)["error"]
        assert write(broker.bootstrap, "t") is None


def test_several_nodes() -> None:
    with started("--nodes", "3", "--topic", "t") as cluster:
        assert list(cluster.ready["brokers"]) == ["1", "2", "3"]
        assert cluster.ask(do="kill", node=2) == {}
        assert write(cluster.bootstrap, "t", **{"message.timeout.ms": 30_000}) is None
        assert cluster.ask(do="start", node=2) == {}


def test_without_standard_input_it_goes_on_and_it_ends_with_its_parent() -> None:
    program = textwrap.dedent(
        """
        import subprocess, sys, time
        child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        print(child.stdout.readline().decode().strip(), flush=True)
        time.sleep(600)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, *COMMAND, "--topic", "t"], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        ready = json.loads(parent.stdout.readline())
        assert write(ready["bootstrap"], "t") is None
        everything = [ready["pid"], *processes_below(ready["pid"])]
        assert len(everything) == 3  # the command, the process that forks, and the broker
        parent.kill()
    await_true(lambda: not any(map(is_there, everything)), "all processes have ended", 10)


def test_a_setting_that_makes_no_sense_is_refused_in_one_line_and_the_end_of_the_log() -> None:
    done = subprocess.run([*COMMAND, "--set", "num.partitions=few"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert not done.stdout


def test_all_that_it_wrote_is_gone_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started("--topic", "t") as broker:
        write(broker.bootstrap, "t")
        assert os.listdir(tmp_path)
    assert not os.listdir(tmp_path)
