"""Classic groups on the wire: who is in a group, in which generation, and what is refused to whom."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.connection import CLIENT_ID, Connection
from tests.wire.groups import (
    Joined,
    await_coordinator,
    beat,
    commit,
    commit_request,
    describe,
    fetch_offsets,
    find_coordinator,
    join,
    join_request,
    latest,
    leave,
    refused_join,
    send_join,
    subscription,
    sync,
    sync_request,
)
from tests.wire.requests import LEAVE_OF_MANY_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeNode
    from tests.peers import Peer
    from tests.wire.requests import Topic

    Connect = Callable[[], Connection]

MEMBERSHIP = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP)
EVERY_VERSION = [(api, version) for api in MEMBERSHIP for version in range(latest(api) + 1)]
GROUP_MAX_SIZE = 6
SHORT_SESSION_MS = 300


@pytest.fixture
def stable(group_connection: Connection, group: str) -> Joined:
    """The only member of a group, in its first generation, with the assignment `mine`."""
    member = join(group_connection, join_request(group))
    assert sync(member, {member.member_id: b"mine"}) == (Error.NONE, b"mine")
    return member


@pytest.fixture
def pair(group_connect: Connect, stable: Joined) -> tuple[Joined, Joined]:
    """The leader and a follower of a stable group of two."""
    return add_member(group_connect(), stable)


def add_member(
    connection: Connection, leader: Joined, request: m.JoinGroupRequest | None = None
) -> tuple[Joined, Joined]:
    """Let another member join, the leader rejoin, and both have an assignment that is their own id."""
    joining = send_join(connection, request or join_request(leader.group))
    wait_until(lambda: beat(leader) == Error.REBALANCE_IN_PROGRESS, "the leader hears of the rebalance")
    again = join(leader.connection, join_request(leader.group, leader.member_id, instance_id=leader.instance_id))
    follower = joining()
    assignments = {each.member_id: each.member_id.encode() for each in (again, follower)}
    for each in (again, follower):
        given = assignments if each.member_id == each.leader else None
        assert sync(each, given) == (Error.NONE, each.member_id.encode())
    return again, follower


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=lambda each: getattr(each, "name", f"v{each}"))
def test_a_member_joins_syncs_beats_and_leaves_in_every_version(
    group_connection: Connection, group: str, api: ApiKey, version: int
) -> None:
    versions = {each: latest(each) for each in MEMBERSHIP} | {api: version}
    member = join(group_connection, join_request(group), versions[ApiKey.JOIN_GROUP])
    assert (member.generation, member.leader) == (1, member.member_id)
    assert member.member_id.startswith(f"{CLIENT_ID}-")
    given = {member.member_id: b"assigned"}
    assert sync(member, given, version=versions[ApiKey.SYNC_GROUP]) == (Error.NONE, b"assigned")
    assert beat(member, versions[ApiKey.HEARTBEAT]) == Error.NONE
    assert leave(member, versions[ApiKey.LEAVE_GROUP]) == Error.NONE
    assert beat(member, versions[ApiKey.HEARTBEAT]) == Error.UNKNOWN_MEMBER_ID
    assert describe(group_connection, group).group_state == "Empty"


@pytest.mark.parametrize("version", range(APIS[ApiKey.JOIN_GROUP].max_version + 1))
def test_the_leader_of_a_group_is_told_of_every_member_and_the_others_of_none(
    group_connect: Connect, group_connection: Connection, group: str, version: int
) -> None:
    protocols = {"range": subscription("a"), "other": subscription()}
    leader = join(group_connection, join_request(group, protocols=protocols), version)
    follower_connection = group_connect()
    joining = send_join(follower_connection, join_request(group, protocols={"range": subscription("b")}), version)
    wait_until(lambda: beat(leader) == Error.REBALANCE_IN_PROGRESS, "the leader hears of the rebalance")
    request = join_request(group, leader.member_id, protocols=protocols)
    answer = group_connection.call(request, version, m.JoinGroupResponse)
    follower = joining()
    assert (answer.generation_id, answer.protocol_name, answer.leader) == (2, "range", leader.member_id)
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert {each.member_id: bytes(each.metadata) for each in answer.members} == {
        leader.member_id: subscription("a"),
        follower.member_id: subscription("b"),
    }
    assert (follower.generation, follower.leader) == (2, leader.member_id)


def test_a_follower_waits_for_what_the_leader_assigns(pair: tuple[Joined, Joined], group_connect: Connect) -> None:
    leader, follower = pair
    joining = send_join(
        follower.connection, join_request(follower.group, follower.member_id, protocols={"range": subscription("b")})
    )
    assert beat(leader) == Error.REBALANCE_IN_PROGRESS
    leader = join(leader.connection, join_request(leader.group, leader.member_id))
    follower = joining()
    assert leader.generation == follower.generation == 3
    request = sync_request(follower)
    request.protocol_type, request.protocol_name = "consumer", "range"
    follower.connection.send(request, 5)
    assert sync(leader, {leader.member_id: b"a", follower.member_id: b"b"}) == (Error.NONE, b"a")
    _, answer = follower.connection.receive(m.SyncGroupResponse, 5)
    assert (answer.error_code, bytes(answer.assignment)) == (Error.NONE, b"b")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


def test_the_protocol_that_most_members_prefer_is_chosen_among_those_that_all_have(
    group_connect: Connect, group_connection: Connection, group: str
) -> None:
    """The first prefers one that the third does not have."""
    offers = [dict.fromkeys(names, subscription()) for names in ("abc", "cb", "bc")]
    first = join(group_connection, join_request(group, protocols=offers[0]))
    joining = [send_join(group_connect(), join_request(group, protocols=offer)) for offer in offers[1:]]
    wait_until(lambda: len(describe(group_connection, group).members) == 3, "all three are there")
    answer = group_connection.call(join_request(group, first.member_id, protocols=offers[0]), 9, m.JoinGroupResponse)
    assert {each().generation for each in joining} == {2}
    assert answer.protocol_name == "b"


@pytest.mark.parametrize("version", range(4, 10))
def test_a_new_member_is_first_given_an_id_to_come_back_with(
    group_connection: Connection, group: str, version: int
) -> None:
    """It does not yet count as a member."""
    answer = group_connection.call(join_request(group), version, m.JoinGroupResponse)
    assert Error(answer.error_code) == Error.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith(f"{CLIENT_ID}-")
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])
    assert answer.protocol_name == ("" if version < 7 else None)
    assert describe(group_connection, group).members == []


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_joins_that_are_refused(group_connection: Connection, group: str, version: int) -> None:
    def refused(request: m.JoinGroupRequest) -> Error:
        return refused_join(group_connection, request, version)

    assert refused(join_request("")) == Error.INVALID_GROUP_ID
    assert refused(join_request(group, session_timeout_ms=199)) == Error.INVALID_SESSION_TIMEOUT
    assert refused(join_request(group, session_timeout_ms=1_800_001)) == Error.INVALID_SESSION_TIMEOUT
    assert refused(join_request(group, "nobody", session_timeout_ms=199)) == Error.INVALID_SESSION_TIMEOUT
    assert refused(join_request(group, "nobody")) == Error.UNKNOWN_MEMBER_ID
    assert refused(join_request(group, protocols={})) == Error.INCONSISTENT_GROUP_PROTOCOL
    assert refused(join_request(group, protocol_type="")) == Error.INCONSISTENT_GROUP_PROTOCOL
    assert describe(group_connection, group, 5).members == []


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_joins_that_a_stable_group_refuses(
    group_connect: Connect, group_connection: Connection, stable: Joined, version: int
) -> None:
    other = group_connect()

    def refused(request: m.JoinGroupRequest) -> Error:
        return refused_join(other, request, version)

    assert refused(join_request(stable.group, protocol_type="connect")) == Error.INCONSISTENT_GROUP_PROTOCOL
    assert refused(join_request(stable.group, protocols={"other": b""})) == Error.INCONSISTENT_GROUP_PROTOCOL
    assert refused(join_request(stable.group, "nobody")) == Error.UNKNOWN_MEMBER_ID
    assert beat(stable) == Error.NONE
    assert sync(stable) == (Error.NONE, b"mine")


def test_a_group_takes_no_more_members_than_it_may_have(
    group_connect: Connect, group_connection: Connection, group: str
) -> None:
    first = join(group_connection, join_request(group))
    joining = [send_join(group_connect(), join_request(group)) for _ in range(GROUP_MAX_SIZE - 1)]
    wait_until(lambda: len(describe(group_connection, group).members) == GROUP_MAX_SIZE, "the group is full")
    assert join(group_connection, join_request(group, first.member_id)).generation == 2
    assert {each().generation for each in joining} == {2}
    assert refused_join(group_connect(), join_request(group), 3) == Error.GROUP_MAX_SIZE_REACHED
    assert refused_join(group_connect(), join_request(group), 9) == Error.GROUP_MAX_SIZE_REACHED
    assert beat(first) == Error.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", [0, 4])
def test_heartbeats_that_are_refused(group_connection: Connection, stable: Joined, version: int) -> None:
    def refused(group: str, generation: int, member_id: str) -> Error:
        request = m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        return Error(group_connection.call(request, version, m.HeartbeatResponse).error_code)

    assert refused("", 1, stable.member_id) == Error.INVALID_GROUP_ID
    assert refused("no-such-group", 1, stable.member_id) == Error.UNKNOWN_MEMBER_ID
    assert refused(stable.group, 1, "nobody") == Error.UNKNOWN_MEMBER_ID
    assert refused(stable.group, 1, "") == Error.UNKNOWN_MEMBER_ID
    assert refused(stable.group, 0, stable.member_id) == Error.ILLEGAL_GENERATION
    assert refused(stable.group, 2, stable.member_id) == Error.ILLEGAL_GENERATION
    assert refused(stable.group, -1, stable.member_id) == Error.ILLEGAL_GENERATION
    assert beat(stable) == Error.NONE


@pytest.mark.parametrize("version", [0, 4, 5])
def test_syncs_that_are_refused(group_connection: Connection, stable: Joined, version: int) -> None:
    def refused(group: str, generation: int, member_id: str) -> tuple[Error, bytes]:
        return sync(Joined(group_connection, group, member_id, generation, ""), {member_id: b"new"}, version=version)

    assert refused("", 1, stable.member_id) == (Error.INVALID_GROUP_ID, b"")
    assert refused("no-such-group", 1, stable.member_id) == (Error.UNKNOWN_MEMBER_ID, b"")
    assert refused(stable.group, 1, "nobody") == (Error.UNKNOWN_MEMBER_ID, b"")
    assert refused(stable.group, 0, stable.member_id) == (Error.ILLEGAL_GENERATION, b"")
    assert refused(stable.group, 2, stable.member_id) == (Error.ILLEGAL_GENERATION, b"")
    if version >= 5:
        assert sync(stable, protocol=("connect", "range")) == (Error.INCONSISTENT_GROUP_PROTOCOL, b"")
        assert sync(stable, protocol=("consumer", "roundrobin")) == (Error.INCONSISTENT_GROUP_PROTOCOL, b"")
    assert sync(stable) == (Error.NONE, b"mine")


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_leaves_that_are_refused(group_connection: Connection, stable: Joined, version: int) -> None:
    request = m.LeaveGroupRequest

    def refused(group: str, member_id: str) -> tuple[Error, list[Error]]:
        if version < LEAVE_OF_MANY_MEMBERS:
            asked = request(group_id=group, member_id=member_id)
        else:
            asked = request(group_id=group, members=[request.MemberIdentity(member_id=member_id)])
        answer = group_connection.call(asked, version, m.LeaveGroupResponse)
        return Error(answer.error_code), [Error(each.error_code) for each in answer.members]

    unknown = (
        (Error.UNKNOWN_MEMBER_ID, []) if version < LEAVE_OF_MANY_MEMBERS else (Error.NONE, [Error.UNKNOWN_MEMBER_ID])
    )
    assert refused("", stable.member_id) == (Error.INVALID_GROUP_ID, [])
    assert refused("no-such-group", stable.member_id) == unknown
    assert refused(stable.group, "nobody") == unknown
    assert beat(stable) == Error.NONE


@pytest.mark.parametrize("version", [2, 5, 9, 10])
def test_commits_that_are_refused(
    group_connection: Connection, stable: Joined, group_topic: Topic, version: int
) -> None:
    def refused(group: str, generation: int, member_id: str) -> Error:
        request = commit_request(group, group_topic, {0: 7}, version, generation=generation, member_id=member_id)
        return commit(group_connection, request, version)[0]

    await_coordinator(group_connection, "no-such-group")
    assert refused("no-such-group", 1, "nobody") == (
        Error.ILLEGAL_GENERATION if version < 9 else Error.GROUP_ID_NOT_FOUND
    )
    assert refused(stable.group, 1, "nobody") == Error.UNKNOWN_MEMBER_ID
    assert refused(stable.group, 0, stable.member_id) == Error.ILLEGAL_GENERATION
    assert refused(stable.group, 2, stable.member_id) == Error.ILLEGAL_GENERATION
    assert refused(stable.group, -1, "") == Error.UNKNOWN_MEMBER_ID
    assert fetch_offsets(group_connection, stable.group, group_topic, [0])[0].offset == -1
    assert refused(stable.group, 1, stable.member_id) == Error.NONE


def test_a_retried_commit_of_an_older_generation_never_goes_back(
    pair: tuple[Joined, Joined], group_topic: Topic
) -> None:
    leader, _ = pair

    def commits(offset: int, generation: int) -> Error:
        request = commit_request(
            leader.group, group_topic, {0: offset}, generation=generation, member_id=leader.member_id
        )
        return commit(leader.connection, request)[0]

    assert commits(2000, leader.generation - 1) == Error.ILLEGAL_GENERATION
    assert commits(3000, leader.generation) == Error.NONE
    assert commits(2000, leader.generation - 1) == Error.ILLEGAL_GENERATION
    assert fetch_offsets(leader.connection, leader.group, group_topic, [0])[0].offset == 3000


def test_offsets_are_committed_while_members_rejoin_and_not_while_they_await_assignments(
    group_connect: Connect, stable: Joined, group_topic: Topic
) -> None:
    def commits(member: Joined) -> Error:
        request = commit_request(
            member.group, group_topic, {0: 5}, generation=member.generation, member_id=member.member_id
        )
        return commit(member.connection, request)[0]

    joining = send_join(group_connect(), join_request(stable.group))
    wait_until(lambda: beat(stable) == Error.REBALANCE_IN_PROGRESS, "the rebalance begins")
    assert commits(stable) == Error.NONE
    assert sync(stable) == (Error.REBALANCE_IN_PROGRESS, b"")
    rejoined = join(stable.connection, join_request(stable.group, stable.member_id))
    follower = joining()
    assert commits(rejoined) == Error.REBALANCE_IN_PROGRESS
    assert commits(follower) == Error.REBALANCE_IN_PROGRESS
    assert beat(rejoined) == Error.NONE


def test_a_member_that_falls_silent_is_dropped_and_its_late_requests_are_refused(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic
) -> None:
    zombie = join(group_connection, join_request(group, session_timeout_ms=SHORT_SESSION_MS))
    assert sync(zombie, {zombie.member_id: b""})[0] == Error.NONE
    wait_until(lambda: describe(group_connection, group).members == [], "it is dropped")
    assert describe(group_connection, group).group_state == "Empty"
    successor = join(group_connect(), join_request(group))
    assert successor.generation == zombie.generation + 2, "one for the empty group, one for the new member"
    late = commit_request(group, group_topic, {0: 9}, generation=zombie.generation, member_id=zombie.member_id)
    assert commit(group_connection, late) == {0: Error.UNKNOWN_MEMBER_ID}
    assert beat(zombie) == Error.UNKNOWN_MEMBER_ID
    assert sync(zombie) == (Error.UNKNOWN_MEMBER_ID, b"")
    assert leave(zombie) == Error.UNKNOWN_MEMBER_ID
    assert refused_join(group_connection, join_request(group, zombie.member_id)) == Error.UNKNOWN_MEMBER_ID


def test_heartbeats_and_commits_keep_a_member(group_connection: Connection, group: str, group_topic: Topic) -> None:
    """For several times its session timeout."""
    member = join(group_connection, join_request(group, session_timeout_ms=SHORT_SESSION_MS))
    assert sync(member, {member.member_id: b""})[0] == Error.NONE
    end = time.monotonic() + 4 * SHORT_SESSION_MS / 1000

    def beats() -> bool:
        assert beat(member) == Error.NONE
        return time.monotonic() > end

    wait_until(beats, "time has passed", poll_s=SHORT_SESSION_MS / 5000)


def test_a_member_that_does_not_rejoin_in_time_is_left_behind(
    group_connect: Connect, group_connection: Connection, group: str
) -> None:
    """Heartbeats do not save it: the rebalance ends after the longest timeout of its members."""
    slow = join(group_connection, join_request(group, rebalance_timeout_ms=400))
    assert sync(slow, {slow.member_id: b""})[0] == Error.NONE
    joining = send_join(group_connect(), join_request(group, rebalance_timeout_ms=400))
    wait_until(lambda: beat(slow) == Error.UNKNOWN_MEMBER_ID, "it is left behind")
    alone = joining()
    assert (alone.generation, alone.leader) == (2, alone.member_id)


def test_members_that_do_not_sync_in_time_are_dropped(
    group_connect: Connect, group_connection: Connection, group: str
) -> None:
    member = join(group_connection, join_request(group, rebalance_timeout_ms=400))
    assert beat(member) == Error.NONE
    wait_until(lambda: beat(member) == Error.UNKNOWN_MEMBER_ID, "it is dropped")


def test_a_member_whose_connection_ends_while_it_joins_is_gone_after_its_session(
    group_connect: Connect, stable: Joined
) -> None:
    """The others then have an assignment without it."""
    lost = group_connect()
    send_join(lost, join_request(stable.group, session_timeout_ms=SHORT_SESSION_MS, rebalance_timeout_ms=400))
    wait_until(lambda: beat(stable) == Error.REBALANCE_IN_PROGRESS, "the rebalance begins")
    lost.close()
    again = join(stable.connection, join_request(stable.group, stable.member_id))
    if sync(again, {again.member_id: b"first"})[0] == Error.NONE:
        wait_until(lambda: beat(again) == Error.REBALANCE_IN_PROGRESS, "the lost member is dropped")
        again = join(stable.connection, join_request(stable.group, stable.member_id))
        assert sync(again, {again.member_id: b"second"}) == (Error.NONE, b"second")
    assert [each.member_id for each in describe(stable.connection, stable.group).members] == [again.member_id]


def test_several_members_leave_in_one_request_each_with_an_answer_of_its_own(
    group_connect: Connect, group_connection: Connection, group: str
) -> None:
    """A static member may be named by its instance alone, by whoever administers the group."""
    static = join(group_connection, join_request(group, instance_id="i"))
    assert sync(static, {static.member_id: b""})[0] == Error.NONE
    _, dynamic = add_member(group_connect(), static)
    request = m.LeaveGroupRequest
    identities = [
        request.MemberIdentity(member_id="", group_instance_id="i"),
        request.MemberIdentity(member_id="nobody"),
        request.MemberIdentity(member_id="", group_instance_id="no-such-instance"),
        request.MemberIdentity(member_id=dynamic.member_id, reason="over"),
    ]
    answer = group_connection.call(request(group_id=group, members=identities), 5, m.LeaveGroupResponse)
    assert [(each.member_id, each.group_instance_id, Error(each.error_code)) for each in answer.members] == [
        ("", "i", Error.NONE),
        ("nobody", None, Error.UNKNOWN_MEMBER_ID),
        ("", "no-such-instance", Error.UNKNOWN_MEMBER_ID),
        (dynamic.member_id, None, Error.NONE),
    ]
    assert describe(group_connection, group).group_state == "Empty"


def test_a_member_that_leaves_while_the_others_are_stable_makes_them_rejoin(pair: tuple[Joined, Joined]) -> None:
    leader, follower = pair
    assert leave(leader) == Error.NONE
    assert beat(follower) == Error.REBALANCE_IN_PROGRESS
    alone = join(follower.connection, join_request(follower.group, follower.member_id))
    assert (alone.leader, alone.generation) == (follower.member_id, 3)


def test_members_that_come_within_the_initial_delay_share_the_first_generation(make_node: MakeNode, group: str) -> None:
    node = make_node({"group.initial.rebalance.delay.ms": "700", "offsets.topic.num.partitions": "1"})
    connections = [Connection(node.port) for _ in range(3)]
    await_coordinator(connections[0], group)
    joining = [send_join(connection, join_request(group)) for connection in connections]
    joined = [each() for each in joining]
    for connection in connections:
        connection.close()
    assert {each.generation for each in joined} == {1}
    assert len({each.member_id for each in joined}) == 3


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_of_a_group_is_the_node(
    group_connection: Connection, group_node: Peer, group: str, version: int
) -> None:
    assert find_coordinator(group_connection, group, version=version) == (Error.NONE, 1, group_node.port)


def test_coordinators_that_cannot_be_found(group_connection: Connection) -> None:
    for version in (3, 4, 6):
        assert find_coordinator(group_connection, "k", 9, version)[0] == Error.INVALID_REQUEST


def test_the_coordinators_of_many_groups_are_found_at_once(group_connection: Connection, group: str) -> None:
    keys = [f"{group}-{number}" for number in range(100)]
    request = m.FindCoordinatorRequest(coordinator_keys=keys)
    answer = group_connection.call(request, 6, m.FindCoordinatorResponse)
    assert [(each.key, Error(each.error_code)) for each in answer.coordinators] == [(k, Error.NONE) for k in keys]


def test_a_group_id_may_be_long(group_connection: Connection, group_topic: Topic) -> None:
    name = "g" * 30_000
    await_coordinator(group_connection, name)
    assert commit(group_connection, commit_request(name, group_topic, {0: 3})) == {0: Error.NONE}
    assert fetch_offsets(group_connection, name, group_topic, [0])[0].offset == 3
