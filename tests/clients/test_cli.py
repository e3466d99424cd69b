"""The `barnabas` command against a node, as a person at a shell uses it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.command_line import parse_address
from barnabas.client.broker_connection import Connection
from barnabas.net.frames import ConnectError
from tests.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.peers import Peer

    Run = Callable[..., subprocess.CompletedProcess[str]]

TIMEOUT_S = 60.0


@pytest.fixture
def barnabas(node: Peer) -> Run:
    """Runs `barnabas WORDS… --bootstrap-server NODE` to its end."""

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "barnabas", *words, "--bootstrap-server", node.bootstrap]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)

    return run


def done(process: subprocess.CompletedProcess[str]) -> str:
    """What a command that must succeed printed."""
    assert process.returncode == 0, process.stderr
    return process.stdout


def failed(process: subprocess.CompletedProcess[str]) -> str:
    """The complaint of a command that must fail, which is text and not a stack trace."""
    assert process.returncode == 1, process.stdout
    assert "Traceback" not in process.stderr
    assert process.stderr.startswith("barnabas: ")
    return process.stderr


def test_a_topic_is_created_listed_described_and_deleted(barnabas: Run, topic: str) -> None:
    created = done(barnabas("topic", "create", topic, "--partitions", "3", "--config", "retention.ms=86400000"))
    assert created == f"created {topic}: partitions 3, replication 1\n"
    assert topic in names(done(barnabas("topic", "list")))

    described = done(barnabas("topic", "describe", topic)).splitlines()
    assert described[0].startswith(f"{topic}  id ")
    assert "retention.ms=86400000" in described[0]
    assert [line.split()[0] for line in described[1:]] == ["partition", "0", "1", "2"]

    assert done(barnabas("topic", "delete", topic)) == f"deleted {topic}\n"
    assert topic not in names(done(barnabas("topic", "list")))


def test_json_output_is_json(barnabas: Run, topic: str) -> None:
    (created,) = json.loads(done(barnabas("topic", "create", topic, "--partitions", "2", "--json")))
    listed = {entry["name"]: entry for entry in json.loads(done(barnabas("topic", "list", "--json")))}
    (described,) = json.loads(done(barnabas("topic", "describe", topic, "--json")))
    assert created["id"] == listed[topic]["id"] == described["id"]
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1]
    assert all(partition["in_sync"] == partition["replicas"] for partition in described["partitions"])
    assert json.loads(done(barnabas("topic", "delete", topic, "--json"))) == [topic]


def test_a_topic_that_is_there_already_is_an_error_unless_that_is_fine(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic))
    assert "TOPIC_ALREADY_EXISTS" in failed(barnabas("topic", "create", topic))
    assert done(barnabas("topic", "create", topic, "--if-not-exists")) == ""


def test_a_topic_that_is_not_there_is_an_error_unless_that_is_fine(barnabas: Run, topic: str) -> None:
    assert f"topic {topic!r} does not exist" in failed(barnabas("topic", "describe", topic))
    assert "UNKNOWN_TOPIC_OR_PARTITION" in failed(barnabas("topic", "delete", topic))
    assert done(barnabas("topic", "delete", topic, "--if-exists")) == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["not a name"], "INVALID_TOPIC_EXCEPTION"),
        (["t", "--config", "retention.sm=1"], "INVALID_CONFIG"),
        (["t", "--replication-factor", "7"], "INVALID_REPLICATION_FACTOR"),
    ],
)
def test_the_nodes_refusal_is_shown_with_its_name(barnabas: Run, words: list[str], complaint: str) -> None:
    assert complaint in failed(barnabas("topic", "create", *words))


def test_lines_go_in_and_come_out(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic))
    done(barnabas("produce", topic, stdin="one\ntwo\nthree\n"))
    assert done(barnabas("consume", topic, "--exit-at-end")) == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("codec", "acks"), [("none", "0"), ("none", "1"), *((codec, "all") for codec in ("gzip", "snappy", "lz4", "zstd"))]
)
def test_a_file_goes_in_with_each_codec_and_acknowledgement(
    barnabas: Run, topic: str, codec: str, acks: str, tmp_path: Path
) -> None:
    lines = "".join(f"line {number}\n" for number in range(2_000))
    (tmp_path / "lines.txt").write_text(lines)
    done(barnabas("topic", "create", topic))
    done(barnabas("produce", topic, str(tmp_path / "lines.txt"), "--compression", codec, "--acks", acks))
    assert done(barnabas("consume", topic, "--max-messages", "2000", "--timeout", "20")) == lines


def test_keys_headers_and_times_are_kept(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic))
    before_ms = int(time.time() * 1000)
    done(barnabas("produce", topic, "--key-separator", ":", "--header", "from=a test", stdin="k:v\nk2:v2\n"))
    first, second = map(json.loads, done(barnabas("consume", topic, "--exit-at-end", "--json")).splitlines())
    assert (first["key"], first["value"], second["key"], second["value"]) == ("k", "v", "k2", "v2")
    assert first["headers"] == [{"key": "from", "value": "a test"}]
    assert before_ms <= first["timestamp_ms"] <= int(time.time() * 1000)
    shown = done(barnabas("consume", topic, "--exit-at-end", "--print-key", "--print-headers", "--print-offset"))
    assert shown.splitlines()[1] == "Partition:0\tOffset:1\tfrom:a test\tk2\tv2"


def test_reading_starts_where_it_is_told_to(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic))
    done(barnabas("produce", topic, stdin="early\nearlier than late\n"))
    between_ms = int(time.time() * 1000) + 1
    while time.time() * 1000 <= between_ms:
        time.sleep(0.001)
    done(barnabas("produce", topic, stdin="late\n"))

    def read_from(start: str) -> list[str]:
        return done(barnabas("consume", topic, "--exit-at-end", "--from", start)).splitlines()

    assert read_from("beginning") == ["early", "earlier than late", "late"]
    assert read_from("1") == ["earlier than late", "late"]
    assert read_from("-1") == ["late"]
    assert read_from(f"@{between_ms}") == ["late"]
    assert read_from("2000-01-01T00:00:00Z") == ["early", "earlier than late", "late"]
    assert read_from("end") == []


def test_an_offset_beyond_the_end_is_an_error(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic))
    words = ("consume", topic, "--from", "1000", "--exit-at-end")
    assert failed(barnabas(*words)) == (
        f"barnabas: topic {topic!r}, partition 0 has no offset 1000: it is empty, and its next offset is 0\n"
    )
    done(barnabas("produce", topic, stdin="one\ntwo\n"))
    assert "has no offset 1000: it has 0 … 1\n" in failed(barnabas(*words))


def test_one_partition_can_be_written_and_read_alone(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic, "--partitions", "3"))
    for partition in ("0", "1", "2"):
        done(barnabas("produce", topic, "--partition", partition, stdin=f"in {partition}\n"))
    assert done(barnabas("consume", topic, "--exit-at-end", "--partition", "1")) == "in 1\n"
    both = done(barnabas("consume", topic, "--exit-at-end", "--partition", "0", "--partition", "2"))
    assert sorted(both.splitlines()) == ["in 0", "in 2"]


def test_a_partition_that_is_not_there_is_answered_with_those_that_are(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic, "--partitions", "3"))
    complaint = f"barnabas: topic {topic!r} has 3 partitions (0 … 2), but no partition 99\n"
    assert failed(barnabas("consume", topic, "--exit-at-end", "--partition", "99")) == complaint
    assert failed(barnabas("produce", topic, "--partition", "99", stdin="never sent\n")) == complaint


def test_a_partition_that_a_new_topic_did_not_get_is_told_in_the_same_words(barnabas: Run, topic: str) -> None:
    complaint = failed(barnabas("produce", topic, "--partition", "99", stdin="never sent\n"))
    assert complaint.splitlines() == [
        f"barnabas: topic {topic!r} has 1 partition (0), but no partition 99",
        f"barnabas: 1 of 1 records were not delivered to {topic!r}",
    ]


def test_reading_a_topic_that_is_not_there_is_refused_and_does_not_create_it(barnabas: Run, topic: str) -> None:
    assert failed(barnabas("consume", topic, "--exit-at-end")).startswith(
        f"barnabas: topic {topic!r} does not exist (`barnabas topic list` lists topics"
    )
    assert topic not in names(done(barnabas("topic", "list")))


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_what_cannot_be_a_topics_name_is_told(barnabas: Run, command: str) -> None:
    assert "'not a name' is not a valid topic name" in failed(barnabas(command, "not a name"))


def test_a_topic_that_nobody_creates_is_named_when_its_records_are_given_up(tmp_path: Path) -> None:
    settings = {"auto.create.topics.enable": "false"}
    with Node(tmp_path / "data", settings=settings) as node:
        command = [sys.executable, "-m", "barnabas", "produce", "absent", "--bootstrap-server", node.bootstrap]
        process = subprocess.run(command, input="lost\n", capture_output=True, text=True, timeout=TIMEOUT_S)
    assert failed(process).splitlines() == [
        "barnabas: topic 'absent' does not exist (`barnabas topic list` lists topics, `create` creates one)",
        "barnabas: 1 of 1 records were not delivered to 'absent'",
    ]


def test_a_topic_gets_more_partitions_and_other_settings(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic, "--config", "retention.ms=1000", "--config", "segment.ms=60000"))
    altered = done(
        barnabas(
            "topic",
            "alter",
            topic,
            "--partitions",
            "3",
            "--config",
            "retention.ms=2000",
            "--delete-config",
            "segment.ms",
        )
    )
    assert altered == f"altered {topic}: partitions 3, retention.ms=2000, segment.ms reset to the cluster's default\n"
    (described,) = json.loads(done(barnabas("topic", "describe", topic, "--json")))
    assert described["partition_count"] == 3
    assert described["configs"]["retention.ms"] == "2000"
    assert "segment.ms" not in described["configs"]
    assert json.loads(done(barnabas("topic", "alter", topic, "--partitions", "4", "--json"))) == [topic]


def test_an_alteration_that_cannot_be_done_whole_is_not_begun(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic))
    assert "INVALID_CONFIG" in failed(barnabas("topic", "alter", topic, "--partitions", "2", "--config", "no.such=1"))
    words = ("topic", "alter", topic, "--partitions", "1", "--config", "retention.ms=1")
    assert "INVALID_PARTITIONS" in failed(barnabas(*words))
    (described,) = json.loads(done(barnabas("topic", "describe", topic, "--json")))
    assert described["partition_count"] == 1
    assert "retention.ms" not in described["configs"]
    absent = failed(barnabas("topic", "alter", f"{topic}-absent", "--partitions", "2", "--config", "retention.ms=1"))
    assert absent.count("\n") == 1
    assert "does not exist" in absent


def test_an_alteration_of_nothing_is_a_usage_error(barnabas: Run, topic: str) -> None:
    process = barnabas("topic", "alter", topic)
    assert process.returncode == 2
    assert process.stderr == "barnabas: `barnabas topic alter` needs --partitions, --config or --delete-config\n"


def test_fewer_records_than_asked_for_is_a_failure(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic))
    done(barnabas("produce", topic, stdin="one\n"))
    assert failed(barnabas("consume", topic, "--max-messages", "2", "--timeout", "1")) == (
        "barnabas: only 1 of 2 records were received\n"
    )


def test_a_line_without_a_key_stops_after_those_before_it(barnabas: Run, topic: str) -> None:
    done(barnabas("topic", "create", topic))
    complaint = failed(barnabas("produce", topic, "--key-separator", ":", stdin="k:v\nno key\nk:never sent\n"))
    assert "line 2 has no key" in complaint
    assert done(barnabas("consume", topic, "--exit-at-end")) == "v\n"


def test_the_demo_checks_what_it_moves(barnabas: Run) -> None:
    shown = done(barnabas("demo", "--records", "20000"))
    assert "produce, acks=all" in shown
    assert "p99 ms" in shown
    assert "20,000 records in, the same 20,000 out" in shown


def test_the_demo_starts_a_node_of_its_own_and_stops_it() -> None:
    command = [sys.executable, "-m", "barnabas.cli.demo_command", "--records", "5000"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert "start to ready" in done(process)
    address = re.search(r"node ready at (\S+)", process.stderr)
    assert address is not None
    with pytest.raises(ConnectError):
        Connection(*parse_address(address[1]))


@pytest.mark.parametrize("words", [["topic", "list"], ["produce", "t"], ["consume", "t"]])
def test_an_address_where_no_node_answers_is_named_with_the_command_that_starts_one(words: list[str]) -> None:
    command = [sys.executable, "-m", "barnabas", *words, "--bootstrap-server", "127.0.0.1:1"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    assert failed(process) == (
        "barnabas: cannot connect to 127.0.0.1:1: Connection refused "
        "(`barnabas start --listen 127.0.0.1:1` starts a node there)\n"
    )


def test_a_port_alone_finds_the_node_on_this_machine(node: Peer, topic: str) -> None:
    port = node.bootstrap.rpartition(":")[2]
    produce, consume = (["produce", topic], ["consume", topic, "--exit-at-end"])
    for words, printed in ((produce, ""), (consume, "hello\n")):
        command = [sys.executable, "-m", "barnabas", *words, "--bootstrap-server", port]
        process = subprocess.run(command, input="hello\n", capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done(process) == printed


def names(listed: str) -> list[str]:
    return [line.split()[0] for line in listed.splitlines()[1:]]
