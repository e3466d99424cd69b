"""Our tools that move partitions and that put a load on a cluster, beside Kafka's own, on a node of each kind.

A command line is written as a person types it. BROKER and CONTROLLER are where the node listens, FILES is a folder,
and TOPIC a topic of the tool's own: both do the same to topics that are the same. Figures and times become one letter.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import pytest
from tests.clients.adapter import values
from tests.clients.with_confluent import ConfluentClient
from tests.peers import running
from tools import apache_kafka

from barnabas.cli.main import main
from barnabas.client.admin.cluster_state import describe_quorum
from barnabas.client.client_settings import ClientSettings
from barnabas.client.cluster import Cluster
from interop import kafka_tools
from interop.conftest import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import Peer, PeerKind

ELECTION: Final = "kafka-leader-election --bootstrap-server BROKER "
ELECTIONS: Final = (
    ELECTION + "--election-type preferred --all-topic-partitions",
    ELECTION + "--election-type=PREFERRED --topic=TOPIC --partition=0",
    ELECTION + "--election-type UNCLEAN --topic TOPIC --partition 1",
    ELECTION + "--election-type UNCLEAN --topic TOPIC --partition 7",
    ELECTION + "--election-type PREFERRED --path-to-json-file FILES/election.json",
    ELECTION + "--election-type PREFERRED --path-to-json-file FILES/twice.json",
    ELECTION + "--election-type PREFERRED --path-to-json-file FILES/words",
    ELECTION + "--election-type PREFERRED --path-to-json-file FILES/array.json",
    ELECTION + "--election-type PREFERRED --path-to-json-file FILES/empty.json",
    ELECTION + "--election-type PREFERRED --path-to-json-file FILES/none",
    ELECTION + "--election-type PREFERRED --topic TOPIC --partition 0 --admin.config FILES/client.properties",
    ELECTION + "--election-type PREFERRED --topic TOPIC --partition 0 --command-config FILES/client.properties",
    ELECTION + "--election-type PREFERRED --topic TOPIC --partition 0 --command-config FILES/none",
    ELECTION + "--election-type PREFERRED --all-topic-partitions --admin.config a --command-config b",
    ELECTION + "--election-type any --all-topic-partitions",
    ELECTION + "--election-type PREFERRED --topic TOPIC --partition x",
    ELECTION + "--election-type PREFERRED --topic TOPIC",
    ELECTION + "--election-type PREFERRED --all-topic-partitions --partition 1",
    ELECTION + "--election-type PREFERRED",
    ELECTION + "--bogus",
    "kafka-leader-election --election-type PREFERRED --all-topic-partitions",
    "kafka-leader-election --bootstrap-server nonsense --election-type PREFERRED --all-topic-partitions",
    "kafka-leader-election --version",
)
REASSIGN: Final = "kafka-reassign-partitions --bootstrap-server BROKER "
PLAN: Final = "--reassignment-json-file FILES/"
TOPICS: Final = "--topics-to-move-json-file FILES/"
MOVES: Final = (
    REASSIGN + "--list",
    "kafka-reassign-partitions --bootstrap-controller CONTROLLER --list",
    REASSIGN + "--list --command-config FILES/client.properties",
    REASSIGN + f"--generate {TOPICS}topics.json --broker-list 1",
    REASSIGN + f"--generate {TOPICS}topics.json --broker-list 1 --disable-rack-aware",
    REASSIGN + f"--generate {TOPICS}topics.json --broker-list 5,6",
    REASSIGN + f"--generate {TOPICS}topics.json --broker-list 1,1",
    REASSIGN + f"--generate {TOPICS}topics.json --broker-list x",
    REASSIGN + f"--generate {TOPICS}nowhere.json --broker-list 1",
    REASSIGN + f"--generate {TOPICS}topics-twice.json --broker-list 1",
    REASSIGN + f"--generate {TOPICS}words --broker-list 1",
    REASSIGN + f"--generate {TOPICS}empty.json --broker-list 1",
    REASSIGN + f"--generate {TOPICS}topics.json",
    REASSIGN + f"--generate {TOPICS}none --broker-list 1",
    REASSIGN + f"--execute {PLAN}plan.json",
    REASSIGN + f"--verify {PLAN}plan.json",
    REASSIGN + f"--verify {PLAN}plan.json --preserve-throttles",
    REASSIGN + f"--execute {PLAN}plan.json --throttle 1000000 --additional --timeout 5000",
    REASSIGN + f"--execute {PLAN}plan.json --disallow-replication-factor-change",
    REASSIGN + f"--verify {PLAN}plan.json",
    REASSIGN + f"--cancel {PLAN}plan.json",
    REASSIGN + f"--cancel {PLAN}plan.json --preserve-throttles --timeout 100",
    f"kafka-reassign-partitions --bootstrap-controller CONTROLLER --cancel {PLAN}plan.json --preserve-throttles",
    REASSIGN + f"--execute {PLAN}folders.json --replica-alter-log-dirs-throttle 1000000",
    REASSIGN + f"--execute {PLAN}no-folder.json",
    REASSIGN + f"--execute {PLAN}unknown-broker.json",
    REASSIGN + f"--execute {PLAN}unknown-partition.json",
    REASSIGN + f"--verify {PLAN}unknown-partition.json",
    REASSIGN + f"--verify {PLAN}nowhere-plan.json",
    REASSIGN + f"--execute {PLAN}nowhere-plan.json",
    REASSIGN + f"--execute {PLAN}doubled.json",
    REASSIGN + f"--execute {PLAN}uneven.json",
    REASSIGN + f"--execute {PLAN}no-replicas.json",
    REASSIGN + f"--execute {PLAN}empty.json",
    REASSIGN + f"--execute {PLAN}version-3.json",
    REASSIGN + f"--execute {PLAN}array.json",
    REASSIGN + f"--execute {PLAN}words",
    REASSIGN + f"--execute {PLAN}open.json",
    REASSIGN + f"--execute {PLAN}plan.json --throttle x",
    REASSIGN + f"--execute {PLAN}plan.json --throttle",
    REASSIGN + f"--execute {PLAN}plan.json --preserve-throttles",
    REASSIGN + "--execute",
    REASSIGN + "--list --execute",
    REASSIGN + "--list --bootstrap-controller CONTROLLER",
    REASSIGN,
    "kafka-reassign-partitions --list",
    "kafka-reassign-partitions --bootstrap-server nonsense --list",
)
WRITE: Final = "kafka-verifiable-producer --bootstrap-server BROKER --topic TOPIC "
READ: Final = "kafka-verifiable-consumer --bootstrap-server BROKER --topic READ --group-id TOPIC "
VERIFIABLE: Final = (
    WRITE + "--max-messages 3",
    WRITE + "--max-messages 2 --value-prefix 7 --repeating-keys 2 --acks 1 --throughput 100",
    WRITE + "--max-messages 1 --message-create-time 1795138166000 --command-config FILES/client.properties",
    WRITE + "--max-messages 1 --producer.config FILES/client.properties",
    WRITE + "--max-messages 0",
    WRITE + "--max-messages x",
    WRITE + "--acks 5",
    WRITE + "--command-config FILES/none",
    WRITE + "--command-config a --producer.config b",
    WRITE + "--bogus",
    "kafka-verifiable-producer --topic TOPIC",
    "kafka-verifiable-producer --bootstrap-server BROKER",
    "kafka-verifiable-producer --bootstrap-server nonsense --topic TOPIC",
    "kafka-verifiable-producer --bootstrap-server BROKER --topic 'no topic' --max-messages 1",
    READ + "--max-messages 5 --verbose",
    READ + "--max-messages 3 --group-instance-id one --session-timeout 8000 --reset-policy earliest",
    READ + "--max-messages 2 --group-protocol consumer --group-remote-assignor uniform --enable-autocommit",
    READ + "--max-messages 1 --assignment-strategy org.apache.kafka.clients.consumer.RoundRobinAssignor",
    READ + "--max-messages 0 --consumer.config FILES/client.properties",
    READ + "--max-messages 0 --command-config FILES/client.properties",
    READ + "--group-protocol foo",
    READ + "--group-protocol consumer --session-timeout 8000",
    READ + "--reset-policy foo",
    READ + "--assignment-strategy foo",
    READ + "--command-config FILES/none",
    READ + "--session-timeout x",
    "kafka-verifiable-consumer --bootstrap-server BROKER --topic TOPIC",
)
SEND: Final = "kafka-producer-perf-test --bootstrap-server BROKER --topic TOPIC --throughput -1 "
SENDING: Final = (
    SEND + "--num-records 100 --record-size 100",
    SEND + "--num-records 5 --payload-monotonic --command-property acks=1 linger.ms=1",
    SEND + "--num-records 5 --payload-file FILES/values",
    SEND + "--num-records 5 --payload-file FILES/values --payload-delimiter |",
    SEND + "--num-records 5 --record-size 10 --transactional-id TOPIC --transaction-duration-ms 500",
    SEND + "--num-records 5 --record-size 10 --command-config FILES/client.properties",
    SEND + "--num-records 5 --record-size 10 --producer.config FILES/client.properties",
    SEND + "--num-records 5 --record-size 10 --producer-props acks=all batch.size=100",
    SEND + "--num-records 5 --record-size 10 --print-metrics --reporting-interval 100000",
    SEND + "--num-records 10 --record-size 10 --warmup-records 5",
    SEND + "--num-records 2 --record-size 2000000",
    SEND + "--num-records 0 --record-size 10",
    SEND + "--num-records x --record-size 10",
    SEND + "--num-records 1 --record-size 0",
    SEND + "--num-records 1",
    SEND + "--num-records 1 --record-size 1 --payload-monotonic",
    SEND + "--num-records 1 --record-size 1 --warmup-records 1",
    SEND + "--num-records 1 --record-size 1 --transaction-duration-ms 0",
    SEND + "--num-records 1 --record-size 1 --reporting-interval 0",
    SEND + "--num-records 1 --record-size 1 --producer-props x",
    SEND + "--num-records 1 --record-size 1 --producer-props a=b --command-property a=b",
    SEND + "--num-records 1 --record-size 1 --command-config a --producer.config b",
    SEND + "--num-records 1 --record-size 1 --command-config FILES/none",
    SEND + "--num-records 1 --record-size 1 --command-property acks=7",
    SEND + "--num-records 1 --payload-file FILES/none",
    SEND + "--num-records 1 --record-size 1 --bogus",
    "kafka-producer-perf-test --topic TOPIC --throughput -1 --num-records 1 --record-size 1",
    "kafka-producer-perf-test --topic TOPIC --throughput x --num-records 1 --record-size 1",
)
RECEIVE: Final = "kafka-consumer-perf-test --bootstrap-server BROKER --group TOPIC "
RECEIVING: Final = (
    RECEIVE + "--topic READ --num-records 10",
    RECEIVE + "--topic READ --messages 10 --hide-header",
    RECEIVE + "--include READ.* --num-records 10 --timeout 3000 --fetch-size 1000 --socket-buffer-size 65536",
    RECEIVE + "--topic READ --num-records 10 --date-format yyyy.MM.dd",
    RECEIVE + "--topic READ --num-records 10 --command-property client.id=me --print-metrics",
    RECEIVE + "--topic READ --num-records 10 --consumer.config FILES/client.properties",
    RECEIVE + "--topic READ --num-records 10 --command-config FILES/client.properties --from-latest --timeout 1000",
    RECEIVE + "--topic READ --num-records 1000 --timeout 1000 --show-detailed-stats --reporting-interval 100000",
    RECEIVE + "--topic READ --num-records 0",
    RECEIVE + "--topic READ",
    RECEIVE + "--num-records 1",
    RECEIVE + "--topic READ --include x --num-records 1",
    RECEIVE + "--topic READ --num-records 1 --messages 1",
    RECEIVE + "--topic READ --num-records x",
    RECEIVE + "--topic READ --num-records 1 --date-format q",
    RECEIVE + "--topic READ --num-records 1 --reporting-interval 0",
    RECEIVE + "--topic READ --num-records 1 --reporting-interval x",
    RECEIVE + "--topic READ --num-records 1 --command-config FILES/none",
    RECEIVE + "--topic READ --num-records 1 --command-config a --consumer.config b",
    RECEIVE + "--bogus",
    "kafka-consumer-perf-test --topic READ --num-records 1",
    "kafka-consumer-perf-test --bootstrap-server nonsense --topic READ --num-records 1",
    "kafka-consumer-perf-test --version",
)
TRIP: Final = "kafka-e2e-latency --bootstrap-server BROKER --topic TOPIC "
LATENCIES: Final = (
    TRIP + "--num-records 3 --producer-acks 1 --record-size 10",
    TRIP + "--num-records 2 --producer-acks all --record-size 10 --record-key-size 4 --num-headers 2 "
    "--record-header-key-size 3 --record-header-size 5 --command-config FILES/client.properties",
    "kafka-e2e-latency BROKER TOPIC 2 1 10",
    "kafka-e2e-latency BROKER TOPIC-new 2 all 10 FILES/client.properties",
    "kafka-e2e-latency BROKER TOPIC 2 0 10",
    "kafka-e2e-latency BROKER TOPIC x 1 10",
    "kafka-e2e-latency BROKER TOPIC",
    TRIP + "--num-records 0 --producer-acks 1 --record-size 10",
    TRIP + "--num-records 1 --producer-acks 1 --record-size -1",
    TRIP + "--num-records 1 --producer-acks 1 --record-size 1 --record-key-size -1",
    TRIP + "--num-records 1 --producer-acks 1 --record-size 1 --record-header-size -2",
    TRIP + "--num-records 1 --producer-acks 2 --record-size 1",
    TRIP + "--num-records 1 --producer-acks 1",
    TRIP + "--num-records 1 --producer-acks 1 --record-size 1 --command-config FILES/none",
)
ALL: Final = (*ELECTIONS, *MOVES, *VERIFIABLE, *SENDING, *RECEIVING, *LATENCIES)

MOVING: Final = ("kafka-leader-election", "kafka-reassign-partitions")
NUMBER: Final = re.compile(r"(?<![\w.-])-?(?:\d+(?:\.\d+)?(?:E-?\d+)?|NaN|Infinity)(?![\w.])")
TIME: Final = re.compile(r"\d{4}[.-]\d\d[.-]\d\d(?: \d\d:\d\d:\d\d:\d{3})?")
JSON_FIGURE: Final = re.compile(r'("(?:timestamp|avg_throughput)"):[\d.E-]+')
TRACE: Final = re.compile(r"^(?:\s+at |Caused by: |\s+\.\.\. |(?:[a-z]\w*\.)+\w+: )|^\s*$")
LOGGED: Final = re.compile(r"^\d\d:\d\d:\d\d,\d{3} ")
IN_ANY_PORTIONS: Final = ("records_consumed", "offsets_committed")
"""How many records come at a time is not the same twice."""


class Ended(NamedTuple):
    """How a tool ended, and what it printed."""

    code: int
    out: str
    err: str


class Node(NamedTuple):
    broker: str
    controller: str
    folders: list[Path]
    files: Path


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    if (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    root = tmp_path_factory.mktemp("tools")
    kind = cast("PeerKind", request.param)
    folders = [root / "data", root / "more"]
    settings = SETTINGS | {"log.dirs": ",".join(map(str, folders)), "group.initial.rebalance.delay.ms": "0"}
    with running(kind, root, settings) as peer:
        client = ConfluentClient(peer.bootstrap)
        client.create_topic("read")
        client.produce("read", values(10))
        yield Node(peer.bootstrap, _controller(peer), folders, root)


def _controller(peer: Peer) -> str:
    """Where the node's controller listens."""
    settings = ClientSettings.from_options({"bootstrap.servers": peer.bootstrap})
    with Cluster.connect(settings) as cluster:
        ((listener,),) = describe_quorum(cluster).listeners.values()
    return f"{listener.host}:{listener.port}"


@pytest.mark.parametrize("command_line", ALL)
def test_our_tool_prints_what_kafkas_prints(node: Node, command_line: str, topic: str) -> None:
    # The order in which partitions are named depends on the names of topics. Records go to topics that are new.
    others = topic if command_line.startswith(MOVING) else f"{topic}-b"
    expected = in_one_form(command_line, of_kafka(node, command_line, topic), node, topic)
    printed = in_one_form(command_line, ours(node, command_line, others), node, others)
    assert (printed.code, printed.out) == (expected.code, expected.out), f"{printed.err}\n{expected.err[:2000]}"
    if printed.code:
        complaint = printed.err.partition("\n")[0]
        assert complaint or printed.out, "no word about the failure"
        # What is said in brackets is our advice.
        assert complaint.startswith("(") or squashed(complaint) in squashed(expected.err), expected.err[:2000]


@pytest.mark.parametrize(
    "name",
    [
        "kafka-consumer-perf-test",
        "kafka-e2e-latency",
        "kafka-leader-election",
        "kafka-producer-perf-test",
        "kafka-reassign-partitions",
        "kafka-verifiable-consumer",
        "kafka-verifiable-producer",
    ],
)
def test_our_tool_lists_and_takes_every_flag_that_kafkas_lists(name: str) -> None:
    asked = "--topic --help" if name == "kafka-e2e-latency" else "--help"
    theirs = kafka_tools.attempt(name, *([] if name == "kafka-e2e-latency" else asked.split()))
    listed = set(re.findall(r"^ *(?:-h, )?--([a-z][\w.-]*)", theirs.stdout + theirs.stderr, re.MULTILINE))
    assert len(listed) > 5
    mine = captured([name, "--help"])
    assert listed - {"help", "version"} <= set(re.findall(r"--([a-z][\w.-]*)", mine.out + mine.err))


def of_kafka(node: Node, command_line: str, topic: str) -> Ended:
    done = kafka_tools.attempt(*_words(node, command_line, topic))
    return Ended(done.returncode, done.stdout, "\n".join(_said(done.stderr)))


def ours(node: Node, command_line: str, topic: str) -> Ended:
    return captured(_words(node, command_line, topic))


def captured(words: list[str]) -> Ended:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["kafka", *words])
    return Ended(code, out.getvalue(), err.getvalue())


def in_one_form(command_line: str, ended: Ended, node: Node, topic: str) -> Ended:
    """What it printed, comparable."""
    out = ended.out.replace(topic, "TOPIC").replace(str(node.files), "FILES")
    out = re.sub(r"FILES/(?:data|more)\b", "FOLDER", out)
    lines = [line for line in out.splitlines() if not TRACE.match(line)]
    if "Metric Name" in out:
        lines = lines[: next(at for at, line in enumerate(lines) if line.startswith("Metric Name"))]
    if command_line.startswith("kafka-verifiable"):
        lines = [JSON_FIGURE.sub(r"\1:N", line) for line in lines]
        lines = [line for line in lines if not any(f'"{name}"' in line for name in IN_ANY_PORTIONS)]
    elif not command_line.startswith(MOVING):
        lines = [" ".join(NUMBER.sub("N", TIME.sub("T", line)).split()) for line in lines]
    return Ended(ended.code, "\n".join(lines), ended.err)


def squashed(text: str) -> str:
    """Kafka's tools break lines where they please."""
    return re.sub(r"\s", "", text)


def _said(text: str) -> list[str]:
    return [line for line in text.splitlines() if not LOGGED.match(line)]


def _words(node: Node, command_line: str, topic: str) -> list[str]:
    client = ConfluentClient(node.broker)
    is_moving = command_line.startswith(MOVING)
    if "TOPIC" in command_line or "FILES/" in command_line:
        if topic not in client.topic_names():
            client.create_topic(topic, 2 if is_moving else 1)
        _write_files(node, topic)
    for name, value in (
        ("BROKER", node.broker),
        ("CONTROLLER", node.controller),
        ("FILES", str(node.files)),
        ("TOPIC", topic),
        ("READ", "read"),
    ):
        command_line = command_line.replace(name, value)
    return shlex.split(command_line.replace(" |", " '|'"))


def _write_files(node: Node, topic: str) -> None:
    def plan(*replicas: list[int], name: str = topic, **more: Any) -> dict[str, Any]:
        partitions = [
            {"topic": name, "partition": number, "replicas": each, **more} for number, each in enumerate(replicas)
        ]
        return {"version": 1, "partitions": partitions}

    here = [{"topic": topic, "partition": number} for number in range(2)]
    contents: dict[str, Any] = {
        "election.json": {"partitions": [*here, {"topic": "nowhere", "partition": 0}]},
        "twice.json": {"partitions": [*here, *here]},
        "array.json": [],
        "empty.json": {"partitions": []},
        "topics.json": {"version": 1, "topics": [{"topic": topic}]},
        "topics-twice.json": {"topics": [{"topic": topic}, {"topic": topic}]},
        "nowhere.json": {"topics": [{"topic": "nowhere"}]},
        "plan.json": plan([1], [1]),
        "folders.json": plan([1], log_dirs=[str(node.folders[1])]),
        "no-folder.json": plan([1], log_dirs=["/nowhere"]),
        "unknown-broker.json": plan([9, 1]),
        "unknown-partition.json": plan([1], [1], [1], [1], [1]),
        "nowhere-plan.json": plan([1], name="nowhere"),
        "doubled.json": plan([1, 1], [1]),
        "uneven.json": plan([1], log_dirs=[]),
        "no-replicas.json": plan([]),
        "version-3.json": {"version": 3},
    }
    for name, content in contents.items():
        (node.files / name).write_text(json.dumps(content))
    (node.files / "words").write_text("no JSON at all")
    (node.files / "open.json").write_text('{"version": 1')
    (node.files / "values").write_text("one|1\ntwo|2\n")
    (node.files / "client.properties").write_text("client.id=somebody\n")
