"""Static members of classic groups on the wire: a restart is no rebalance, and of two with one name the newer stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.groups import (
    Joined,
    beat,
    commit,
    commit_request,
    describe,
    join,
    join_request,
    leave,
    refused_join,
    send_join,
    subscription,
    sync,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

    Connect = Callable[[], Connection]


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_comes_back_under_a_new_id_into_the_same_generation(
    group_connect: Connect, group_connection: Connection, group: str, version: int
) -> None:
    """Its old id is fenced. From version 9 a leader is told that it need not assign anew."""
    request = join_request(group, instance_id="i")
    old = join(group_connection, request, version)
    assert old.member_id.startswith("i-")
    assert sync(old, {old.member_id: b"kept"}) == (Error.NONE, b"kept")
    connection = group_connect()
    answer = connection.call(request, version, m.JoinGroupResponse)
    assert (Error(answer.error_code), answer.generation_id) == (Error.NONE, 1)
    assert answer.member_id.startswith("i-")
    assert answer.member_id != old.member_id
    if version >= 9:
        assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
        assert [each.member_id for each in answer.members] == [answer.member_id]
    else:
        assert (answer.leader, answer.members) == (old.member_id, [])
    new = Joined(connection, group, answer.member_id, answer.generation_id, answer.leader, "i")
    assert sync(new) == (Error.NONE, b"kept")
    assert beat(new) == Error.NONE
    assert beat(old) == Error.FENCED_INSTANCE_ID
    assert sync(old) == (Error.FENCED_INSTANCE_ID, b"")
    fenced = join_request(group, old.member_id, instance_id="i")
    assert refused_join(group_connection, fenced, version) == Error.FENCED_INSTANCE_ID
    assert leave(old) == Error.FENCED_INSTANCE_ID
    assert beat(new) == Error.NONE


def test_a_static_member_that_comes_back_with_another_preference_makes_the_group_rebalance(
    group_connect: Connect, group_connection: Connection, group: str
) -> None:
    """With another subscription alone it does not."""

    def offering(topic: str, *names: str) -> m.JoinGroupRequest:
        return join_request(group, instance_id="i", protocols=dict.fromkeys(names, subscription(topic)))

    old = join(group_connection, offering("a", "range", "roundrobin"))
    assert sync(old, {old.member_id: b""})[0] == Error.NONE
    assert join(group_connect(), offering("b", "range", "roundrobin")).generation == 1
    assert join(group_connect(), offering("b", "roundrobin", "range")).generation == 2


def test_what_a_static_member_gave_up_stays_with_nobody_if_it_restarts_before_it_joins_again(
    group_connect: Connect, group_connection: Connection, group: str
) -> None:
    """Cooperative rebalancing: a member that has given partitions up joins again, so that another gets them. If it
    crashes before that, its successor finds a stable group and what its predecessor had kept: it has nothing to give
    up, does not join again, and the group does not rebalance until something else makes it."""
    connection = group_connect()
    first = join(connection, join_request(group, instance_id="i"))
    assert sync(first, {first.member_id: b"everything"}) == (Error.NONE, b"everything")
    joining = send_join(group_connection, join_request(group))
    wait_until(lambda: beat(first) == Error.REBALANCE_IN_PROGRESS, "the other joins")
    again = join(connection, join_request(group, first.member_id, instance_id="i"))
    other = joining()
    assert again.leader == again.member_id == first.member_id
    assert sync(again, {again.member_id: b"half of it", other.member_id: b"nothing yet"}) == (Error.NONE, b"half of it")
    assert sync(other) == (Error.NONE, b"nothing yet")
    owning_nothing = {"range": subscription("t", "u")}
    successor = join(group_connect(), join_request(group, instance_id="i", protocols=owning_nothing))
    assert (successor.generation, sync(successor)) == (again.generation, (Error.NONE, b"half of it"))
    assert (beat(successor), beat(other)) == (Error.NONE, Error.NONE)
    assert describe(group_connection, group).group_state == "Stable"


def test_the_older_of_two_with_one_instance_id_is_fenced_while_it_waits(
    group_connect: Connect, group_connection: Connection, group: str
) -> None:
    stable = join(group_connection, join_request(group))
    assert sync(stable, {stable.member_id: b""})[0] == Error.NONE
    older, newer = group_connect(), group_connect()
    request = join_request(stable.group, instance_id="i")
    older.send(request, 9)
    wait_until(lambda: len(describe(group_connection, stable.group).members) == 2, "the older waits")
    newer.send(request, 9)
    _, answer = older.receive(m.JoinGroupResponse, 9)
    assert Error(answer.error_code) == Error.FENCED_INSTANCE_ID
    rejoined = join(stable.connection, join_request(stable.group, stable.member_id))
    _, answer = newer.receive(m.JoinGroupResponse, 9)
    assert (Error(answer.error_code), answer.generation_id) == (Error.NONE, rejoined.generation)


def test_commits_of_static_members_are_fenced(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic
) -> None:
    old = join(group_connection, join_request(group, instance_id="i"))
    assert sync(old, {old.member_id: b""})[0] == Error.NONE
    new = join(group_connect(), join_request(group, instance_id="i"))

    def commits(member_id: str, instance_id: str) -> Error:
        request = commit_request(group, group_topic, {0: 1}, generation=1, member_id=member_id, instance_id=instance_id)
        return commit(group_connection, request)[0]

    assert commits(old.member_id, "i") == Error.FENCED_INSTANCE_ID
    assert commits(new.member_id, "another") == Error.UNKNOWN_MEMBER_ID
    assert commits(new.member_id, "i") == Error.NONE
