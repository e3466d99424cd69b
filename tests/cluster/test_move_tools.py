"""`kafka-leader-election` and `kafka-reassign-partitions` on three nodes: what Apache Kafka 4.3.1 prints."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.command_line.kafka_tool import KafkaTool, run_tool
from tests.cluster.clusters import QUICK, create_replicated, described, make_whole, produce, running, wait_until
from tests.nodes import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    WriteJson = Callable[[Any], str]

CLEARED = "Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic {topic}\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("moves")
    two_folders = {node: {"log.dirs": f"{folder}/node-{node},{folder}/more-{node}"} for node in (1, 2, 3)}
    with Cluster(folder, settings=QUICK, settings_of=two_folders) as started:
        yield started


@pytest.fixture
def elections(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-leader-election", cluster, capsys)


@pytest.fixture
def moves(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-reassign-partitions", cluster, capsys)


@pytest.fixture
def written(tmp_path: Path) -> WriteJson:
    def write(content: Any) -> str:
        file = tmp_path / f"{len([*tmp_path.iterdir()])}.json"
        file.write_text(json.dumps(content))
        return str(file)

    return write


def plan(topic: str, *replicas: list[int], **more: list[str]) -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": number, "replicas": each, **more} for number, each in enumerate(replicas)
        ],
    }


def settings_of(tool: KafkaTool, cluster: Cluster, kind: str, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    words = ("--bootstrap-server", cluster.bootstrap, "--describe", "--entity-type", kind, "--entity-name", name)
    return run_tool(capsys, "kafka-configs", *words).out


def leaders(cluster: Cluster, topic: str) -> list[int]:
    return [each.leader for each in described(cluster, topic)]


def test_preferred_leaders_lead_again_after_an_election(
    cluster: Cluster, elections: KafkaTool, topic: str, written: WriteJson
) -> None:
    create_replicated(cluster, topic, assignment=[[3, 1, 2], [1, 2, 3]])
    preferred = ("--election-type", "preferred", "--topic", topic, "--partition")
    assert elections.printed(*preferred, "0") == f"Valid replica already elected for partitions {topic}-0\n"

    cluster.stop_node(3)
    wait_until(lambda: leaders(cluster, topic)[0] in (1, 2), "somebody else leads")
    cluster.start_node(3)
    make_whole(cluster)
    file = written({"partitions": [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]})
    assert elections.printed("--election-type", "PREFERRED", "--path-to-json-file", file) == (
        f"Successfully completed leader election (PREFERRED) for partitions {topic}-0\n"
        f"Valid replica already elected for partitions {topic}-1\n"
    )
    wait_until(lambda: leaders(cluster, topic) == [3, 1], "the preferred replicas lead")
    assert elections.printed("--election-type", "PREFERRED", "--all-topic-partitions") == ""

    missing = elections("--election-type", "UNCLEAN", "--topic", topic, "--partition", "7")
    assert (missing.code, missing.out, missing.complaint) == (
        1,
        (
            f"Error completing leader election (UNCLEAN) for partition: {topic}-7: "
            f"org.apache.kafka.common.errors.UnknownTopicOrPartitionException: No such partition as {topic}-7\n"
        ),
        "1 replica(s) could not be elected",
    )


def test_the_older_election_tool_elects_the_preferred_leaders(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], topic: str, written: WriteJson
) -> None:
    create_replicated(cluster, topic, assignment=[[1, 2, 3]])
    file = written({"partitions": [{"topic": topic, "partition": 0}]})
    words = ("--bootstrap-server", cluster.bootstrap, "--path-to-json-file", file)
    done = run_tool(capsys, "kafka-preferred-replica-election", *words)
    assert (done.code, done.out) == (0, f"Preferred replica already elected for partitions {topic}-0\n")


def test_partitions_move_as_a_tutorial_moves_them(
    cluster: Cluster, moves: KafkaTool, topic: str, written: WriteJson, capsys: pytest.CaptureFixture[str]
) -> None:
    create_replicated(cluster, topic, assignment=[[1, 2, 3], [2, 3, 1]])
    produce(running(cluster), topic, [b"one"] * 10)
    topics = written({"topics": [{"topic": topic}], "version": 1})

    generated = moves.printed("--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3")
    current, proposed = (json.loads(line) for line in generated.splitlines() if line.startswith("{"))
    assert [each["replicas"] for each in current["partitions"]] == [[1, 2, 3], [2, 3, 1]]
    assert all(folder.startswith("/") for each in current["partitions"] for folder in each["log_dirs"])
    assert [sorted(each["replicas"]) for each in proposed["partitions"]] == [[1, 2, 3]] * 2
    assert {folder for each in proposed["partitions"] for folder in each["log_dirs"]} == {"any"}

    wanted = written(plan(topic, [3, 1], [1, 2, 3]))
    executed = moves.printed("--execute", "--reassignment-json-file", wanted, "--throttle", "100000")
    head, shown, *tail = (line for line in executed.splitlines() if line)
    assert head == "Current partition replica assignment"
    assert json.loads(shown) == current
    assert tail == [
        "Save this to use as the --reassignment-json-file option during rollback",
        (
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
            "removed."
        ),
        "The inter-broker throttle limit was set to 100000 B/s",
        f"Successfully started partition reassignments for {topic}-0,{topic}-1",
    ]
    assert "leader.replication.throttled.replicas=0:1,0:2,0:3,1:1,1:2,1:3" in settings_of(
        moves, cluster, "topics", topic, capsys
    )
    completed = "".join(f"Reassignment of partition {topic}-{number} is completed.\n" for number in range(2))
    verify = ("--verify", "--reassignment-json-file", wanted)
    wait_until(lambda: completed in moves.printed(*verify, "--preserve-throttles"), "the partitions are moved")
    assert "follower.replication.throttled.rate=100000" in settings_of(moves, cluster, "brokers", "1", capsys)
    assert moves.printed(*verify) == (f"Status of partition reassignment:\n{completed}\n{CLEARED.format(topic=topic)}")
    assert "throttled" not in settings_of(moves, cluster, "topics", topic, capsys)
    assert "throttled" not in settings_of(moves, cluster, "brokers", "1", capsys)

    refused = moves(
        "--execute", "--disallow-replication-factor-change", "--reassignment-json-file", written(plan(topic, [3]))
    )
    assert refused.code == 1
    assert refused.lines[-2:] == [
        "Error reassigning partition(s):",
        f"{topic}-0: The replication factor is changed from 2 to 1",
    ]


def test_a_move_is_listed_limited_anew_and_cancelled_while_it_is_under_way(
    cluster: Cluster, moves: KafkaTool, topic: str, written: WriteJson, capsys: pytest.CaptureFixture[str]
) -> None:
    create_replicated(cluster, topic, assignment=[[1, 2, 3]])
    alone = written(plan(topic, [1]))
    moves.printed("--execute", "--reassignment-json-file", alone)
    wait_until(lambda: list(described(cluster, topic)[0].replicas) == [1], "one replica is left")
    produce(running(cluster), topic, [b"x" * 10_000] * 500)
    wanted = written(plan(topic, [2]))
    execute = ("--execute", "--reassignment-json-file", wanted, "--throttle")
    moves.printed(*execute, "1000")

    listed = f"Current partition reassignments:\n{topic}-0: replicas: 2,1. adding: 2. removing: 1.\n"
    assert moves.printed("--list") == listed
    at_controllers = ("--bootstrap-controller", cluster.bootstrap_controllers)
    assert run_tool(capsys, "kafka-reassign-partitions", *at_controllers, "--list").out == listed
    again = moves(*execute, "2000")
    assert (again.code, again.out.partition(".")[0]) == (
        1,
        "Cannot execute because there is an existing partition assignment",
    )
    assert "The inter-broker throttle limit was set to 2000 B/s\n" in moves.printed(*execute, "2000", "--additional")
    verify = ("--verify", "--reassignment-json-file", wanted)
    assert moves.printed(*verify) == (
        f"Status of partition reassignment:\nReassignment of partition {topic}-0 is still in progress.\n\n"
    )
    cancelled = moves.printed("--cancel", "--reassignment-json-file", wanted)
    assert cancelled == (
        f"Successfully cancelled partition reassignment for: {topic}-0\n"
        f"None of the specified partition moves are active.{CLEARED.format(topic=topic)}"
    )
    assert moves.printed("--list") == "No partition reassignments found.\n"
    assert f"There is no active reassignment of partition {topic}-0, but replica set is 1 rather than 2.\n" in (
        moves.printed(*verify, "--preserve-throttles")
    )


def test_a_replica_moves_to_another_folder_of_its_broker(
    cluster: Cluster, moves: KafkaTool, topic: str, written: WriteJson
) -> None:
    create_replicated(cluster, topic, assignment=[[1, 2, 3]])
    shown = moves("--execute", "--reassignment-json-file", written(plan(topic, [1]))).out
    folder = json.loads(shown.splitlines()[2])["partitions"][0]["log_dirs"][0]
    wait_until(lambda: list(described(cluster, topic)[0].replicas) == [1], "one replica is left")
    (target,) = {str(cluster[1].data_dir), str(cluster.folder / "more-1")} - {folder}

    wanted = written(plan(topic, [1], log_dirs=[target]))
    verify = ("--verify", "--reassignment-json-file", wanted, "--preserve-throttles")
    stays = f"Partition {topic}-0 on broker 1 is not being moved from log dir {folder} to {target}."
    assert moves.printed(*verify).splitlines()[-1] == stays
    started = moves.printed(
        "--execute", "--reassignment-json-file", wanted, "--replica-alter-log-dirs-throttle", "1000000"
    )
    assert started.endswith(
        "The replica-alter-dir throttle limit was set to 1000000 B/s\n"
        f"Successfully started partition reassignment for {topic}-0\n"
        f"Successfully started moving log directory to {target} for replica {topic}-0 with broker 1 \n"
    )
    done = f"Reassignment of replica {topic}-0-1 completed successfully."
    wait_until(lambda: moves.printed(*verify).splitlines()[-1] == done, "the replica is moved")

    nowhere = moves("--execute", "--reassignment-json-file", written(plan(topic, [1], log_dirs=["/nowhere"])))
    assert (nowhere.code, nowhere.lines[-1]) == (1, f"Error: Failed to alter dir for {topic}-0-1")


def test_a_plan_that_cannot_be_is_refused(cluster: Cluster, moves: KafkaTool, topic: str, written: WriteJson) -> None:
    create_replicated(cluster, topic, assignment=[[1, 2, 3]])
    unknown = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
    doubled = "Partition replica lists may not contain duplicate entries"
    uneven = "Size of replicas list [1, 2] is different from size of log dirs list [a] for partition"
    for content, complaint in (
        (plan("nowhere", [1]), f"{unknown}: Topic nowhere not found."),
        (plan(topic, [1], [2]), f"{unknown}: Unable to find partition: {topic}-1"),
        (plan(topic, [9, 1]), "Unknown broker id 9"),
        (plan(topic, [1, 1]), f"{doubled}: {topic}-0 contains multiple entries for 1"),
        (plan(topic), "Partition reassignment list cannot be empty"),
        (plan(topic, []), "Partition replica list cannot be empty"),
        (plan(topic, [1, 2], log_dirs=["a"]), f"{uneven} {topic}-0"),
        ({"version": 2}, "Not supported version field value 2"),
        ([], "Expected JSON object, received []"),
    ):
        refused = moves("--execute", "--reassignment-json-file", written(content))
        assert (refused.code, refused.out) == (1, f"Error: {complaint}\n")
    for brokers, complaint in (
        ("8,9", "All brokers are currently fenced, or have all their log directories cordoned."),
        ("2,2", "Broker list contains duplicate entries: [2]"),
        ("2,x", 'For input string: "x"'),
    ):
        topics = written({"topics": [{"topic": topic}]})
        refused = moves("--generate", "--broker-list", brokers, "--topics-to-move-json-file", topics)
        assert (refused.code, refused.out) == (1, f"Error: {complaint}\n")
    gone = moves("--verify", "--reassignment-json-file", written(plan("nowhere", [1])))
    assert (gone.code, gone.lines[-1]) == (1, f"Error: {unknown}: The topic 'nowhere' does not exist.")


def test_a_plan_for_a_broker_that_is_gone_says_so_when_its_throttles_cannot_be_taken_back(
    cluster: Cluster, moves: KafkaTool, topic: str, written: WriteJson, tmp_path: Path
) -> None:
    create_replicated(cluster, topic, assignment=[[1, 2, 3]])
    hasty = tmp_path / "hasty.properties"
    hasty.write_text("default.api.timeout.ms=500\nrequest.timeout.ms=400\n")
    file = written(plan(topic, [9]))
    done = moves("--verify", "--reassignment-json-file", file, "--command-config", str(hasty))
    assert (done.code, done.lines[-1]) == (
        1,
        (
            "Error: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. "
            "Call: incrementalAlterConfigs"
        ),
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"),
        (["--execute"], 'Missing required argument "[reassignment-json-file]"'),
        (["--list", "--throttle", "1"], 'Option "[throttle]" can\'t be used with action "[list]"'),
        (
            ["--list", "--bootstrap-controller", "c:1"],
            "Please don't specify both --bootstrap-server and --bootstrap-controller",
        ),
        (["--lst"], "lst is not a recognized option"),
    ],
)
def test_flags_that_make_no_sense_together_are_refused(moves: KafkaTool, words: list[str], complaint: str) -> None:
    refused = moves(*words)
    assert (refused.code, refused.out, refused.complaint) == (1, "", complaint)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--election-type", "preferred"], "One and only one of the following options is required: "),
        (["--all-topic-partitions"], "Missing required option(s): election-type"),
        (["--election-type", "any", "--all-topic-partitions"], "Cannot parse argument 'any' of option election-type"),
        (["--election-type", "preferred", "--topic", "t"], "Missing required option(s): partition"),
        (
            ["--election-type", "preferred", "--path-to-json-file", "/nonexistent"],
            "java.io.IOException: Unable to read file /nonexistent",
        ),
    ],
)
def test_an_election_that_makes_no_sense_is_refused(elections: KafkaTool, words: list[str], complaint: str) -> None:
    refused = elections(*words)
    assert (refused.code, refused.out) == (1, "")
    assert re.match(re.escape(complaint), refused.complaint)
