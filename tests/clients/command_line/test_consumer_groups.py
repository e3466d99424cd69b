"""`kafka-consumer-groups` on a real node. The expected texts are what Apache Kafka 4.3.1 printed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import pytest

from barnabas.client.client_settings import ClientSettings
from barnabas.client.cluster import Cluster
from barnabas.client.offset_queries import commit_offsets
from tests.clients.adapter import MemberOptions, Message, values
from tests.clients.command_line.kafka_tool import KafkaTool, run_tool
from tests.clients.members import Members, receive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.clients.with_confluent import ConfluentClient
    from tests.peers import Peer

FAILED = "\nError: Executing consumer group command failed due to "
HEADING = (
    "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
    "CONSUMER-ID     HOST            CLIENT-ID"
)
PLANNED = "GROUP           TOPIC           PARTITION  NEW-OFFSET"
Protocol = Literal["classic", "consumer"]
SPACING = timedelta(minutes=10)


@pytest.fixture
def groups(group_node: Peer, capsys: pytest.CaptureFixture[str]) -> KafkaTool:
    return KafkaTool("kafka-consumer-groups", group_node, capsys)


@pytest.fixture
def cluster(group_node: Peer) -> Iterator[Cluster]:
    with Cluster.connect(ClientSettings.from_options({"bootstrap.servers": group_node.bootstrap})) as connected:
        yield connected


@pytest.fixture
def read(group_confluent: ConfluentClient, cluster: Cluster, topic: str, group: str) -> str:
    """A topic of which the group has read four of seven records."""
    group_confluent.create_topic(topic)
    start = datetime.now(UTC) - 7 * SPACING
    times = [int((start + i * SPACING).timestamp() * 1000) for i in range(7)]
    group_confluent.produce(topic, [Message(b"value", timestamp_ms=each) for each in times], partition=0)
    commit_offsets(cluster, group, {(topic, 0): 4})
    return topic


def reset(groups: KafkaTool, group: str, topic: str, *how: str) -> int:
    """The new offset of the only partition, as it is told."""
    printed = groups.printed("--reset-offsets", "--group", group, "--topic", topic, *how)
    heading, row = printed.strip("\n").splitlines()[-2:]
    assert heading == PLANNED
    assert row.split()[:3] == [group, topic, "0"]
    return int(row.split()[3])


def test_a_group_catches_up_and_is_set_back(
    groups: KafkaTool, read: str, group: str, group_confluent: ConfluentClient, cluster: Cluster, members: Members
) -> None:
    """As tutorials show it: a lag of 2 falls to 0, then the group starts over."""
    commit_offsets(cluster, group, {(read, 0): 5})
    idle = groups("--describe", f"--group={group}")
    assert (idle.code, idle.err) == (0, f"\nConsumer group '{group}' has no active members.\n")
    row = f"{group:<15} {read:<15} 0          5               7               2"
    assert idle.out == f"\n{HEADING}\n{row}               -               -               -\n"

    member = members.join(group_confluent, group, [read], MemberOptions(client_id="someone"))
    receive([member], 2)
    member.commit()
    with_member = groups.printed("--describe", "--group", group).splitlines()[2]
    assert re.fullmatch(rf"{group} +{read} +0 +7 +7 +0 +someone-[\w-]+ +/127.0.0.1 +someone", with_member)
    refused = groups("--reset-offsets", "--group", group, "--topic", read, "--to-earliest", "--execute")
    assert refused.out == (
        f"\nError: Assignments can only be reset if the group '{group}' is inactive, but the current state is Stable.\n"
        f"\n{PLANNED}\n"
    )
    member.close()

    again = groups.printed("--reset-offsets", "--group", group, "--topic", read, "--to-earliest", "--execute")
    assert again == f"\n{PLANNED}\n{group:<15} {read:<15} 0          0\n"
    assert group_confluent.committed_offsets(group) == {(read, 0): 0}


def test_shifts_end_where_the_partition_does(
    groups: KafkaTool, read: str, group: str, group_confluent: ConfluentClient
) -> None:
    of_group = ("--reset-offsets", "--group", group, "--topic", read, "--execute")
    groups.printed(*of_group, "--to-latest")
    ahead = groups(*of_group, "--shift-by", "2")
    assert ahead.complaint == (
        f"WARN New offset (9) is higher than latest offset for topic partition {read}-0. Value will be set to 7"
    )
    assert ahead.lines[-1].split()[-1] == "7"
    assert reset(groups, group, read, "--shift-by", "-2", "--execute") == 5
    back = groups(*of_group, "--shift-by", "-100")
    assert "New offset (-95) is lower than earliest offset" in back.err
    assert group_confluent.committed_offsets(group) == {(read, 0): 0}


@pytest.mark.parametrize(
    ("how", "place"),
    [
        (("--to-current",), 4),
        (("--to-offset", "6"), 6),
        (("--by-duration", "PT35M"), 4),
        (("--to-datetime", "2020-01-01T00:00:00.000"), 0),
        (("--to-datetime", "2020-01-01T00:00:00.000+01:00"), 0),
    ],
)
def test_a_plan_is_shown_and_not_carried_out(
    groups: KafkaTool, read: str, group: str, group_confluent: ConfluentClient, how: tuple[str, ...], place: int
) -> None:
    assert reset(groups, group, read, *how, "--dry-run") == place
    assert reset(groups, group, read, *how) == place
    assert group_confluent.committed_offsets(group) == {(read, 0): 4}


def test_a_time_after_all_records_means_the_end(groups: KafkaTool, read: str, group: str) -> None:
    of_group = ("--reset-offsets", "--group", group, "--topic", read, "--dry-run")
    printed = groups.printed(*of_group, "--by-duration", "PT0S")
    assert printed.startswith(
        f"\nWarn: Partition 0 from topic {read} is empty. Falling back to latest known offset.\n\n{PLANNED}"
    )


def test_offsets_are_exported_and_imported(
    groups: KafkaTool, read: str, group: str, group_confluent: ConfluentClient, cluster: Cluster, tmp_path: Path
) -> None:
    of_group = ("--reset-offsets", "--group", group)
    exported = groups.printed(*of_group, "--all-topics", "--to-current", "--export", "--dry-run")
    assert exported == f"{read},0,4\n\n"
    plan = tmp_path / "offsets.csv"
    plan.write_text(f"{read},0,2\n")
    groups.printed(*of_group, "--from-file", str(plan), "--execute")
    assert group_confluent.committed_offsets(group) == {(read, 0): 2}

    other = f"{group}-other"
    commit_offsets(cluster, other, {(read, 0): 1})
    both = groups.printed(*of_group, "--group", other, "--all-topics", "--to-current", "--export", "--dry-run")
    assert sorted(both.split()) == [f"{group},{read},0,2", f"{other},{read},0,1"]
    plan.write_text(both.strip())
    assert groups(*of_group, "--group", other, "--from-file", str(plan), "--execute").code == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{topic},0,1\n\n{topic},0,2", "No content to map due to end-of-input"),
        ("{topic},0,1\n{topic},x,1", 'Cannot deserialize value of type `int` from String "x": not a valid `int` value'),
        ("{topic},0,1\n{topic},0,1,9", 'Too many entries: expected at most 3 (value #3 (1 chars) "9")'),
        ('"{topic},0,1', "Missing closing quote for value"),
        ("absent,0,1", "metadata for topic `absent` could not be found"),
    ],
)
def test_a_file_that_is_no_plan_is_said_to_be_so(
    groups: KafkaTool, read: str, group: str, tmp_path: Path, text: str, reason: str
) -> None:
    plan = tmp_path / "offsets.csv"
    plan.write_text(text.format(topic=read))
    refused = groups("--reset-offsets", "--group", group, "--from-file", str(plan), "--dry-run")
    assert refused.code == 0
    assert refused.out.startswith(FAILED)
    assert refused.out.endswith(f"{reason}\n")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_the_state_of_a_group_are_shown(
    groups: KafkaTool, read: str, group: str, group_confluent: ConfluentClient, members: Members, protocol: Protocol
) -> None:
    options = MemberOptions(client_id="someone", protocol=protocol, instance_id="first")
    receive([members.join(group_confluent, group, [read], options)], 3)

    heading, row = groups.printed("--describe", "--group", group, "--members", "--verbose").splitlines()[1:]
    epochs = ["-", f"{read}:0", "-", "-"] if protocol == "classic" else ["N", f"{read}:0", "N", f"{read}:0"]
    columns = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    columns += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    assert heading.split() == columns
    cells = re.sub(r"\b\d+( +topic)", r"N\1", row).split()
    assert [cells[0], *cells[2:]] == [group, "first", "/127.0.0.1", "someone", "1", *epochs]

    state = groups.printed("--describe", "--group", group, "--state").splitlines()[2].split()
    assert state[2:] == ["(1)", {"classic": "range", "consumer": "uniform"}[protocol], "Stable", "1"]
    listed = groups.printed("--list", "--state", "stable", "--type", protocol).splitlines()
    assert [group, protocol.capitalize(), "Stable"] in [line.split() for line in listed]


def test_offsets_and_groups_are_deleted(
    groups: KafkaTool, read: str, group: str, group_confluent: ConfluentClient
) -> None:
    deleted = groups.printed("--delete-offsets", "--group", group, "--topic", read)
    assert deleted == (
        f"Request succeeded for deleting offsets from group {group}.\n\n"
        f"TOPIC           PARTITION  STATUS         \n{read:<15} 0          Successful     \n"
    )
    assert group_confluent.committed_offsets(group) == {}

    gone = groups("--delete-offsets", "--group", "nobody", "--topic", read)
    assert gone.out.startswith("\nError: The group id does not exist.\n")
    refused = groups("--delete", "--group", "nobody")
    assert (refused.code, refused.out) == (
        0,
        (
            "\nError: Deletion of some consumer groups failed:\n* Group 'nobody' could not be deleted due to: "
            "org.apache.kafka.common.errors.GroupIdNotFoundException: The group id does not exist.\n"
        ),
    )


def test_a_group_that_is_deleted_is_gone(groups: KafkaTool, read: str, group: str) -> None:
    done = groups.printed("--delete", "--group", group)
    assert done == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert group not in groups.printed("--list").splitlines()
    missing = groups("--describe", "--group", group)
    assert (missing.code, missing.out) == (
        0,
        f"{FAILED}org.apache.kafka.common.errors.GroupIdNotFoundException: Group {group} not found.\n",
    )


def test_a_consumer_without_a_group_is_not_listed(
    groups: KafkaTool, topic: str, group_confluent: ConfluentClient
) -> None:
    before = groups.printed("--list")
    group_confluent.create_topic(topic)
    group_confluent.produce(topic, values(1))
    with group_confluent.consumer(topic, "beginning") as consumer:
        consumer.receive(1)
    assert groups.printed("--list") == before


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("foo.*", "valid."),
        ("[", "invalid: missing closing ]."),
        ("a**", "invalid: invalid nested repetition operator."),
        ("(?=x)", "invalid: invalid or unsupported Perl syntax."),
        ("(?P<n>a)(?P<n>b)", "invalid: duplicate capture group name."),
    ],
)
def test_regular_expressions_are_those_of_re2(
    capsys: pytest.CaptureFixture[str], expression: str, verdict: str
) -> None:
    done = run_tool(capsys, "kafka-consumer-groups", "--validate-regex", expression)
    assert (done.code, done.out) == (0, f"The regular expression `{expression}` is {verdict}\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            [],
            (
                "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, "
                "--delete-offsets, --validate-regex"
            ),
        ),
        (["--describe"], "Option [describe] takes one of these options: [group], [all-groups]"),
        (["--list", "--members"], "Option(s) [members] are unavailable given other options on the command line"),
        (["--list", "--group", "g"], 'Option "[group]" can\'t be used with option "[list]"'),
        (["--describe", "--group", "g", "--state", "x"], "Option [describe] does not take a value for [state]"),
        (
            ["--reset-offsets", "--group", "g", "--execute", "--dry-run"],
            "Option [reset-offsets] only accepts one of [execute] and [dry-run]",
        ),
        (
            ["--reset-offsets", "--group", "g", "--dry-run", "--to-latest", "--to-offset", "1"],
            'Option "[to-offset]" can\'t be used with option "[to-latest]"',
        ),
        (
            ["--reset-offsets", "--group", "g", "--dry-run", "--to-latest"],
            "One of the reset scopes should be defined: --all-topics, --topic.",
        ),
        (
            ["--reset-offsets", "--group", "g", "--dry-run", "--to-latest", "--topic", "t:x"],
            "Invalid partition 'x' specified in topic arg 't:x''",
        ),
        (["--grup", "g"], "grup is not a recognized option"),
    ],
)
def test_flags_that_make_no_sense_together_are_refused(groups: KafkaTool, words: list[str], complaint: str) -> None:
    refused = groups(*words)
    assert (refused.code, refused.out, refused.complaint) == (1, "", complaint)


def test_a_cluster_that_is_not_there_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["kafka-consumer-groups", "--timeout", "50", "--bootstrap-server"]
    silent = run_tool(capsys, *words, "127.0.0.1:1", "--describe", "--group", "g")
    assert (silent.code, silent.out) == (
        0,
        (
            f"{FAILED}org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. "
            "Call: describeConsumerGroups(api=FIND_COORDINATOR)\n"
        ),
    )
    nowhere = run_tool(capsys, *words, "nonsense", "--list")
    assert nowhere.out == f"{FAILED}Failed to create new KafkaAdminClient\n"


def test_flags_of_older_tools_are_taken(groups: KafkaTool, group: str, read: str) -> None:
    assert group in groups.printed("--new-consumer", "--list").splitlines()
