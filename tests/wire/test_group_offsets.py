"""Committed offsets and the administration of groups on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID
from tests.peers import wait_until
from tests.wire.connection import Connection
from tests.wire.groups import (
    Committed,
    Joined,
    await_coordinator,
    commit,
    commit_request,
    delete_groups,
    delete_offsets,
    describe,
    fetch_all_offsets,
    fetch_offsets,
    join,
    join_request,
    leave,
    list_groups,
    subscription,
    sync,
)
from tests.wire.requests import LATEST, OFFSETS_BY_ID, Topic, create_topic, list_offsets, unknown_topic

if TYPE_CHECKING:
    from tests.conftest import MakeNode

METADATA_MAX_BYTES = 4_096
NO_OPERATIONS_ASKED_FOR = -(2**31)
COMMIT_VERSIONS = range(APIS[ApiKey.OFFSET_COMMIT].min_version, APIS[ApiKey.OFFSET_COMMIT].max_version + 1)
FETCH_VERSIONS = range(APIS[ApiKey.OFFSET_FETCH].min_version, APIS[ApiKey.OFFSET_FETCH].max_version + 1)


@pytest.fixture
def subscribed(group_connection: Connection, group: str, group_topic: Topic) -> Joined:
    """The only member of a stable group that is subscribed to the topic."""
    request = join_request(group, protocols={"range": subscription(group_topic.name)})
    member = join(group_connection, request)
    assert sync(member, {member.member_id: b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"})[0] == Error.NONE
    return member


def delete_topic(connection: Connection, topic: Topic) -> None:
    request = m.DeleteTopicsRequest
    asked = request(topics=[request.DeleteTopicState(name=topic.name)], timeout_ms=10_000)
    (deleted,) = connection.call(asked, 6, m.DeleteTopicsResponse).responses
    assert Error(deleted.error_code) == Error.NONE


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_offsets_are_committed_in_every_version(
    group_connection: Connection, group: str, group_topic: Topic, version: int
) -> None:
    """By someone who is no member, as an administrator does; the epoch is there from version 6 on."""
    request = commit_request(group, group_topic, {0: 5, 1: 7}, version, metadata="note", leader_epoch=0)
    assert commit(group_connection, request, version) == {0: Error.NONE, 1: Error.NONE}
    epoch = 0 if version >= 6 else -1
    assert fetch_offsets(group_connection, group, group_topic, [0, 1]) == {
        0: Committed(5, leader_epoch=epoch, metadata="note"),
        1: Committed(7, leader_epoch=epoch, metadata="note"),
    }


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_commits_that_differ_only_in_their_offsets_each_hold(
    group_connection: Connection, group: str, group_topic: Topic, version: int
) -> None:
    for first, second in ((5, 7), (6, 7), (2**40, -1), (6, 8)):
        request = commit_request(group, group_topic, {0: first, 1: second}, version, metadata="note")
        assert commit(group_connection, request, version) == {0: Error.NONE, 1: Error.NONE}
        found = fetch_offsets(group_connection, group, group_topic, [0, 1])
        assert {partition: each.offset for partition, each in found.items()} == {0: first, 1: second}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_commit_like_the_last_one_is_refused_when_its_topic_is_gone(
    group_connection: Connection, group: str, group_topic: Topic, version: int
) -> None:
    request = commit_request(group, group_topic, {0: 5}, version)
    for _ in range(2):
        assert commit(group_connection, request, version) == {0: Error.NONE}
    delete_topic(group_connection, group_topic)
    unknown = Error.UNKNOWN_TOPIC_ID if version >= OFFSETS_BY_ID else Error.UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: commit(group_connection, request, version) == {0: unknown}, "the broker knows that it is gone")
    assert commit(group_connection, request, version) == {0: unknown}


def test_a_commit_like_the_last_one_is_refused_when_its_member_has_left(
    group_connection: Connection, subscribed: Joined, group: str, group_topic: Topic
) -> None:
    generation, member_id = subscribed.generation, subscribed.member_id
    request = commit_request(group, group_topic, {0: 5}, generation=generation, member_id=member_id)
    for _ in range(2):
        assert commit(group_connection, request) == {0: Error.NONE}
    assert leave(subscribed) == Error.NONE
    assert commit(group_connection, request) == {0: Error.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_offsets_are_fetched_in_every_version(
    group_connection: Connection, group: str, group_topic: Topic, version: int
) -> None:
    commit(group_connection, commit_request(group, group_topic, {1: 7}, metadata="note", leader_epoch=0))
    found = fetch_offsets(group_connection, group, group_topic, [0, 1], version)
    assert found == {0: Committed(-1), 1: Committed(7, leader_epoch=0 if version >= 5 else -1, metadata="note")}


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if 2 <= version < OFFSETS_BY_ID])
def test_all_offsets_of_a_group_are_fetched(
    group_connection: Connection, group: str, group_topic: Topic, version: int
) -> None:
    commit(group_connection, commit_request(group, group_topic, {0: 5, 1: 7}))
    expected = {(group_topic.name, 0): 5, (group_topic.name, 1): 7}
    assert fetch_all_offsets(group_connection, group, version) == expected


def test_the_offsets_of_several_groups_are_fetched_at_once(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    """By id and all of them; a group that is not there has none."""
    groups = [f"{group}-{number}" for number in range(5)]
    await_coordinator(group_connection, *groups)
    for number, each in enumerate(groups[:4]):
        assert commit(group_connection, commit_request(each, group_topic, {0: number})) == {0: Error.NONE}
    request = m.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(topic_id=group_topic.id, partition_indexes=[0])]
    asked = request(
        groups=[
            *(request.OffsetFetchRequestGroup(group_id=each, topics=topics) for each in groups[:3]),
            *(request.OffsetFetchRequestGroup(group_id=each, topics=None) for each in groups[3:]),
        ],
        require_stable=True,
    )
    answer = group_connection.call(asked, 10, m.OffsetFetchResponse)
    found = {
        each.group_id: [(t.topic_id, p.partition_index, p.committed_offset) for t in each.topics for p in t.partitions]
        for each in answer.groups
    }
    assert found == {each: [(group_topic.id, 0, number)] for number, each in enumerate(groups[:4])} | {groups[4]: []}
    assert [Error(each.error_code) for each in answer.groups] == [Error.NONE] * 5


def test_nothing_is_committed_for_what_is_not_there(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    """What is there is committed all the same."""
    request = commit_request(group, group_topic, {0: 1, 9: 1, -1: 1})
    assert commit(group_connection, request) == {
        0: Error.NONE,
        9: Error.UNKNOWN_TOPIC_OR_PARTITION,
        -1: Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    absent = unknown_topic()
    for version, error in ((2, Error.UNKNOWN_TOPIC_OR_PARTITION), (9, Error.UNKNOWN_TOPIC_OR_PARTITION)):
        assert commit(group_connection, commit_request(group, absent, {0: 1}, version), version) == {0: error}
    by_id = commit_request(group, absent, {0: 1}, 10)
    assert commit(group_connection, by_id, 10) == {0: Error.UNKNOWN_TOPIC_ID}
    assert fetch_all_offsets(group_connection, group) == {(group_topic.name, 0): 1}


def test_offsets_of_what_is_not_there_are_fetched_as_none(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    for version in (1, 7, 9):
        assert fetch_offsets(group_connection, group, unknown_topic(), [0], version) == {0: Committed(-1)}
        assert fetch_offsets(group_connection, group, group_topic, [9], version) == {9: Committed(-1)}
    by_id = fetch_offsets(group_connection, group, unknown_topic(), [0], 10)
    assert by_id == {0: Committed(-1, Error.UNKNOWN_TOPIC_ID)}


def test_the_group_without_a_name_has_offsets_though_nobody_may_join_it(
    group_connection: Connection, group_topic: Topic
) -> None:
    """As the consumers of the first years committed."""
    await_coordinator(group_connection, "")
    assert Error(describe(group_connection, "").error_code) == Error.GROUP_ID_NOT_FOUND
    assert commit(group_connection, commit_request("", group_topic, {0: 1})) == {0: Error.NONE}
    assert fetch_offsets(group_connection, "", group_topic, [0]) == {0: Committed(1)}
    assert delete_groups(group_connection, "") == {"": Error.NONE}
    assert delete_groups(group_connection, "") == {"": Error.GROUP_ID_NOT_FOUND}


def test_a_note_may_be_long_but_not_longer_than_the_limit(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    longest = "x" * METADATA_MAX_BYTES
    request = commit_request(group, group_topic, {0: 1, 1: 1}, metadata=longest)
    request.topics[0].partitions[1].committed_metadata = longest + "x"
    assert commit(group_connection, request) == {0: Error.NONE, 1: Error.OFFSET_METADATA_TOO_LARGE}
    assert fetch_offsets(group_connection, group, group_topic, [0, 1]) == {
        0: Committed(1, metadata=longest),
        1: Committed(-1),
    }


def test_a_note_may_be_absent(group_connection: Connection, group: str, group_topic: Topic) -> None:
    assert commit(group_connection, commit_request(group, group_topic, {0: 1}, metadata=None)) == {0: Error.NONE}
    assert fetch_offsets(group_connection, group, group_topic, [0]) == {0: Committed(1)}


def test_offsets_expire_after_the_time_that_an_old_client_gave_them(
    make_node: MakeNode, topic: str, group: str
) -> None:
    """And with its last offset a group that has no members goes."""
    node = make_node({"offsets.retention.check.interval.ms": "200", "offsets.topic.num.partitions": "1"})
    with Connection(node.port) as connection:
        await_coordinator(connection, group)
        kept = create_topic(connection, topic)
        for name, retention_ms in ((group, 1), (f"{group}-kept", -1)):
            request = commit_request(name, kept, {0: 1}, 4, retention_time_ms=retention_ms)
            assert commit(connection, request, 4) == {0: Error.NONE}
        wait_until(lambda: fetch_all_offsets(connection, group) == {}, "the offset has expired")
        wait_until(lambda: group not in list_groups(connection), "the group is gone")
        assert fetch_all_offsets(connection, f"{group}-kept") == {(topic, 0): 1}


def test_the_offsets_of_a_deleted_topic_are_gone(group_connection: Connection, group: str, group_topic: Topic) -> None:
    commit(group_connection, commit_request(group, group_topic, {0: 1, 1: 2}))
    delete_topic(group_connection, group_topic)
    wait_until(lambda: fetch_all_offsets(group_connection, group) == {}, "the offsets are gone")


def test_offsets_are_deleted_for_topics_to_which_nobody_is_subscribed(
    group_connection: Connection, subscribed: Joined, group_topic: Topic
) -> None:
    group, name = subscribed.group, group_topic.name
    request = commit_request(
        group, group_topic, {0: 1, 1: 2}, generation=subscribed.generation, member_id=subscribed.member_id
    )
    assert commit(group_connection, request) == {0: Error.NONE, 1: Error.NONE}
    assert delete_offsets(group_connection, group, name, [0]) == {0: Error.GROUP_SUBSCRIBED_TO_TOPIC}
    assert leave(subscribed) == Error.NONE
    assert delete_offsets(group_connection, group, name, [0, 9]) == {
        0: Error.NONE,
        9: Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert fetch_all_offsets(group_connection, group) == {(name, 1): 2}


def test_offsets_that_cannot_be_deleted(group_connection: Connection, group: str, group_topic: Topic) -> None:
    name = group_topic.name
    assert delete_offsets(group_connection, "", name, [0]) == Error.INVALID_GROUP_ID
    assert delete_offsets(group_connection, group, name, [0]) == Error.GROUP_ID_NOT_FOUND
    worker = join(group_connection, join_request(group, protocol_type="connect", protocols={"default": b""}))
    assert delete_offsets(group_connection, group, name, [0]) == Error.NON_EMPTY_GROUP
    assert leave(worker) == Error.NONE


def test_only_groups_without_members_are_deleted(
    group_connection: Connection, subscribed: Joined, group_topic: Topic
) -> None:
    group = subscribed.group
    await_coordinator(group_connection, "no-such-group")
    assert delete_groups(group_connection, group, "no-such-group") == {
        group: Error.NON_EMPTY_GROUP,
        "no-such-group": Error.GROUP_ID_NOT_FOUND,
    }
    assert leave(subscribed) == Error.NONE
    commit(group_connection, commit_request(group, group_topic, {0: 1}))
    assert delete_groups(group_connection, group, version=0) == {group: Error.NONE}
    assert fetch_all_offsets(group_connection, group) == {}
    assert group not in list_groups(group_connection)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(group_connection: Connection, subscribed: Joined, version: int) -> None:
    protocol_type, state, kind = list_groups(group_connection, version=version)[subscribed.group]
    assert protocol_type == "consumer"
    assert state == ("Stable" if version >= 4 else "")
    assert kind == ("classic" if version >= 5 else "")


def test_groups_are_listed_by_state_and_type(
    group_connection: Connection, subscribed: Joined, group_topic: Topic
) -> None:
    """Names are compared without regard to case, and a name that is none matches nothing."""
    empty = f"{subscribed.group}-empty"
    await_coordinator(group_connection, empty)
    commit(group_connection, commit_request(empty, group_topic, {0: 1}))
    both = {subscribed.group, empty}

    def listed(states: list[str], types: list[str]) -> set[str]:
        return both & set(list_groups(group_connection, states, types))

    assert listed([], []) == both
    assert listed(["Stable"], []) == {subscribed.group}
    assert listed(["empty"], []) == {empty}
    assert listed(["Empty", "STABLE"], ["Classic"]) == both
    assert listed([], ["consumer"]) == set()
    assert listed(["NoSuchState"], []) == set()
    assert list_groups(group_connection)[empty] == ("", "Empty", "classic")


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_in_every_version(
    group_connection: Connection, subscribed: Joined, group_topic: Topic, version: int
) -> None:
    described = describe(group_connection, subscribed.group, version)
    assert Error(described.error_code) == Error.NONE
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.group_instance_id) == (subscribed.member_id, None)
    assert (member.client_id, member.client_host) == ("wire-test", "/127.0.0.1")
    assert bytes(member.member_metadata) == subscription(group_topic.name)
    assert bytes(member.member_assignment) == b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"
    assert described.authorized_operations == NO_OPERATIONS_ASKED_FOR


def test_what_may_be_done_with_a_group_is_said_when_it_is_asked_for(
    group_connection: Connection, subscribed: Joined
) -> None:
    """Read, delete, describe, and the two for its settings."""
    request = m.DescribeGroupsRequest(groups=[subscribed.group], include_authorized_operations=True)
    (described,) = group_connection.call(request, 6, m.DescribeGroupsResponse).groups
    assert described.authorized_operations == sum(1 << operation for operation in (3, 6, 8, 10, 11))


def test_a_group_that_is_not_there_is_described_as_dead(group_connection: Connection, group: str) -> None:
    """From version 6 on that is an error."""
    for version in range(6):
        described = describe(group_connection, group, version)
        assert (Error(described.error_code), described.group_state) == (Error.NONE, "Dead")
    described = describe(group_connection, group, 6)
    assert (Error(described.error_code), described.group_state) == (Error.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == f"Group {group} not found."


def test_groups_of_other_kinds_are_not_found_where_there_is_a_classic_one(
    group_connection: Connection, subscribed: Joined, group_topic: Topic
) -> None:
    absent = f"{subscribed.group}-absent"
    await_coordinator(group_connection, absent)
    for group in (subscribed.group, absent):
        kinds = (
            group_connection.call(
                m.ConsumerGroupDescribeRequest(group_ids=[group]), 1, m.ConsumerGroupDescribeResponse
            ),
            group_connection.call(m.ShareGroupDescribeRequest(group_ids=[group]), 1, m.ShareGroupDescribeResponse),
            group_connection.call(m.StreamsGroupDescribeRequest(group_ids=[group]), 0, m.StreamsGroupDescribeResponse),
        )
        for answer in kinds:
            (described,) = answer.groups
            assert (described.group_id, Error(described.error_code)) == (group, Error.GROUP_ID_NOT_FOUND)


@pytest.mark.parametrize("name", ["plain", "ümläut", "𝔤𝔯𝔬𝔲𝔭", "polygenelubricants"])
def test_a_group_lives_in_the_partition_that_javas_hash_of_its_name_says(
    group_connection: Connection, group_topic: Topic, name: str
) -> None:
    """The last is a name whose hash is the smallest integer, which has no absolute value."""
    units = name.encode("utf-16-be")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (hashed * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    partition = (0 if signed == -(1 << 31) else abs(signed)) % 50
    internal = Topic("__consumer_offsets", ZERO_UUID)
    await_coordinator(group_connection, name)
    before = list_offsets(group_connection, internal, LATEST, partition=partition).offset
    assert commit(group_connection, commit_request(name, group_topic, {0: 1})) == {0: Error.NONE}
    assert list_offsets(group_connection, internal, LATEST, partition=partition).offset == before + 1
