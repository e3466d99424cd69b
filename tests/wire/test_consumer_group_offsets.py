"""Offsets of next-generation groups: a commit is fenced by the epoch of its member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.consumer_groups import LEAVE_FOR_A_WHILE, ConsumerMember, beat, enter, joining, leave, reconcile
from tests.wire.groups import commit, commit_request, delete_offsets, fetch_offsets, latest, list_groups
from tests.wire.requests import OFFSETS_BY_ID
from tests.wire.transactions import Producer, abort, add_group, commit_offsets, offsets_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

    Connect = Callable[[], Connection]

EPOCHS_FROM = 9
"""The first versions of OffsetCommit and OffsetFetch that know member epochs."""


@pytest.fixture
def member(group_connection: Connection, group: str, group_topic: Topic) -> ConsumerMember:
    """The only member of a group, with both partitions of its topic."""
    entered = enter(group_connection, joining(group, "m1", [group_topic.name]))
    wait_until(lambda: beat(entered) == Error.NONE and len(entered.reported) == 2, "it has both partitions")
    return entered


def commits(
    member: ConsumerMember, topic: Topic, offsets: dict[int, int], epoch: int, version: int = EPOCHS_FROM
) -> dict[int, Error]:
    request = commit_request(member.group, topic, offsets, version, generation=epoch, member_id=member.member_id)
    return commit(member.connection, request, version)


def fetches(
    connection: Connection, topic: Topic, group: str, member_id: str | None, epoch: int, version: int
) -> tuple[Error, list[int]]:
    """The group's error and the offset of the first partition."""
    request = m.OffsetFetchRequest
    named = {"topic_id": topic.id} if version >= OFFSETS_BY_ID else {"name": topic.name}
    wanted = request.OffsetFetchRequestTopics(**named, partition_indexes=[0])
    asked = request.OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=[wanted])
    (answered,) = connection.call(request(groups=[asked]), version, m.OffsetFetchResponse).groups
    return Error(answered.error_code), [p.committed_offset for t in answered.topics for p in t.partitions]


@pytest.mark.parametrize("version", range(EPOCHS_FROM, latest(ApiKey.OFFSET_COMMIT) + 1))
def test_a_member_commits_in_its_epoch_and_in_no_other(
    group_connection: Connection, group: str, group_topic: Topic, member: ConsumerMember, version: int
) -> None:
    for epoch in (member.epoch - 1, member.epoch + 1, -1):
        assert commits(member, group_topic, {0: 5}, epoch, version) == {0: Error.STALE_MEMBER_EPOCH}
    stranger = ConsumerMember(group_connection, group, "nobody", member.epoch)
    assert commits(stranger, group_topic, {0: 5}, member.epoch, version) == {0: Error.UNKNOWN_MEMBER_ID}
    simple = commit_request(group, group_topic, {0: 5}, version)
    assert commit(group_connection, simple, version) == {0: Error.UNKNOWN_MEMBER_ID}
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == -1
    assert commits(member, group_topic, {0: 5}, member.epoch, version) == {0: Error.NONE}
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == 5


@pytest.mark.parametrize("version", [2, 7, EPOCHS_FROM - 1])
def test_a_version_that_does_not_know_member_epochs_cannot_commit(
    group_connection: Connection, group: str, group_topic: Topic, member: ConsumerMember, version: int
) -> None:
    told = commits(member, group_topic, {0: 5}, member.epoch, version)
    assert told == {0: Error.UNSUPPORTED_VERSION}
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == -1


def test_a_commit_in_an_older_epoch_counts_for_what_the_member_had_then_and_still_has(
    group_connect: Connect, group: str, group_topic: Topic, member: ConsumerMember
) -> None:
    """A commit may cross a heartbeat; what has moved to another meanwhile is that one's to commit."""
    before = member.epoch
    other = enter(group_connect(), joining(group, "m2", [group_topic.name]))
    reconcile(member, other)
    ((_, kept),), ((_, moved),) = member.owned, other.owned
    assert member.epoch == before + 1
    assert commits(member, group_topic, {kept: 5}, before) == {kept: Error.NONE}
    assert commits(member, group_topic, {moved: 5}, before) == {moved: Error.STALE_MEMBER_EPOCH}
    assert commits(other, group_topic, {moved: 6}, before) == {moved: Error.STALE_MEMBER_EPOCH}
    assert commits(other, group_topic, {moved: 6}, other.epoch) == {moved: Error.NONE}


def test_the_late_commit_of_a_member_that_left_is_refused(
    group_connection: Connection, group: str, group_topic: Topic, member: ConsumerMember
) -> None:
    """Once nobody is left, anyone may commit who claims no membership."""
    assert leave(member) == Error.NONE
    assert commits(member, group_topic, {0: 5}, member.epoch) == {0: Error.UNKNOWN_MEMBER_ID}
    assert commit(group_connection, commit_request(group, group_topic, {0: 7})) == {0: Error.NONE}
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == 7
    assert list_groups(group_connection)[group] == ("consumer", "Empty", "consumer")


def test_the_late_commit_of_a_static_member_that_was_replaced_is_refused(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic
) -> None:
    entering = joining(group, "old", [group_topic.name], instance_id="i")
    old = enter(group_connection, entering)
    assert leave(old, LEAVE_FOR_A_WHILE) == Error.NONE
    assert commits(old, group_topic, {0: 5}, old.epoch) == {0: Error.STALE_MEMBER_EPOCH}
    entering.member_id = "new"
    new = enter(group_connect(), entering)
    assert commits(old, group_topic, {0: 5}, old.epoch) == {0: Error.UNKNOWN_MEMBER_ID}
    assert commits(new, group_topic, {0: 6}, new.epoch) == {0: Error.NONE}


@pytest.mark.parametrize("version", range(EPOCHS_FROM, latest(ApiKey.OFFSET_FETCH) + 1))
def test_a_member_asks_for_offsets_in_its_epoch_and_an_operator_in_none(
    group_connection: Connection, group: str, group_topic: Topic, member: ConsumerMember, version: int
) -> None:
    assert commits(member, group_topic, {0: 5}, member.epoch) == {0: Error.NONE}

    def asks(member_id: str | None, epoch: int) -> tuple[Error, list[int]]:
        return fetches(group_connection, group_topic, group, member_id, epoch, version)

    assert asks("m1", member.epoch) == asks(None, -1) == (Error.NONE, [5])
    for epoch in (member.epoch - 1, member.epoch + 1, -1):
        assert asks("m1", epoch) == (Error.STALE_MEMBER_EPOCH, [])
    assert asks("nobody", member.epoch) == (Error.UNKNOWN_MEMBER_ID, [])


@pytest.mark.parametrize("version", range(3, latest(ApiKey.TXN_OFFSET_COMMIT) + 1))
def test_offsets_in_a_transaction_are_fenced_by_the_epoch_as_well(
    group_connection: Connection,
    group: str,
    group_topic: Topic,
    member: ConsumerMember,
    producer: Producer,
    version: int,
) -> None:
    add_group(group_connection, producer, group)

    def told(member_id: str, epoch: int) -> Error:
        request = offsets_request(producer, group, group_topic.name, {0: 1}, generation=epoch, member_id=member_id)
        return commit_offsets(group_connection, request, version)[0]

    assert told("m1", member.epoch) == Error.NONE
    assert told("m1", member.epoch + 1) == Error.ILLEGAL_GENERATION
    assert told("m1", member.epoch - 1) == Error.ILLEGAL_GENERATION
    assert told("nobody", member.epoch) == Error.UNKNOWN_MEMBER_ID
    assert leave(member) == Error.NONE
    assert told("m1", member.epoch) == Error.UNKNOWN_MEMBER_ID
    assert abort(group_connection, producer) == Error.NONE


def test_offsets_of_a_topic_are_not_deleted_while_a_member_is_subscribed_to_it(
    group_connection: Connection, group: str, group_topic: Topic, member: ConsumerMember
) -> None:
    assert commits(member, group_topic, {0: 5, 1: 6}, member.epoch) == {0: Error.NONE, 1: Error.NONE}
    refused = delete_offsets(group_connection, group, group_topic.name, [0])
    assert refused == {0: Error.GROUP_SUBSCRIBED_TO_TOPIC}
    assert beat(member, topics=[]) == Error.NONE
    assert delete_offsets(group_connection, group, group_topic.name, [0]) == {0: Error.NONE}
    found = fetch_offsets(group_connection, group, group_topic, [0, 1])
    assert [found[partition].offset for partition in range(2)] == [-1, 6]
