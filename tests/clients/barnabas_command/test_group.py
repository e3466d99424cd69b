"""`barnabas group` on a real node."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import pytest

from barnabas.client.offset_queries import commit_offsets, committed_offsets
from tests.clients.adapter import MemberOptions, Message
from tests.clients.barnabas_command.terminal import CTRL_C, Terminal
from tests.clients.members import Members, receive

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from tests.clients.barnabas_command.command import Barnabas
    from tests.clients.with_confluent import ConfluentClient

SPACING = timedelta(minutes=10)


@pytest.fixture
def read(group_confluent: ConfluentClient, cluster: Cluster, topic: str, group: str) -> str:
    """A topic of two partitions, of whose seven records the group has read four; they are ten minutes apart."""
    group_confluent.create_topic(topic, 2)
    start = datetime.now(UTC) - 7 * SPACING
    times = [int((start + i * SPACING).timestamp() * 1000) for i in range(7)]
    group_confluent.produce(topic, [Message(b"value", timestamp_ms=each) for each in times], partition=0)
    commit_offsets(cluster, group, {(topic, 0): 4})
    return topic


def committed(cluster: Cluster, group: str) -> dict[int, int]:
    return {partition: each.offset for (_, partition), each in committed_offsets(cluster, group).items()}


def test_a_lag_table_shows_every_partition(barnabas: Barnabas, read: str, group: str) -> None:
    heading, columns, row = barnabas.printed("group", "describe", group).splitlines()
    assert re.fullmatch(rf"{group}  classic  Empty  assignor none  coordinator 1 at \S+  members 0  lag 3", heading)
    assert columns.split() == ["topic", "partition", "committed", "end", "lag", "client", "host"]
    assert row.split() == [read, "0", "4", "7", "3", "-", "-"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_both_protocols_are_shown_with_what_they_read(
    barnabas: Barnabas,
    read: str,
    group: str,
    group_confluent: ConfluentClient,
    members: Members,
    protocol: Literal["classic", "consumer"],
) -> None:
    member = members.join(group_confluent, group, [read], MemberOptions(client_id="someone", protocol=protocol))
    receive([member], 3)
    member.commit()
    (described,) = barnabas.facts("group", "describe", group)
    assert (described["group"], described["type"].lower(), described["state"]) == (group, protocol, "Stable")
    assert described["lag"] == 0
    (shown,) = described["members"]
    assert (shown["client_id"], shown["host"]) == ("someone", "127.0.0.1")
    assert [each["partition"] for each in shown["partitions"]] == [0, 1]
    assert {each["member"] for each in described["partitions"]} == {shown["member"]}
    row = barnabas.printed("group", "members", group).splitlines()[2]
    assert re.search(rf"someone +127.0.0.1 +{'-' if protocol == 'classic' else '[0-9]+'} +2  {read}:0,1$", row)

    complaint = barnabas.complaint("group", "reset", group, "--topic", read, "--to", "end", "--yes")
    assert f"group {group!r} is in use (Stable)" in complaint
    assert "stop someone at 127.0.0.1 first" in complaint
    assert "has members: stop someone at 127.0.0.1" in barnabas.complaint("group", "delete", group, "--yes")
    forget = ("group", "delete-offsets", group, "--topic", read, "--yes")
    assert "members of the group read the topic" in barnabas.complaint(*forget)


def test_groups_are_listed_with_their_type_and_state(barnabas: Barnabas, read: str, group: str) -> None:
    assert re.search(rf"^{group} +\w+ +Empty +-$", barnabas.printed("group", "list"), re.MULTILINE)
    listed = {each["group"]: each for each in barnabas.facts("group", "list", "--state", "empty")}
    assert listed[group]["state"] == "Empty"
    assert group not in barnabas.printed("group", "list", "--state", "stable")


@pytest.mark.parametrize(
    ("how", "offset"),
    [
        (("--to", "beginning"), 0),
        (("--to", "end"), 7),
        (("--to", "current"), 4),
        (("--to", "6"), 6),
        (("--to", "99"), 7),
        (("--by", "-3"), 1),
        (("--by", "2"), 6),
        (("--to", "-35m"), 4),
        (("--to", "-1s"), 7),
        (("--to", "2020-02-02"), 0),
    ],
)
def test_a_group_goes_on_where_it_is_told_to(
    barnabas: Barnabas, read: str, group: str, cluster: Cluster, how: tuple[str, str], offset: int
) -> None:
    words = ("group", "reset", group, "--topic", f"{read}:0", *how)
    plan = barnabas.facts(*words, "--dry-run")
    assert (plan["done"], plan["partitions"][0]["now"], plan["partitions"][0]["then"]) == (False, 4, offset)
    assert committed(cluster, group)[0] == 4
    barnabas.printed(*words, "--yes")
    assert committed(cluster, group)[0] == offset


def test_a_plan_says_what_is_not_as_it_was_asked_for(barnabas: Barnabas, read: str, group: str) -> None:
    words = ("group", "reset", group, "--topic", read, "--dry-run")
    far = barnabas.printed(*words, "--to", "99").splitlines()
    assert far[0] == f"{group}: 2 partitions of {read}"
    assert far[2].split(maxsplit=5)[1:] == ["0", "4", "7", "+3", "there is no offset 99; this is the nearest"]
    assert far[3].split(maxsplit=5)[1:] == ["1", "-", "0", "-", "there is no offset 99; this is the nearest"]
    late = barnabas.printed(*words, "--to", "-1s")
    assert late.count("no record is so late; this is the end") == 2
    there = barnabas.printed("group", "reset", group, "--all-topics", "--to", "4")
    assert there.endswith("nothing is to be changed\n")


def test_nothing_is_changed_without_a_yes(barnabas: Barnabas, read: str, group: str, cluster: Cluster) -> None:
    words = ("group", "reset", group, "--topic", f"{read}:0", "--to", "beginning")
    assert barnabas.complaint(*words) == (
        "barnabas: nothing was changed: there is no terminal to ask at, and no --yes\n"
    )
    assert "with --json nobody is asked: add --yes" in barnabas.complaint(*words, "--json", code=2)
    for answer, code in ((b"\r", 1), (b"no\r", 1), (CTRL_C, 130)):
        with Terminal(*words, "--bootstrap-server", barnabas.bootstrap) as terminal:
            terminal.wait_for(r"Set 1 offset of .*\? \[y/N\] ")
            terminal.press(answer)
            assert terminal.end() == code
    assert committed(cluster, group) == {0: 4}
    with Terminal(*words, "--bootstrap-server", barnabas.bootstrap) as terminal:
        terminal.wait_for(r"\[y/N\] ")
        terminal.press(b"y\r")
        terminal.wait_for("set 1 offset of")
        assert terminal.end() == 0
    assert committed(cluster, group) == {0: 0}


def test_a_group_comes_with_its_first_offset_and_goes_with_its_last_words(
    barnabas: Barnabas, read: str, group: str, cluster: Cluster
) -> None:
    new = f"{group}-new"
    barnabas.printed("group", "reset", new, "--topic", f"{read}:0", "--to", "2", "--yes")
    assert committed(cluster, new) == {0: 2}
    assert barnabas.printed("group", "delete-offsets", new, "--topic", read, "--yes") == f"forgot 1 offset of {new}\n"
    barnabas.printed("group", "reset", new, "--topic", f"{read}:0", "--to", "3", "--yes")
    assert barnabas.facts("group", "delete", new, "--yes") == [new]
    assert new not in barnabas.printed("group", "list")
    assert f"group {new!r} does not exist" in barnabas.complaint("group", "delete", new, "--yes")
    assert barnabas.printed("group", "delete", new, "--yes", "--if-exists") == ""


def test_what_is_not_there_is_answered_with_the_nearest(barnabas: Barnabas, read: str, group: str) -> None:
    typed = f"x{group}"
    assert f"group {typed!r} does not exist (did you mean {group!r}?)" in barnabas.complaint("group", "describe", typed)
    complaint = barnabas.complaint("group", "reset", group, "--topic", f"{read}x", "--to", "end")
    assert complaint.startswith(f"barnabas: topic '{read}x' does not exist (did you mean ")
    absent = ("group", "reset", group, "--topic", f"{read}:7", "--to", "end")
    assert barnabas.complaint(*absent) == f"barnabas: topic {read!r} has 2 partitions (0 … 1), but no partition 7\n"
    uncounted = ("group", "reset", group, "--topic", f"{read}:1", "--by", "1")
    assert f"has no offset in {read}-1 to count from" in barnabas.complaint(*uncounted)
    uncommitted = ("group", "delete-offsets", group, "--topic", f"{read}:1", "--yes")
    assert f"has committed no offset for {read}-1" in barnabas.complaint(*uncommitted)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("reset", "g", "--topic", "t", "--to", "yesterday"), "'yesterday' is not valid: expected beginning, end"),
        (("reset", "g", "--topic", "t:a", "--to", "end"), "'t:a' is neither TOPIC nor TOPIC:0,1"),
        (("reset", "g", "--topic", "t"), "one of the arguments --to --by is required"),
        (("reset", "g", "--to", "end"), "one of the arguments --topic --all-topics is required"),
        (("reset", "g", "--topic", "t", "--to", "1", "--by", "1"), "not allowed with argument"),
        (("describe", "g", "--watch", "0"), "--watch needs a time"),
        (("descibe", "g"), "unknown action 'descibe' of `barnabas group`; did you mean 'describe'?"),
        (("describe", "g", "--client-config", "/nowhere"), "cannot read /nowhere"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_answered_in_one_line(
    barnabas: Barnabas, words: tuple[str, ...], complaint: str
) -> None:
    done = barnabas("group", *words)
    assert done.code == (1 if "cannot read" in complaint else 2)
    assert complaint in done.err
    assert done.err.count("\n") == 1


def test_an_address_where_nobody_answers_is_told_at_once() -> None:
    command = [sys.executable, "-m", "barnabas", "group", "list", "--bootstrap-server", "127.0.0.1:1"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=10)
    assert process.returncode == 1
    assert process.stderr == (
        "barnabas: cannot connect to 127.0.0.1:1: Connection refused "
        "(`barnabas start --listen 127.0.0.1:1` starts a node there)\n"
    )


def test_a_watched_group_is_drawn_again_and_leaves_the_terminal_as_it_was(
    barnabas: Barnabas, read: str, group: str, cluster: Cluster
) -> None:
    words = ("group", "describe", group, "--watch", "0.2", "--bootstrap-server", barnabas.bootstrap)
    with Terminal(*words) as terminal:
        at = terminal.wait_for(rf"{read} +0 +4 +7 +3 +- ")
        commit_offsets(cluster, group, {(read, 0): 6})
        at = terminal.wait_for(rf"{read} +0 +6 +7 +1 ", after=at)
        terminal.resize(60, 12)
        commit_offsets(cluster, group, {(read, 0): 7})
        terminal.wait_for(r"lag 0", after=at)
        terminal.press(CTRL_C)
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text
        assert terminal.is_as_before
    with Terminal(*words) as terminal:
        terminal.wait_for(r"lag 0")
        terminal.signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
        assert terminal.is_as_before


def test_a_watched_group_goes_into_a_pipe_as_lines_until_that_is_closed(
    barnabas: Barnabas, read: str, group: str
) -> None:
    command = [sys.executable, "-m", "barnabas", "group", "describe", group, "--watch", "0.05", "--json"]
    command += ["--bootstrap-server", barnabas.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in (process.stdout.readline(), process.stdout.readline()):
            assert json.loads(line)["groups"][0]["lag"] == 3
        process.stdout.close()
        assert process.wait(10) == 0
        assert process.stderr.read() == ""
