"""Classic and next-generation members in one group, and groups whose type does not fit what is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.codec import decode_prefix, encode
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire import consumer_groups
from tests.wire.consumer_groups import ConsumerMember, ask, enter, joining
from tests.wire.groups import (
    Joined,
    beat,
    commit,
    commit_request,
    describe,
    fetch_offsets,
    join,
    join_request,
    leave,
    list_groups,
    subscription,
    sync,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

    Connect = Callable[[], Connection]

CLASSIC_TYPE, CONSUMER_TYPE = 0, 1


def classic_request(group: str, topic: Topic, member_id: str = "") -> m.JoinGroupRequest:
    return join_request(group, member_id, protocols={"range": subscription(topic.name)})


def assignment(topic: Topic, *indexes: int) -> bytes:
    """What the leader of a classic group gives a consumer, with the version in front."""
    struct = m.ConsumerProtocolAssignment
    assigned = struct.TopicPartition(topic=topic.name, partitions=list(indexes))
    return b"\x00\x00" + encode(struct(assigned_partitions=[assigned]), 0)


def assigned_to(data: bytes, topic: Topic) -> set[int]:
    """Of what a classic member was given, the partitions of this topic."""
    if not data:
        return set()
    decoded, _ = decode_prefix(m.ConsumerProtocolAssignment, data[2:], int.from_bytes(data[:2]))
    return {p for each in decoded.assigned_partitions if each.topic == topic.name for p in each.partitions}


@pytest.fixture
def classic(group_connection: Connection, group: str, group_topic: Topic) -> Joined:
    """The only member of a classic group, with both partitions of the topic."""
    member = join(group_connection, classic_request(group, group_topic))
    given = assignment(group_topic, 0, 1)
    assert sync(member, {member.member_id: given}) == (Error.NONE, given)
    return member


def rejoin(member: Joined, topic: Topic) -> set[int]:
    """What a classic member does when it hears of a rebalance; what it is given then."""
    again = join(member.connection, classic_request(member.group, topic, member.member_id))
    member.generation = again.generation
    error, data = sync(member)
    assert error == Error.NONE
    return assigned_to(data, topic)


def types(connection: Connection, group: str) -> dict[str, int]:
    return {each.member_id: each.member_type for each in consumer_groups.describe(connection, group).members}


def test_a_classic_group_is_upgraded_by_the_first_member_that_heartbeats_and_downgraded_when_the_last_leaves(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic, classic: Joined
) -> None:
    """The coordinator assigns to both kinds. No partition has two owners, and the offsets stay."""
    request = commit_request(group, group_topic, {0: 5}, generation=classic.generation, member_id=classic.member_id)
    assert commit(group_connection, request) == {0: Error.NONE}
    modern = enter(group_connect(), joining(group, "modern", [group_topic.name]))
    assert list_groups(group_connection)[group][2] == "consumer"
    assert types(group_connection, group) == {classic.member_id: CLASSIC_TYPE, "modern": CONSUMER_TYPE}
    assert modern.owned == frozenset()
    wait_until(lambda: beat(classic) == Error.REBALANCE_IN_PROGRESS, "the classic member hears of the rebalance")
    assert consumer_groups.beat(modern) == Error.NONE
    assert modern.owned == frozenset(), "the other has not let go yet"
    kept = rejoin(classic, group_topic)
    assert len(kept) == 1
    consumer_groups.reconcile(modern)
    assert {partition for _, partition in modern.owned} == {0, 1} - kept
    assert beat(classic) == Error.NONE
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == 5

    assert consumer_groups.leave(modern) == Error.NONE
    wait_until(lambda: beat(classic) == Error.REBALANCE_IN_PROGRESS, "the classic member hears of that as well")
    assert list_groups(group_connection)[group][2] == "classic"
    again = join(group_connection, classic_request(group, group_topic, classic.member_id))
    assert again.leader == classic.member_id
    given = assignment(group_topic, 0, 1)
    assert sync(again, {again.member_id: given}) == (Error.NONE, given)
    assert describe(group_connection, group).group_state == "Stable"
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == 5


def test_a_classic_member_may_join_a_group_of_next_generation_members(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic
) -> None:
    modern = enter(group_connection, joining(group, "modern", [group_topic.name]))
    wait_until(lambda: consumer_groups.beat(modern) == Error.NONE and len(modern.reported) == 2, "it has both")
    late = join(group_connect(), classic_request(group, group_topic))
    error, data = sync(late)
    assert (error, assigned_to(data, group_topic)) == (Error.NONE, set())
    assert types(group_connection, group) == {"modern": CONSUMER_TYPE, late.member_id: CLASSIC_TYPE}
    for _ in range(2):
        assert consumer_groups.beat(modern) == Error.NONE
    assert len(modern.reported) == 1
    wait_until(lambda: beat(late) == Error.REBALANCE_IN_PROGRESS, "there is something for the classic member")
    assert rejoin(late, group_topic) == {0, 1} - {partition for _, partition in modern.owned}
    consumer_groups.reconcile(modern)
    assert leave(late) == Error.NONE
    consumer_groups.reconcile(modern)
    assert {partition for _, partition in modern.owned} == {0, 1}
    assert types(group_connection, group) == {"modern": CONSUMER_TYPE}


def test_a_classic_member_of_a_mixed_group_is_fenced_by_its_generation(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic, classic: Joined
) -> None:
    enter(group_connect(), joining(group, "modern", [group_topic.name]))
    behind = Joined(group_connection, group, classic.member_id, classic.generation - 1, "")
    assert beat(behind) == Error.ILLEGAL_GENERATION
    assert sync(behind)[0] == Error.ILLEGAL_GENERATION
    stranger = Joined(group_connection, group, "nobody", classic.generation, "")
    assert beat(stranger) == Error.UNKNOWN_MEMBER_ID
    assert sync(stranger)[0] == Error.UNKNOWN_MEMBER_ID
    assert leave(stranger) == Error.UNKNOWN_MEMBER_ID
    for generation, told in ((classic.generation - 1, Error.ILLEGAL_GENERATION), (classic.generation, Error.NONE)):
        request = commit_request(group, group_topic, {0: 5}, generation=generation, member_id=classic.member_id)
        assert commit(group_connection, request) == {0: told}


def test_what_a_classic_member_says_of_a_next_generation_one_is_refused(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    modern = enter(group_connection, joining(group, "modern", [group_topic.name]))
    posing = Joined(group_connection, group, "modern", modern.epoch, "")
    assert beat(posing) == Error.UNKNOWN_MEMBER_ID
    assert sync(posing) == (Error.UNKNOWN_MEMBER_ID, b"")
    assert consumer_groups.beat(modern) == Error.NONE


@pytest.mark.parametrize(
    ("protocol_type", "metadata"), [("connect", b""), ("consumer", b"\x01")], ids=["no consumers", "no subscription"]
)
def test_a_group_of_something_else_is_not_upgraded(
    group_connect: Connect, group_connection: Connection, group: str, protocol_type: str, metadata: bytes
) -> None:
    other = join(group_connection, join_request(group, protocol_type=protocol_type, protocols={"p": metadata}))
    assert sync(other, {other.member_id: b"mine"}, protocol=(protocol_type, "p")) == (Error.NONE, b"mine")
    assert ask(group_connect(), joining(group, "modern", ["t"])).error == Error.GROUP_ID_NOT_FOUND
    assert beat(other) == Error.NONE
    assert list_groups(group_connection)[group] == (protocol_type, "Stable", "classic")


def test_a_group_is_described_and_listed_by_its_own_type_only(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic, classic: Joined
) -> None:
    modern = f"{group}-modern"
    consumer_groups.reconcile(enter(group_connect(), joining(modern, "m", [group_topic.name])))
    assert Error(consumer_groups.describe(group_connection, group).error_code) == Error.GROUP_ID_NOT_FOUND
    refused = describe(group_connection, modern)
    assert (Error(refused.error_code), refused.group_state) == (Error.GROUP_ID_NOT_FOUND, "Dead")
    assert set(list_groups(group_connection, types=["classic"])) >= {group}
    assert modern not in list_groups(group_connection, types=["classic"])
    listed = list_groups(group_connection, types=["consumer"])
    assert (listed[modern], group in listed) == (("consumer", "Stable", "consumer"), False)


def test_an_empty_classic_group_with_offsets_becomes_a_next_generation_group(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    assert commit(group_connection, commit_request(group, group_topic, {0: 5})) == {0: Error.NONE}
    assert list_groups(group_connection)[group] == ("", "Empty", "classic")
    member: ConsumerMember = enter(group_connection, joining(group, "m", [group_topic.name]))
    assert list_groups(group_connection)[group][2] == "consumer"
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == 5
    assert consumer_groups.beat(member) == Error.NONE
