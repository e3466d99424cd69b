"""Consumers share the partitions of a topic as a group, and the group remembers how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import Assignor, Client, ClientError, MemberOptions, Message, TopicPartition, values
from tests.clients.members import Member, Members, is_shared, owned, receive, settle
from tests.clients.with_aiokafka import AiokafkaClient
from tests.clients.with_confluent import ConfluentClient
from tests.clients.with_kafka_python import KafkaPythonClient
from tests.peers import wait_until

if TYPE_CHECKING:
    from tests.peers import Peer

PARTITIONS = 4
INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID = 23, 82
LIBRDKAFKA_FATAL = -150
"""librdkafka's own code for an error that ends a client, whatever the broker's was."""


@pytest.fixture
def shared_topic(group_confluent: ConfluentClient, topic: str) -> str:
    """A topic for a group to share, empty."""
    create(group_confluent, topic, PARTITIONS)
    return topic


def create(client: Client, topic: str, partitions: int = 1) -> None:
    """Make a topic and wait until it is seen: librdkafka reports a subscription to one that is not there yet."""
    client.create_topic(topic, partitions=partitions)
    wait_until(lambda: topic in client.topic_names(), f"{topic} is there")


def fill(client: Client, topic: str, partitions: int = PARTITIONS) -> set[bytes | None]:
    """Ten records for each partition; their values."""
    written: set[bytes | None] = set()
    for partition in range(partitions):
        messages = [Message(f"{topic} {partition} {n}".encode()) for n in range(10)]
        client.produce(topic, messages, partition=partition)
        written |= {message.value for message in messages}
    return written


def test_members_share_the_partitions_as_they_come(
    group_client: Client, members: Members, shared_topic: str, group: str
) -> None:
    """4, then 2 and 2, then 1 each, then one member idle."""
    joined: list[Member] = []
    for count, expected in ((1, [4]), (2, [2, 2]), (4, [1, 1, 1, 1]), (5, [1, 1, 1, 1, 0])):
        while len(joined) < count:
            joined.append(members.join(group_client, group, [shared_topic]))
        settle(
            joined,
            lambda: is_shared(joined, shared_topic, PARTITIONS),
            f"{count} members have all partitions",
        )
        assert owned(joined) == expected
    written = fill(group_client, shared_topic)
    received = receive(joined, len(written))
    assert {record.value for record in received} == written


def test_a_member_that_leaves_hands_its_partitions_to_the_others(
    group_client: Client, members: Members, shared_topic: str, group: str
) -> None:
    stays = members.join(group_client, group, [shared_topic])
    leaves = members.join(group_client, group, [shared_topic])
    settle([stays, leaves], lambda: owned([stays, leaves]) == [2, 2], "both have two")
    leaves.close()
    settle([stays], lambda: owned([stays]) == [4], "the other has them all", deadline_s=5)


def test_another_group_sees_everything_as_well(
    group_client: Client, members: Members, shared_topic: str, group: str
) -> None:
    written = fill(group_client, shared_topic)
    for name in (group, f"{group}-b"):
        member = members.join(group_client, name, [shared_topic])
        assert {record.value for record in receive([member], len(written))} == written


def test_a_group_goes_on_where_it_committed(
    group_client: Client, members: Members, shared_topic: str, group: str
) -> None:
    fill(group_client, shared_topic)
    member = members.join(group_client, group, [shared_topic])
    receive([member], 40)
    member.commit({(shared_topic, 0): 10, (shared_topic, 1): 4, (shared_topic, 2): 0})
    assert [member.committed(shared_topic, partition) for partition in range(PARTITIONS)] == [10, 4, 0, None]
    member.close()
    again = receive([members.join(group_client, group, [shared_topic])], 0 + 6 + 10 + 10)
    assert {(record.partition, record.offset) for record in again} == {
        *((1, offset) for offset in range(4, 10)),
        *((partition, offset) for partition in (2, 3) for offset in range(10)),
    }


def test_a_commit_without_offsets_commits_the_position(
    group_client: Client, members: Members, shared_topic: str, group: str
) -> None:
    fill(group_client, shared_topic)
    member = members.join(group_client, group, [shared_topic])
    receive([member], 40)
    member.commit()
    assert group_client.committed_offsets(group) == {(shared_topic, partition): 10 for partition in range(PARTITIONS)}


def test_what_was_committed_automatically_does_not_come_again(
    group_client: Client, members: Members, shared_topic: str, group: str
) -> None:
    """On a timer while the member lives, and when it closes."""
    fill(group_client, shared_topic, partitions=1)
    member = members.join(group_client, group, [shared_topic], MemberOptions(auto_commit_interval_ms=100))
    receive([member], 10)
    settle([member], lambda: group_client.committed_offsets(group).get((shared_topic, 0)) == 10, "it is committed")
    member.close()
    member = members.join(group_client, group, [shared_topic], MemberOptions(auto_commit_interval_ms=600_000))
    settle([member], lambda: owned([member]) == [4], "it has its partitions")
    group_client.produce(shared_topic, values(5), partition=0)
    assert [record.offset for record in receive([member], 5)] == [10, 11, 12, 13, 14]
    member.close()
    assert group_client.committed_offsets(group)[shared_topic, 0] == 15


def test_a_pattern_takes_up_topics_that_match_it_when_they_are_created(
    group_client: Client, members: Members, topic: str, group: str
) -> None:
    create(group_client, f"{topic}.a", 2)
    create(group_client, f"other.{topic}")
    member = members.join(group_client, group, [f"^{topic}\\..*"])
    first: set[TopicPartition] = {(f"{topic}.a", 0), (f"{topic}.a", 1)}
    settle([member], lambda: member.assigned() == first, "the topic that is there is assigned")
    group_client.create_topic(f"{topic}.x")
    settle([member], lambda: member.assigned() == {*first, (f"{topic}.x", 0)}, "the new topic is assigned")


def test_a_list_of_topics_is_subscribed_to_as_a_whole(
    group_client: Client, members: Members, topic: str, group: str
) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        create(group_client, name)
    member = members.join(group_client, group, names[:2])
    settle([member], lambda: member.assigned() == {(name, 0) for name in names[:2]}, "both are assigned")


@pytest.mark.parametrize(
    ("assignor", "first", "second"),
    [
        ("range", {(1, 0), (1, 1), (2, 0), (2, 1)}, {(1, 2), (2, 2)}),
        ("roundrobin", {(1, 0), (1, 2), (2, 1)}, {(1, 1), (2, 0), (2, 2)}),
    ],
)
def test_two_topics_of_three_partitions_are_assigned_to_two_members(
    group_client: Client,
    members: Members,
    topic: str,
    group: str,
    assignor: Assignor,
    first: set[tuple[int, int]],
    second: set[tuple[int, int]],
) -> None:
    names = {1: f"{topic}-1", 2: f"{topic}-2"}
    for name in names.values():
        create(group_client, name, 3)
    c1, c2 = (
        members.join(group_client, group, list(names.values()), MemberOptions(assignor=assignor, client_id=client_id))
        for client_id in ("c1", "c2")
    )
    settle(
        [c1, c2],
        lambda: (
            c1.assigned() == {(names[number], partition) for number, partition in first}
            and c2.assigned() == {(names[number], partition) for number, partition in second}
        ),
        f"the members have what {assignor} gives them",
    )


@pytest.mark.parametrize("cooperative", [ConfluentClient, KafkaPythonClient], ids=lambda each: each.name)
def test_a_cooperative_rebalance_takes_only_what_moves(
    cooperative: type[Client], group_node: Peer, members: Members, shared_topic: str, group: str
) -> None:
    client, options = cooperative(group_node.bootstrap), MemberOptions(assignor="cooperative-sticky")
    first = members.join(client, group, [shared_topic], options)
    settle([first], lambda: owned([first]) == [4], "the first has them all")
    had = first.assigned()
    second = members.join(client, group, [shared_topic], options)
    settle([first, second], lambda: owned([first, second]) == [2, 2], "both have two")
    assert first.assigned() < had
    assert is_shared([first, second], shared_topic, PARTITIONS)
    taken = [revoked for revoked in first.revocations if revoked]
    assert taken == [had - first.assigned()]


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_members_of_different_libraries_form_one_group(
    group_node: Peer, members: Members, shared_topic: str, group: str, assignor: Assignor
) -> None:
    """Whoever leads it, the others understand what they are given."""
    joined = [
        members.join(library(group_node.bootstrap), group, [shared_topic], MemberOptions(assignor=assignor))
        for library in (ConfluentClient, AiokafkaClient, KafkaPythonClient)
    ]
    settle(joined, lambda: is_shared(joined, shared_topic, PARTITIONS), "all partitions are assigned")
    assert owned(joined) == [2, 1, 1]


def test_a_member_with_no_assignor_in_common_with_the_others_is_refused(
    group_confluent: ConfluentClient, members: Members, shared_topic: str, group: str
) -> None:
    member = members.join(group_confluent, group, [shared_topic], MemberOptions(assignor="range"))
    settle([member], lambda: owned([member]) == [4], "the first is assigned")
    stranger = members.join(group_confluent, group, [shared_topic], MemberOptions(assignor="roundrobin"))
    settle([member], lambda: stranger.failure is not None, "the stranger is told")
    assert isinstance(stranger.failure, ClientError)
    assert stranger.failure.code == INCONSISTENT_GROUP_PROTOCOL
    assert owned([member]) == [4]


def test_a_static_member_that_restarts_in_time_keeps_its_partitions_without_a_rebalance(
    group_client: Client, members: Members, shared_topic: str, group: str
) -> None:
    """A static member does not leave when it closes, and the others do not notice."""
    names = ("a", "b", "c")

    def start(name: str) -> Member:
        return members.join(group_client, group, [shared_topic], MemberOptions(instance_id=name, client_id=name))

    static = {name: start(name) for name in names}
    settle([*static.values()], lambda: is_shared([*static.values()], shared_topic, PARTITIONS), "all are assigned")
    before = {name: static[name].assigned() for name in names}
    rebalances = {name: len(static[name].assignments) for name in names}
    static["b"].close()
    static["b"] = start("b")
    settle([*static.values()], lambda: static["b"].assigned() == before["b"], "the member has its own again")
    written = fill(group_client, shared_topic)
    assert {record.value for record in receive([*static.values()], len(written))} == written
    assert {name: static[name].assigned() for name in names} == before
    assert {name: len(static[name].assignments) for name in names} == rebalances | {"b": 1}
    described = group_client.describe_group(group)
    assert {each.client_id: each.assigned for each in described.members.values()} == before


def test_a_second_member_with_the_same_instance_id_fences_the_first(
    group_confluent: ConfluentClient, members: Members, shared_topic: str, group: str
) -> None:
    """librdkafka tells the application; kafka-python only logs it, and aiokafka's heartbeats leave the id out."""
    client, options = group_confluent, MemberOptions(instance_id="only")
    older = members.join(client, group, [shared_topic], options)
    settle([older], lambda: owned([older]) == [4], "the older is assigned")
    newer = members.join(client, group, [shared_topic], options)
    settle([newer], lambda: owned([newer]) == [4], "the newer is assigned in its place")
    settle([newer], lambda: older.failure is not None, "the older is told")
    assert isinstance(older.failure, ClientError)
    assert older.failure.code in (FENCED_INSTANCE_ID, LIBRDKAFKA_FATAL)
    assert owned([newer]) == [4]
