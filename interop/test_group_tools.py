"""kafka-consumer-groups and kafka-groups: groups seen, their places reset in every way, groups deleted."""

from __future__ import annotations

import contextlib
import csv
import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.clients.adapter import MemberOptions, Message
from tests.clients.members import Member, receive
from tests.clients.with_confluent import ConfluentClient, ConfluentGroupConsumer, member_config
from tests.wire.connection import Connection
from tests.wire.groups import await_coordinator

from interop.kafka_tools import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import Peer

    from interop.kafka_tools import KafkaTools

PARTITIONS, RECORDS, PLACE = 2, 10, 4
SPACING = timedelta(minutes=10)
CLASSIC_ONLY = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
AGE = SPACING * RECORDS
"""How long ago the first record was written, by its timestamp; each later one has the spacing between."""


class ReadTopic(NamedTuple):
    """A topic, and a group without members that has read some of it."""

    topic: str
    group: str
    first_record: datetime


@pytest.fixture(scope="module")
def client(peer: Peer) -> ConfluentClient:
    return ConfluentClient(peer.bootstrap)


@pytest.fixture
def read_topic(peer: Peer, client: ConfluentClient, topic: str, group: str) -> ReadTopic:
    client.create_topic(topic, partitions=PARTITIONS)
    start = datetime.now(UTC) - AGE
    times = [int((start + i * SPACING).timestamp() * 1000) for i in range(RECORDS)]
    for partition in range(PARTITIONS):
        client.produce(topic, [Message(b"value", timestamp_ms=each) for each in times], partition=partition)
    # librdkafka looks three times for the coordinator, and then for ever: while its topic is made that is too few.
    with Connection(peer.port) as connection:
        await_coordinator(connection, group)
    client.alter_offsets(group, {(topic, partition): PLACE for partition in range(PARTITIONS)})
    return ReadTopic(topic, group, start)


@contextlib.contextmanager
def joined(peer: Peer, read: ReadTopic, protocol: str = "classic") -> Iterator[Member]:
    """A member of the group that has received all there is."""
    config = member_config(peer.bootstrap, read.group, MemberOptions(client_id="someone"))
    if protocol == "consumer":
        config = {key: value for key, value in config.items() if key not in CLASSIC_ONLY}
        config["group.protocol"] = "consumer"
    with contextlib.closing(Member(lambda: ConfluentGroupConsumer(config, [read.topic]))) as member:
        receive([member], PARTITIONS * (RECORDS - PLACE))
        yield member


def reset(tools: KafkaTools, read: ReadTopic, *how: str) -> dict[int, int]:
    """What the tool says it has reset, by partition."""
    options = ("--group", read.group, "--topic", read.topic, "--reset-offsets", *how)
    rows = table(tools.run("kafka-consumer-groups", *options), "GROUP")
    assert {(row["GROUP"], row["TOPIC"]) for row in rows} == {(read.group, read.topic)}
    return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows}


def places(client: ConfluentClient, read: ReadTopic) -> dict[int, int]:
    return {partition: offset for (_, partition), offset in client.committed_offsets(read.group).items()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_is_listed_and_described(
    tools: KafkaTools, peer: Peer, read_topic: ReadTopic, protocol: str
) -> None:
    group = ("--describe", "--group", read_topic.group)
    with joined(peer, read_topic, protocol) as member:
        member.commit({(read_topic.topic, 0): 6, (read_topic.topic, 1): RECORDS})
        listed = table(tools.run("kafka-consumer-groups", "--list", "--state"), "GROUP")
        kinds = table(tools.run("kafka-groups", "--list"), "GROUP")
        offsets = table(tools.run("kafka-consumer-groups", *group), "GROUP")
        (told,) = table(tools.run("kafka-consumer-groups", *group, "--members", "--verbose"), "GROUP")
        (state,) = table(tools.run("kafka-consumer-groups", *group, "--state"), "GROUP")
    assert {"GROUP": read_topic.group, "STATE": "Stable"} in listed
    assert {"GROUP": read_topic.group, "TYPE": protocol.capitalize(), "PROTOCOL": "consumer"} in kinds
    assert [(row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in offsets] == [
        ("6", "10", "4"),
        ("10", "10", "0"),
    ]
    assert {(row["HOST"], row["CLIENT-ID"]) for row in offsets} == {("/127.0.0.1", "someone")}
    assert (told["CLIENT-ID"], told["#PARTITIONS"]) == ("someone", "2")
    assert told["CURRENT-ASSIGNMENT"] == f"{read_topic.topic}:0,1"
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    assert state["ASSIGNMENT-STRATEGY"] == {"classic": "range", "consumer": "uniform"}[protocol]


def test_a_group_with_members_cannot_be_reset_or_deleted(
    tools: KafkaTools, peer: Peer, client: ConfluentClient, read_topic: ReadTopic
) -> None:
    of_group = ("--group", read_topic.group)
    of_topic = (*of_group, "--topic", read_topic.topic)
    with joined(peer, read_topic):
        refused_reset = tools.run("kafka-consumer-groups", *of_topic, "--reset-offsets", "--to-earliest", "--execute")
        refused_offsets = tools.run("kafka-consumer-groups", *of_topic, "--delete-offsets")
        refused_group = tools.run("kafka-consumer-groups", *of_group, "--delete")
    assert "is inactive, but the current state is Stable" in refused_reset
    assert "the consumer group is actively subscribed to it" in refused_offsets
    assert "GroupNotEmptyException" in refused_group
    assert places(client, read_topic) == {0: PLACE, 1: PLACE}


@pytest.mark.parametrize(
    ("how", "place"),
    [
        ("--to-earliest", 0),
        ("--to-latest", RECORDS),
        ("--to-current", PLACE),
        ("--to-offset 7", 7),
        ("--to-offset 700", RECORDS),
        ("--shift-by 2", PLACE + 2),
        ("--shift-by -3", PLACE - 3),
        ("--shift-by -100", 0),
        ("--by-duration PT75M", 3),
    ],
)
def test_a_place_is_reset(
    tools: KafkaTools, client: ConfluentClient, read_topic: ReadTopic, how: str, place: int
) -> None:
    everywhere = dict.fromkeys(range(PARTITIONS), place)
    assert reset(tools, read_topic, *how.split(), "--execute") == everywhere
    assert places(client, read_topic) == everywhere


def test_a_place_is_reset_to_a_time(tools: KafkaTools, client: ConfluentClient, read_topic: ReadTopic) -> None:
    between_records = read_topic.first_record + 5.5 * SPACING
    when = between_records.strftime("%Y-%m-%dT%H:%M:%S.000")
    assert reset(tools, read_topic, "--to-datetime", when, "--execute") == {0: 6, 1: 6}
    assert places(client, read_topic) == {0: 6, 1: 6}


def test_a_reset_is_tried_out_exported_and_done_from_a_file(
    tools: KafkaTools, client: ConfluentClient, read_topic: ReadTopic, tmp_path: Path
) -> None:
    assert reset(tools, read_topic, "--to-latest", "--dry-run") == {0: RECORDS, 1: RECORDS}
    assert places(client, read_topic) == {0: PLACE, 1: PLACE}
    of_group = ("--group", read_topic.group, "--topic", read_topic.topic, "--reset-offsets")
    exported = tools.run("kafka-consumer-groups", *of_group, "--to-current", "--export")
    rows = [row for row in csv.reader(exported.splitlines()) if row]
    assert sorted(rows) == [[read_topic.topic, "0", str(PLACE)], [read_topic.topic, "1", str(PLACE)]]
    file = tmp_path / "places.csv"
    file.write_text(f"{read_topic.topic},0,1\n{read_topic.topic},1,9\n")
    assert reset(tools, read_topic, "--from-file", str(file), "--execute") == {0: 1, 1: 9}
    assert places(client, read_topic) == {0: 1, 1: 9}


def test_offsets_and_groups_are_deleted(tools: KafkaTools, client: ConfluentClient, read_topic: ReadTopic) -> None:
    one_partition = f"{read_topic.topic}:1"
    deleted = tools.run(
        "kafka-consumer-groups", "--group", read_topic.group, "--topic", one_partition, "--delete-offsets"
    )
    assert [row["STATUS"] for row in table(deleted, "TOPIC")] == ["Successful"]
    assert places(client, read_topic) == {0: PLACE}
    assert "was successful" in tools.run("kafka-consumer-groups", "--group", read_topic.group, "--delete")
    assert read_topic.group not in tools.run("kafka-consumer-groups", "--list").split()
    gone = tools.run("kafka-consumer-groups", "--group", read_topic.group, "--describe")
    assert f"Group {read_topic.group} not found" in gone


def test_the_formatters_of_the_console_consumer_read_the_offsets_topic(
    tools: KafkaTools, peer: Peer, read_topic: ReadTopic
) -> None:
    with joined(peer, read_topic) as member:
        member.commit({(read_topic.topic, 0): 8})
    committed = [each for each in formatted(tools, "OffsetsMessageFormatter") if is_of(each, read_topic.group)]
    places = [(each["key"]["data"]["partition"], each["value"]["data"]["offset"]) for each in committed]
    assert sorted(places[:PARTITIONS]) == [(0, PLACE), (1, PLACE)]
    assert places[PARTITIONS:] == [(0, 8)]
    written_ms = committed[-1]["value"]["data"]["commitTimestamp"]
    assert abs(written_ms - time.time() * 1000) < 300_000
    groups = [each for each in formatted(tools, "GroupMetadataMessageFormatter") if is_of(each, read_topic.group)]
    generations = [each["value"]["data"] for each in groups if each["value"] is not None]
    assert ("consumer", "range", 1) in [
        (each["protocolType"], each["protocol"], len(each["members"])) for each in generations
    ]


def is_of(record: dict[str, Any], group: str) -> bool:
    return bool(record["key"]["data"]["group"] == group)


def formatted(tools: KafkaTools, formatter: str) -> list[dict[str, Any]]:
    """The records of the topic of groups as a formatter prints them, one after the other on a line without end."""
    shown = ("--formatter", f"org.apache.kafka.tools.consumer.{formatter}")
    read = ("--from-beginning", "--timeout-ms", "5000", "--command-property", "enable.auto.commit=false")
    text = tools.run("kafka-console-consumer", "--topic", "__consumer_offsets", *shown, *read)
    return json.loads(f"[{text.strip().replace('}{', '},{')}]")  # type: ignore[no-any-return]
