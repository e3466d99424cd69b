"""Groups and their offsets in the folder of a node: Kafka's tool decodes them, and Apache Kafka goes on with them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tools import apache_kafka

from tests.clients.adapter import ClientError, DescribedGroup, MemberOptions, values
from tests.clients.members import Members, owned, receive, settle
from tests.clients.with_confluent import ConfluentClient
from tests.nodes import Node
from tests.peers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka

GROUP, TOPIC = "kept-group", "kept"
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
STATIC = MemberOptions(instance_id="static", session_timeout_ms=300_000)
OFFSET_COMMIT, GROUP_METADATA = "1", "2"
"""The types of keys in the internal topic."""

_RECORD = re.compile(r" key: (\{.*?\}) payload: (.*)$", re.MULTILINE)


class GroupFolder(NamedTuple):
    """What a node left behind when it stopped, and what it said of its group before."""

    path: Path
    described: DescribedGroup
    offsets: dict[tuple[str, int], int]


@pytest.fixture(scope="module")
def group_folder(apache_kafka_runs: None, tmp_path_factory: pytest.TempPathFactory) -> GroupFolder:
    """A group with a static member, offsets of its own, one that was deleted, and a group that is gone."""
    path = tmp_path_factory.mktemp("groups") / "data"
    with Node(path, settings=SETTINGS) as node:
        client = ConfluentClient(node.bootstrap)
        client.create_topic(TOPIC, partitions=2)
        wait_until(lambda: TOPIC in client.topic_names(), "the topic is there")
        client.produce(TOPIC, values(10), partition=0)
        client.alter_offsets("gone", {(TOPIC, 0): 3})
        client.delete_group("gone")
        with contextlib.closing(Members()) as members:
            member = members.join(client, GROUP, [TOPIC], STATIC)
            receive([member], 10)
            member.commit({(TOPIC, 0): 7, (TOPIC, 1): 0})
        described, offsets = client.describe_group(GROUP), client.committed_offsets(GROUP)
    return GroupFolder(path, described, offsets)


def decoded(path: Path) -> dict[tuple[str, ...], Any]:
    """The last value of every key in the internal topic, None where it was deleted, as Kafka's tool reads them."""
    logs = [log for log in sorted(path.glob("__consumer_offsets-*/*.log")) if log.stat().st_size]
    assert logs
    tool = "org.apache.kafka.tools.DumpLogSegments"
    done = apache_kafka.run_tool(tool, "--offsets-decoder", "--files", ",".join(map(str, logs)))
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout
    state: dict[tuple[str, ...], Any] = {}
    for key_text, value_text in _RECORD.findall(done.stdout):
        key = json.loads(key_text)
        value = None if value_text == "<DELETE>" else json.loads(value_text)["data"]
        state[key["type"], *map(str, key["data"].values())] = value
    return state


def test_kafkas_tool_decodes_groups_and_offsets(group_folder: GroupFolder) -> None:
    state = decoded(group_folder.path)
    assert {key: value and value["offset"] for key, value in state.items() if key[0] == OFFSET_COMMIT} == {
        (OFFSET_COMMIT, GROUP, TOPIC, "0"): 7,
        (OFFSET_COMMIT, GROUP, TOPIC, "1"): 0,
        (OFFSET_COMMIT, "gone", TOPIC, "0"): None,
    }
    group = state[GROUP_METADATA, GROUP]
    assert (group["protocolType"], group["protocol"], group["generation"]) == ("consumer", "range", 1)
    assert [each["groupInstanceId"] for each in group["members"]] == ["static"]
    assert state[GROUP_METADATA, "gone"] is None


def is_loaded(client: ConfluentClient) -> bool:
    try:
        return client.describe_group(GROUP).state == "Stable"
    except ClientError:
        return False


@pytest.mark.timeout(240)
def test_kafka_goes_on_with_the_groups_of_a_folder_and_barnabas_after_it(
    group_folder: GroupFolder, tmp_path: Path
) -> None:
    """The static member finds its partitions and its place in both, without a rebalance."""
    path = tmp_path / "data"
    shutil.copytree(group_folder.path, path)
    with apache_kafka.KafkaNode(path, properties=SETTINGS) as kafka:
        client = ConfluentClient(kafka.bootstrap)
        wait_until(lambda: is_loaded(client), "Kafka has loaded the group")
        assert client.describe_group(GROUP) == group_folder.described
        assert client.committed_offsets(GROUP) == group_folder.offsets
        assert client.group_names() == {GROUP}
        with contextlib.closing(Members()) as members:
            member = members.join(client, GROUP, [TOPIC], STATIC)
            assert [record.offset for record in receive([member], 3)] == [7, 8, 9]
            member.commit({(TOPIC, 0): 9})
        left = client.describe_group(GROUP)
    with Node(path, settings=SETTINGS) as node:
        client = ConfluentClient(node.bootstrap)
        wait_until(lambda: is_loaded(client), "the node has loaded the group")
        assert client.describe_group(GROUP) == left
        assert client.committed_offsets(GROUP) == {(TOPIC, 0): 9, (TOPIC, 1): 0}
        with contextlib.closing(Members()) as members:
            member = members.join(client, GROUP, [TOPIC], STATIC)
            assert [record.offset for record in receive([member], 1)] == [9]
            settle([member], lambda: owned([member]) == [2], "it has its partitions")
