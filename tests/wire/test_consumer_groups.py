"""Next-generation groups on the wire: what members are given and when, and what the coordinator refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.connection import CLIENT_ID, HOST, Connection
from tests.wire.consumer_groups import (
    LEAVE,
    LEAVE_FOR_A_WHILE,
    Answer,
    ConsumerMember,
    Owned,
    ask,
    bare,
    beat,
    configure,
    describe,
    enter,
    joining,
    leave,
    partitions,
    reconcile,
)
from tests.wire.groups import await_coordinator, delete_groups, list_groups
from tests.wire.requests import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeNode
    from tests.peers import PeerKind
    from tests.wire.requests import Topic

    Connect = Callable[[], Connection]

GROUP_MAX_SIZE = 6
CONSUMER_TYPE = 1
INTERVAL_MS = 100


def every(topic: Topic, count: int = 2) -> Owned:
    return frozenset((topic.id, partition) for partition in range(count))


@pytest.fixture
def member(group_connection: Connection, group: str, group_topic: Topic) -> ConsumerMember:
    """The only member of a group, with all of its topic's two partitions."""
    return enter_alone(group_connection, group, group_topic)


def enter_alone(connection: Connection, group: str, topic: Topic, version: int = 1) -> ConsumerMember:
    """The coordinator may hear of a new topic a little later than the client that made it."""
    entered = enter(connection, joining(group, "m1", [topic.name]), version)
    wait_until(
        lambda: beat(entered, version) == Error.NONE and entered.reported == every(topic), "it has both partitions"
    )
    return entered


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_enters_is_given_partitions_beats_and_leaves(
    group_connection: Connection, group: str, group_topic: Topic, version: int
) -> None:
    """There is news in an answer only when there is something new."""
    entered = enter_alone(group_connection, group, group_topic, version)
    in_full = Answer(Error.NONE, "m1", entered.epoch, INTERVAL_MS, every(group_topic))
    assert ask(group_connection, bare(entered), version) == in_full._replace(assigned=None)
    full = joining(group, "m1", [group_topic.name])
    assert ask(group_connection, full, version) == in_full, "an answer that got lost is given again"
    full.member_epoch, full.topic_partitions = entered.epoch, partitions(entered.owned)
    assert ask(group_connection, full, version) == in_full, "a full heartbeat is answered in full"
    assert leave(entered) == Error.NONE
    assert beat(entered, version) == Error.UNKNOWN_MEMBER_ID
    assert list_groups(group_connection)[group] == ("consumer", "Empty", "consumer")


def test_members_bring_their_own_id_from_version_1_on(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    given = enter(group_connection, joining(group, "", [group_topic.name]), 0)
    assert len(given.member_id) == 22
    assert ask(group_connection, joining(group, "", [group_topic.name])).error == Error.INVALID_REQUEST
    assert [each.member_id for each in describe(group_connection, group).members] == [given.member_id]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"group_id": ""}, Error.INVALID_REQUEST),
        ({"group_id": " "}, Error.INVALID_REQUEST),
        ({"member_epoch": -3}, Error.INVALID_REQUEST),
        ({"member_epoch": LEAVE_FOR_A_WHILE}, Error.INVALID_REQUEST),
        ({"member_epoch": LEAVE}, Error.GROUP_ID_NOT_FOUND),
        ({"member_epoch": LEAVE_FOR_A_WHILE, "instance_id": "i"}, Error.GROUP_ID_NOT_FOUND),
        ({"member_epoch": 1}, Error.GROUP_ID_NOT_FOUND),
        ({"rebalance_timeout_ms": -1}, Error.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, Error.INVALID_REQUEST),
        ({"topic_partitions": None}, Error.INVALID_REQUEST),
        ({"topic_partitions": partitions([(b"0123456789abcdef", 0)])}, Error.INVALID_REQUEST),  # type: ignore[list-item]
        ({"instance_id": ""}, Error.INVALID_REQUEST),
        ({"rack_id": ""}, Error.INVALID_REQUEST),
        ({"server_assignor": "no-such-assignor"}, Error.UNSUPPORTED_ASSIGNOR),
        ({"server_assignor": ""}, Error.UNSUPPORTED_ASSIGNOR),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, dict) else "",
)
def test_a_first_heartbeat_that_is_not_in_order_founds_no_group(
    group_connection: Connection, group: str, wrong: dict[str, Any], error: Error, version: int
) -> None:
    request = joining(group, "m1", ["t"])
    for name, value in wrong.items():
        setattr(request, name, value)
    assert ask(group_connection, request, version) == Answer(error)
    assert group not in list_groups(group_connection)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_that_beats_with_epoch_0_after_it_left_is_told_to_rejoin(
    group_connection: Connection, group: str, group_topic: Topic, peer_kind: PeerKind, version: int
) -> None:
    """librdkafka does this, and does not recover from Kafka's answer."""
    member = enter_alone(group_connection, group, group_topic, version)
    assert leave(member) == Error.NONE
    lost = m.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m1", member_epoch=0, subscribed_topic_names=[group_topic.name]
    )
    expected = Error.INVALID_REQUEST if peer_kind == "kafka" else Error.FENCED_MEMBER_EPOCH
    assert ask(group_connection, lost, version) == Answer(expected)
    assert list_groups(group_connection)[group] == ("consumer", "Empty", "consumer")
    enter_alone(group_connection, group, group_topic, version)


@pytest.mark.parametrize("pattern", ["(", "[", "*a", "(?=a)b", r"(a)\1"])
def test_a_pattern_that_re2_does_not_have_is_refused(
    group_connection: Connection, group: str, group_topic: Topic, pattern: str
) -> None:
    refused = joining(group, "m1", None, regex=pattern)
    assert ask(group_connection, refused).error == Error.INVALID_REGULAR_EXPRESSION
    assert group not in list_groups(group_connection)
    member = enter(group_connection, joining(group, "m1", [group_topic.name]))
    changed = bare(member)
    changed.subscribed_topic_regex = pattern
    assert ask(group_connection, changed).error == Error.INVALID_REGULAR_EXPRESSION
    (described,) = describe(group_connection, group).members
    assert (described.subscribed_topic_names, described.subscribed_topic_regex) == ([group_topic.name], "")


def test_a_pattern_stands_for_the_topics_whose_whole_name_it_matches(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    other = create_topic(group_connection, f"{group_topic.name}-other")
    create_topic(group_connection, f"not-{group_topic.name}")
    pattern = f"{group_topic.name}(-other)?"
    entered = enter(group_connection, joining(group, "m1", None, regex=pattern))
    wait_until(lambda: beat(entered) == Error.NONE and entered.owned, "the pattern is resolved")
    assert entered.owned == every(group_topic) | every(other, 1)
    (described,) = describe(group_connection, group).members
    assert (described.subscribed_topic_names, described.subscribed_topic_regex) == ([], pattern)


def test_an_unknown_member_and_a_wrong_epoch_are_told_to_come_again(
    group_connection: Connection, group: str, member: ConsumerMember
) -> None:
    stranger = ConsumerMember(group_connection, group, "nobody", member.epoch)
    assert beat(stranger) == Error.UNKNOWN_MEMBER_ID
    for epoch in (LEAVE, LEAVE_FOR_A_WHILE):
        stranger.instance_id = "i" if epoch == LEAVE_FOR_A_WHILE else None
        assert leave(stranger, epoch) == Error.UNKNOWN_MEMBER_ID
    for epoch in (member.epoch - 1, member.epoch + 1):
        assert ask(group_connection, bare(member, epoch)).error == Error.FENCED_MEMBER_EPOCH
    assert beat(member) == Error.NONE
    assert [each.member_id for each in describe(group_connection, group).members] == ["m1"]


def test_a_member_may_change_its_mind_and_nothing_but_what_it_names_is_changed(
    group_connection: Connection, group: str, group_topic: Topic, member: ConsumerMember
) -> None:
    request = bare(member)
    request.server_assignor = "no-such-assignor"
    assert ask(group_connection, request).error == Error.UNSUPPORTED_ASSIGNOR
    other = create_topic(group_connection, f"{group_topic.name}-other")
    assert beat(member, topics=[other.name]) == Error.NONE
    wait_until(lambda: beat(member) == Error.NONE and member.owned == every(other, 1), "it has what it asked for")
    reconcile(member)
    assert describe(group_connection, group).members[0].subscribed_topic_names == [other.name]


def test_a_partition_is_given_to_another_only_when_its_owner_has_let_it_go(
    group_connect: Connect, group: str, group_topic: Topic, member: ConsumerMember
) -> None:
    other = enter(group_connect(), joining(group, "m2", [group_topic.name]))
    assert (other.epoch, other.owned) == (member.epoch + 1, frozenset())
    before = member.epoch
    assert beat(member) == Error.NONE
    assert (member.epoch, len(member.owned)) == (before, 1), "it is told what it may keep, in its old epoch"
    assert beat(other) == Error.NONE
    assert other.owned == frozenset()
    assert describe(member.connection, group).group_state == "Reconciling"
    assert beat(member) == Error.NONE
    assert member.epoch == before + 1
    assert beat(other) == Error.NONE
    assert other.owned == every(group_topic) - member.owned
    reconcile(member, other)
    assert {*member.owned} | {*other.owned} == every(group_topic)


def test_the_answer_to_what_was_let_go_may_be_lost(
    group_connect: Connect, group: str, group_topic: Topic, member: ConsumerMember
) -> None:
    """The heartbeat comes again in the epoch before. With partitions that the member no longer has it is refused."""
    enter(group_connect(), joining(group, "m2", [group_topic.name]))
    assert beat(member) == Error.NONE
    again = bare(member)
    again.topic_partitions = partitions(member.owned)
    for _ in range(2):
        assert ask(member.connection, again).epoch == member.epoch + 1
    again.topic_partitions = partitions(every(group_topic))
    assert ask(member.connection, again).error == Error.FENCED_MEMBER_EPOCH
    assert ask(member.connection, bare(member)).error == Error.FENCED_MEMBER_EPOCH


def test_a_member_that_does_not_let_go_in_time_is_thrown_out(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic
) -> None:
    request = joining(group, "m1", [group_topic.name], rebalance_timeout_ms=200)
    stubborn = enter(group_connection, request)
    wait_until(lambda: beat(stubborn) == Error.NONE and stubborn.reported, "it has something to let go")
    other = enter(group_connect(), joining(group, "m2", [group_topic.name]))
    wait_until(
        lambda: ask(group_connection, bare(stubborn)).error == Error.UNKNOWN_MEMBER_ID, "the stubborn one is thrown out"
    )
    reconcile(other)
    assert other.owned == every(group_topic)


def test_a_member_that_is_not_heard_of_is_thrown_out_after_the_session_of_its_group(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic
) -> None:
    assert configure(group_connection, group, {"consumer.session.timeout.ms": "500"}) == Error.NONE
    silent = enter(group_connection, joining(group, "m1", [group_topic.name]))
    other = enter(group_connect(), joining(group, "m2", [group_topic.name]))
    wait_until(lambda: beat(other) == Error.NONE and other.owned == every(group_topic), "the other has everything")
    assert beat(silent) == Error.UNKNOWN_MEMBER_ID


def test_a_group_has_settings_of_its_own_within_those_of_the_broker(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    assert configure(group_connection, group, {"consumer.heartbeat.interval.ms": "250"}) == Error.NONE
    answer = ask(group_connection, joining(group, "m1", [group_topic.name]))
    assert (answer.error, answer.interval_ms) == (Error.NONE, 250)
    for config in ({"consumer.session.timeout.ms": "5"}, {"consumer.heartbeat.interval.ms": "5"}, {"bogus": "1"}):
        assert configure(group_connection, group, config) == Error.INVALID_CONFIG
    assert configure(group_connection, "", {"consumer.session.timeout.ms": "500"}) == Error.INVALID_REQUEST


def test_a_group_may_wait_between_two_assignments(
    group_connection: Connection, group_connect: Connect, group: str, group_topic: Topic
) -> None:
    assert configure(group_connection, group, {"consumer.assignment.interval.ms": "15000"}) == Error.NONE
    known = enter_alone(group_connection, f"{group}-before", group_topic)
    assert leave(known) == Error.NONE
    first = enter(group_connection, joining(group, "m1", [group_topic.name]))
    assert beat(first) == Error.NONE
    second = enter(group_connect(), joining(group, "m2", [group_topic.name]))
    for _ in range(2):
        assert beat(first) == beat(second) == Error.NONE
    assert (first.owned, second.owned) == (every(group_topic), frozenset())
    described = describe(group_connection, group)
    assert described.group_state == "Assigning"
    assert described.assignment_epoch == described.group_epoch - 1 == first.epoch


def test_members_that_come_together_are_told_at_once_what_is_theirs(
    group_connection: Connection, group_connect: Connect, group: str, group_topic: Topic, peer_kind: PeerKind
) -> None:
    """Kafka gives the first one everything, which it has to give up again, and the second one nothing."""
    assert configure(group_connection, group, {"consumer.assignment.interval.ms": "1000"}) == Error.NONE
    known = enter_alone(group_connection, f"{group}-before", group_topic)
    assert leave(known) == Error.NONE
    connections = group_connect(), group_connect()
    for name, connection in zip("ab", connections, strict=True):
        connection.send(joining(group, name, [group_topic.name]), 1)
    answers = [connection.receive(m.ConsumerGroupHeartbeatResponse, 1)[1] for connection in connections]
    given = [
        each.partitions
        for answer in answers
        for each in (answer.assignment and answer.assignment.topic_partitions) or ()
    ]
    assert sorted(given) == ([[0, 1]] if peer_kind == "kafka" else [[0], [1]])


@pytest.mark.parametrize(
    ("assignor", "shares"),
    [
        ("range", [{(0, 0), (0, 1), (1, 0), (1, 1)}, {(0, 2), (1, 2)}]),
        ("uniform", None),
    ],
)
def test_the_assignor_that_most_members_prefer_is_used(
    group_connect: Connect,
    group: str,
    group_topic: Topic,
    assignor: str,
    shares: list[set[tuple[int, int]]] | None,
) -> None:
    """Range gives each the same part of every topic; uniform gives each the same number."""
    topics = [create_topic(group_connect(), f"{group_topic.name}-{n}", partitions=3) for n in range(2)]
    names = [topic.name for topic in topics]
    members = [
        enter(group_connect(), joining(group, member_id, names, assignor=assignor)) for member_id in ("m1", "m2")
    ]
    reconcile(*members)
    assert describe(members[0].connection, group).assignor_name == assignor
    ids = [topic.id for topic in topics]
    found = [{(ids.index(topic_id), partition) for topic_id, partition in each.owned} for each in members]
    if shares is None:
        assert [len(each) for each in found] == [3, 3]
    else:
        assert found == shares


def test_partitions_and_topics_that_come_and_go_are_followed(
    group_connection: Connection, group: str, group_topic: Topic, member: ConsumerMember
) -> None:
    request = m.CreatePartitionsRequest
    more = request.CreatePartitionsTopic(name=group_topic.name, count=3, assignments=None)
    (answered,) = group_connection.call(
        request(topics=[more], timeout_ms=30_000), 3, m.CreatePartitionsResponse
    ).results
    assert Error(answered.error_code) == Error.NONE
    wait_until(
        lambda: beat(member) == Error.NONE and member.owned == every(group_topic, 3), "it has the new partition too"
    )
    gone = m.DeleteTopicsRequest.DeleteTopicState(name=group_topic.name)
    deleting = m.DeleteTopicsRequest(topics=[gone], timeout_ms=30_000)
    (deleted,) = group_connection.call(deleting, 6, m.DeleteTopicsResponse).responses
    assert Error(deleted.error_code) == Error.NONE
    wait_until(lambda: beat(member) == Error.NONE and not member.owned, "nothing is left")


def test_a_group_takes_no_more_members_than_it_may(group_connection: Connection, group: str) -> None:
    for number in range(GROUP_MAX_SIZE):
        enter(group_connection, joining(group, f"m{number}", ["t"]))
    refused = joining(group, "one-too-many", ["t"])
    assert ask(group_connection, refused).error == Error.GROUP_MAX_SIZE_REACHED
    assert len(describe(group_connection, group).members) == GROUP_MAX_SIZE


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described_with_what_its_members_have_and_will_have(
    group_connect: Connect,
    group_connection: Connection,
    group: str,
    group_topic: Topic,
    member: ConsumerMember,
    version: int,
) -> None:
    other = enter(group_connect(), joining(group, "m2", [group_topic.name], instance_id="i"))
    described = describe(group_connection, group, version)
    assert (described.group_state, described.assignor_name) == ("Reconciling", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (other.epoch, other.epoch)
    members = {each.member_id: each for each in described.members}
    assert {name: (each.member_epoch, each.instance_id) for name, each in members.items()} == {
        "m1": (member.epoch, None),
        "m2": (other.epoch, "i"),
    }
    for each in members.values():
        assert (each.client_id, each.client_host) == (CLIENT_ID, f"/{HOST}")
        assert each.subscribed_topic_names == [group_topic.name]
        assert each.member_type == (CONSUMER_TYPE if version >= 1 else -1)
        (target,) = each.target_assignment.topic_partitions
        assert (target.topic_id, target.topic_name, len(target.partitions)) == (group_topic.id, group_topic.name, 1)
    assert [sorted(each.partitions) for each in members["m1"].assignment.topic_partitions] == [[0, 1]]
    assert members["m2"].assignment.topic_partitions == []


def test_groups_that_cannot_be_described(group_connection: Connection, group: str) -> None:
    assert Error(describe(group_connection, group).error_code) == Error.GROUP_ID_NOT_FOUND
    assert Error(describe(group_connection, "").error_code) == Error.INVALID_GROUP_ID


def test_a_group_with_members_is_not_deleted(group_connection: Connection, group: str, member: ConsumerMember) -> None:
    assert delete_groups(group_connection, group) == {group: Error.NON_EMPTY_GROUP}
    assert beat(member) == Error.NONE
    assert leave(member) == Error.NONE
    assert delete_groups(group_connection, group) == {group: Error.NONE}
    assert group not in list_groups(group_connection)


def test_an_instance_id_has_one_member_until_that_releases_it(
    group_connect: Connect, group_connection: Connection, group: str, group_topic: Topic
) -> None:
    """Gone for a while, a static member keeps its partitions; back under another id it has them with no rebalance."""
    entering = joining(group, "old", [group_topic.name], instance_id="i")
    old = enter(group_connection, entering)
    wait_until(lambda: beat(old) == Error.NONE and old.reported, "it has partitions")
    epoch = describe(group_connection, group).group_epoch
    entering.member_id = "new"
    assert ask(group_connect(), entering).error == Error.UNRELEASED_INSTANCE_ID
    stranger = ConsumerMember(group_connection, group, "new", old.epoch, "i")
    assert beat(stranger) == Error.FENCED_INSTANCE_ID
    for leaving in (LEAVE, LEAVE_FOR_A_WHILE):
        assert leave(stranger, leaving) == Error.FENCED_INSTANCE_ID
    assert ask(group_connection, bare(ConsumerMember(group_connection, group, "old", old.epoch, "j"))).error == (
        Error.UNKNOWN_MEMBER_ID
    )
    assert leave(old, LEAVE_FOR_A_WHILE) == Error.NONE
    assert beat(old) == Error.FENCED_MEMBER_EPOCH
    (described,) = describe(group_connection, group).members
    assert (described.member_id, described.member_epoch) == ("old", LEAVE_FOR_A_WHILE)
    new = enter(group_connect(), entering)
    assert (new.member_id, new.epoch, new.owned) == ("new", epoch, every(group_topic))
    assert describe(group_connection, group).group_epoch == epoch
    assert beat(old) == Error.FENCED_INSTANCE_ID
    assert beat(new) == Error.NONE
    assert leave(new) == Error.NONE
    assert describe(group_connection, group).members == []


def test_a_static_member_that_does_not_come_back_in_time_is_gone(
    group_connection: Connection, group: str, group_topic: Topic
) -> None:
    assert configure(group_connection, group, {"consumer.session.timeout.ms": "500"}) == Error.NONE
    member = enter(group_connection, joining(group, "m", [group_topic.name], instance_id="i"))
    assert leave(member, LEAVE_FOR_A_WHILE) == Error.NONE
    wait_until(lambda: not describe(group_connection, group).members, "its place is given up")


def test_the_epoch_of_a_group_goes_on_from_where_it_was_when_the_last_member_left(
    group_connection: Connection, group: str, group_topic: Topic, member: ConsumerMember
) -> None:
    assert leave(member) == Error.NONE
    assert enter(group_connection, joining(group, "m2", [group_topic.name])).epoch == member.epoch + 2


def test_a_client_that_goes_away_before_its_join_is_answered_is_no_member(
    make_node: MakeNode, topic: str, group: str
) -> None:
    """Where joins wait for others, a client that closes at once has no epoch to leave with."""
    node = make_node({})
    with Connection(node.port) as connection:
        create_topic(connection, topic)
        await_coordinator(connection, group)
        with Connection(node.port) as gone:
            gone.send(joining(group, "a-member-that-goes", [topic]), 1)
        # It goes before it can be answered, so it may join and leave between two looks: each makes an epoch.
        wait_until(lambda: has_emptied(describe(connection, group), epoch=2), "the client has joined and left")


def has_emptied(found: m.ConsumerGroupDescribeResponse.DescribedGroup, *, epoch: int) -> bool:
    return found.group_epoch >= epoch and not found.members
