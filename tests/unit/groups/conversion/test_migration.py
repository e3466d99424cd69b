"""A group changes between the classic and the consumer protocol while its members go on."""

from __future__ import annotations

from itertools import chain

import pytest

from barnabas.groups.classic.classic_group import ClassicGroupSettings
from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import Error
from tests.unit.groups import requests
from tests.unit.groups.consumer_requests import assigned, beat, join, leave, topic_id
from tests.unit.groups.conversion.mixed_driver import GROUP, REBALANCE_MS, SESSION_MS, Driver, assignment, subscription

FOO = topic_id("foo")
CLASSIC_GENERATION = 1


def driver(**consumer_settings: object) -> Driver:
    return Driver({"foo": 4}, **consumer_settings)


def halves(group: Driver) -> tuple[str, str]:
    """A classic group of two members, each with half of the topic."""
    first, second = group.classic_group({"foo": [0, 1]}, {"foo": [2, 3]})
    return first, second


def rejoin(group: Driver, member_id: str, owned: list[int]) -> m.JoinGroupResponse:
    return group.joined(group.join(member_id, metadata=subscription(["foo"], {"foo": owned})))


def settle(group: Driver, member_id: str, owned: list[int]) -> m.JoinGroupResponse:
    """Joins as often as it takes to be where the group wants the member to be."""
    while True:
        joined = rejoin(group, member_id, owned)
        owned = sorted(group.synced(group.sync(joined)).get("foo", ()))
        if group.heartbeat(member_id, joined.generation_id) is Error.NONE:
            return joined


def key_names(group: Driver, since: int) -> list[str]:
    return [
        type(record.key).__name__.removesuffix("Key") + ("" if record.value is not None else " gone")
        for record in group.log[since:]
    ]


# Going up.


def test_the_first_member_of_the_newer_protocol_makes_a_classic_group_a_consumer_group() -> None:
    group = driver()
    first, second = halves(group)
    new = group.beat(join(GROUP, "new", "foo"))
    assert new.error_code == Error.NONE
    assert assigned(new) == {}, "all partitions still have owners"
    assert group.state() == ("consumer", "Reconciling")
    [described] = group.shard.describe_consumer_groups([GROUP])
    shares = {
        each.member_id: [partition for topic in each.assignment.topic_partitions for partition in topic.partitions]
        for each in described.members
    }
    assert shares == {first: [0, 1], second: [2, 3], "new": []}
    assert {each.member_id: each.member_type for each in described.members} == {first: 0, second: 0, "new": 1}


def test_the_records_of_one_kind_are_taken_back_before_those_of_the_other_are_written() -> None:
    group = driver()
    halves(group)
    before = len(group.log)
    group.beat(join(GROUP, "new", "foo"))
    assert key_names(group, before) == [
        "GroupMetadata gone",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
        "ConsumerGroupCurrentMemberAssignment",
        # and what the joining of the new member adds
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    ]


def test_classic_members_are_asked_to_rejoin_and_give_up_what_the_new_one_gets() -> None:
    group = driver()
    first, second = halves(group)
    new = group.beat(join(GROUP, "new", "foo"))
    for member_id, owned in ((first, [0, 1]), (second, [2, 3])):
        assert group.heartbeat(member_id, CLASSIC_GENERATION) is Error.REBALANCE_IN_PROGRESS
        joined = settle(group, member_id, owned)
        assert (joined.leader, joined.members) == ("", []), "nobody has to assign"
        assert joined.generation_id == new.member_epoch
    got = assigned(group.beat(beat(GROUP, "new", new.member_epoch, {})))
    assert got == {FOO: [3]}
    assert group.state() == ("consumer", "Stable")


def test_members_that_wait_in_the_classic_group_are_told_to_join_again() -> None:
    group = driver()
    first, second = halves(group)
    waiting = group.join(first, metadata=subscription(["foo", "bar"], {"foo": [0, 1]}))
    assert waiting not in group.answers
    group.beat(join(GROUP, "new", "foo"))
    assert group.joined(waiting).error_code == Error.REBALANCE_IN_PROGRESS
    assert settle(group, first, [0, 1]).error_code == Error.NONE
    assert group.heartbeat(second, CLASSIC_GENERATION) is Error.REBALANCE_IN_PROGRESS


def test_a_member_that_reads_on_until_it_knows_its_assignment_keeps_others_off() -> None:
    group = driver()
    first, second = halves(group)
    owned = {first: [0, 1], second: [2, 3]}
    calls = {each: group.join(each, metadata=subscription(["foo"], {"foo": owned[each]})) for each in (first, second)}
    leader = group.joined(calls[first])
    # The leader takes partition 2 from the second member, which has not heard of that.
    group.sync(leader, {first: assignment({"foo": [0, 1]}), second: assignment({"foo": [3]})})
    new = group.beat(join(GROUP, "new", "foo"))
    assert assigned(new) == {}, "partition 2 is given to nobody, and still read"
    settle(group, second, [2, 3])
    settle(group, first, [0, 1])
    got = assigned(group.beat(beat(GROUP, "new", new.member_epoch, {})))
    assert got, "now it is free"


@pytest.mark.parametrize("policy", ["disabled", "downgrade", "DOWNGRADE"])
def test_a_classic_group_stays_what_it_is_where_the_policy_says_so(policy: str) -> None:
    group = driver(migration_policy=policy)
    first, _ = halves(group)
    before = len(group.log)
    refused = group.beat(join(GROUP, "new", "foo"))
    assert refused.error_code == Error.GROUP_ID_NOT_FOUND
    assert "online upgrade is disabled" in (refused.error_message or "")
    assert group.state() == ("classic", "Stable")
    assert group.heartbeat(first, CLASSIC_GENERATION) is Error.NONE
    assert len(group.log) == before


def test_a_heartbeat_that_is_refused_does_not_change_the_group() -> None:
    group = driver(max_size=2)
    first, _ = halves(group)
    waiting = group.join(first, metadata=subscription(["foo", "bar"]))
    before = len(group.log)
    assert group.beat(join(GROUP, "new", "foo")).error_code == Error.GROUP_MAX_SIZE_REACHED
    assert waiting not in group.answers
    assert len(group.log) == before
    assert group.state()[0] == "classic"


def test_a_group_whose_assignor_keeps_data_of_its_own_is_not_changed() -> None:
    group = driver()
    member_id = group.joined(group.join(metadata=subscription(["foo"]))).member_id
    call = group.join(member_id, metadata=subscription(["foo"]))
    group.pass_time(0)
    group.sync(group.joined(call), {member_id: assignment({"foo": [0]}, user_data=b"sticky")})
    refused = group.beat(join(GROUP, "new", "foo"))
    assert refused.error_code == Error.GROUP_ID_NOT_FOUND
    assert "switch to a default assignor" in (refused.error_message or "")


def test_a_group_that_has_gone_up_is_the_same_after_a_restart() -> None:
    group = driver()
    first, second = halves(group)
    group.beat(join(GROUP, "new", "foo"))
    settle(group, first, [0, 1])
    before = group.shard.describe_consumer_groups([GROUP])
    group.restart()
    assert group.shard.describe_consumer_groups([GROUP]) == before
    assert group.heartbeat(second, CLASSIC_GENERATION) is Error.REBALANCE_IN_PROGRESS


# Classic members in a consumer group.


def mixed(group: Driver) -> tuple[str, m.JoinGroupResponse]:
    """A group of a classic member, which has half of the topic, and one of the newer protocol, `new`."""
    (classic,) = group.classic_group({"foo": [0, 1, 2, 3]})
    new = group.beat(join(GROUP, "new", "foo"))
    joined = settle(group, classic, [0, 1, 2, 3])
    assert assigned(group.beat(beat(GROUP, "new", new.member_epoch, {}))) == {FOO: [2, 3]}
    return classic, joined


def test_a_classic_member_that_does_not_rejoin_in_time_is_fenced_however_alive_it_is() -> None:
    group = driver(session_timeout_ms=10 * REBALANCE_MS)
    classic, joined = mixed(group)
    group.beat(join(GROUP, "newer", "foo"))
    for _ in range(REBALANCE_MS // 5_000):
        assert group.heartbeat(classic, joined.generation_id) is Error.REBALANCE_IN_PROGRESS
        group.pass_time(5_000)
    assert group.heartbeat(classic, joined.generation_id) is Error.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_joins_and_does_not_sync_in_time_is_fenced() -> None:
    group = driver(session_timeout_ms=10 * REBALANCE_MS)
    classic, joined = mixed(group)
    group.join(classic, metadata=subscription(["foo"], {"foo": [0, 1]}), session_timeout_ms=SESSION_MS)
    for _ in range(REBALANCE_MS // 5_000):
        assert group.heartbeat(classic, joined.generation_id) is Error.NONE
        group.pass_time(5_000)
    assert group.heartbeat(classic, joined.generation_id) is Error.UNKNOWN_MEMBER_ID


def test_a_classic_member_has_the_session_timeout_that_it_asked_for() -> None:
    group = driver(session_timeout_ms=10 * REBALANCE_MS)
    classic, joined = mixed(group)
    group.pass_time(SESSION_MS - 1)
    assert group.heartbeat(classic, joined.generation_id) is Error.NONE
    group.pass_time(SESSION_MS)
    assert group.heartbeat(classic, joined.generation_id) is Error.UNKNOWN_MEMBER_ID


def test_a_member_is_answered_in_the_version_of_its_subscription() -> None:
    group = driver()
    group.beat(join(GROUP, "new", "foo"))
    group.beat(leave(GROUP, "new"))
    group.beat(join(GROUP, "newer", "bar"))
    joined = group.joined(group.join(metadata=subscription(["foo"], version=0), version=3))
    synced = group.answers[group.sync(joined)]
    assert bytes(synced.assignment)[:2] == b"\0\0"


def test_a_subscription_that_nobody_can_read_changes_nothing() -> None:
    group = driver()
    mixed(group)
    before = len(group.log)
    assert group.joined(group.join("other", metadata=b"\0")).error_code == Error.UNKNOWN_SERVER_ERROR
    assert len(group.log) == before


def test_where_migration_is_disabled_no_classic_member_comes_in() -> None:
    group = driver(migration_policy="disabled")
    group.beat(join(GROUP, "new", "foo"))
    refused = group.joined(group.join(metadata=subscription(["foo"])))
    assert refused.error_code == Error.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_commit_offsets_with_their_generation() -> None:
    group = driver()
    classic, joined = mixed(group)

    def commit(generation: int) -> int:
        request = requests.commit(GROUP, {0: 5}, topic_id=FOO, member_id=classic, generation=generation)
        effects = group.shard.commit_offsets(request, 8, "us", group.now_ms)
        [(_, response)] = effects.answers
        assert isinstance(response, m.OffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    assert commit(joined.generation_id) == Error.NONE
    assert commit(joined.generation_id + 1) == Error.ILLEGAL_GENERATION


def test_a_member_that_was_thrown_out_and_reads_on_is_told_so_when_it_joins_again() -> None:
    """A classic member that reads while it rejoins would share its partitions with their new owner."""
    group = driver()
    (classic,) = group.classic_group({"foo": [0, 1, 2, 3]})
    group.pass_time(SESSION_MS)
    group.beat(join(GROUP, "new", "foo"))
    assert rejoin(group, classic, [0, 1, 2, 3]).error_code == Error.UNKNOWN_MEMBER_ID
    assert rejoin(group, classic, []).error_code == Error.NONE, "who owns nothing harms nobody"


def test_what_a_leader_assigns_that_does_not_exist_or_twice_does_not_come_along() -> None:
    group = driver()
    group.classic_group({"foo": [0, 1]}, {"foo": [2]})
    first, second = group.classic_members()
    first.assignment = assignment({"foo": [0, 1, 99]})
    second.assignment = assignment({"foo": [1, 2, -1], "bar": [0]})
    assert group.beat(join(GROUP, "new", "foo")).error_code == Error.NONE
    [described] = group.shard.describe_consumer_groups([GROUP])
    owned = {
        each.member_id: [(topic.topic_name, topic.partitions) for topic in each.assignment.topic_partitions]
        for each in described.members
    }
    assert owned == {first.member_id: [("foo", [0, 1])], second.member_id: [("foo", [2])], "new": [("foo", [3])]}


def test_a_group_goes_up_while_its_members_change_their_protocols() -> None:
    group = driver()
    first, second = halves(group)
    group.join(first, metadata=subscription(["foo"]), protocols=["range", "sticky"])
    group.join(second, metadata=subscription(["foo"]), protocols=["range", "sticky"])
    group.sync(group.joined(group.calls - 1), {each: assignment({}) for each in (first, second)})
    group.join(second, metadata=subscription(["foo"]), protocols=["sticky"])
    assert group.state() == ("classic", "PreparingRebalance")
    assert group.beat(join(GROUP, "new", "foo")).error_code == Error.NONE
    assert group.state()[0] == "consumer"


def test_partitions_that_nobody_has_when_a_static_member_takes_the_group_up_are_shared_out() -> None:
    group = driver()
    calls = [group.join(metadata=subscription(["foo"]), instance_id=each) for each in ("i", "j")]
    group.pass_time(0)
    leader, follower = (group.joined(call) for call in calls)
    shares = {leader.member_id: assignment({"foo": [0, 1]}), follower.member_id: assignment({"foo": [2, 3]})}
    group.sync(leader, shares, "i")
    group.leave(leader.member_id, "i")
    assert group.state() == ("classic", "PreparingRebalance")
    back = group.beat(join(GROUP, "new", "foo", instance_id="j"))
    assert assigned(back) == {FOO: [0, 1, 2, 3]}


def test_a_member_may_name_a_topic_more_than_once() -> None:
    group = driver()
    classic, _ = mixed(group)
    named = [m.ConsumerProtocolSubscription.TopicPartition(topic="foo", partitions=[each]) for each in (1, 0)]
    metadata = b"\0\3" + encode(m.ConsumerProtocolSubscription(topics=["foo"], owned_partitions=named), 3)
    group.beat(join(GROUP, "newer", "foo"))
    group.beat(join(GROUP, "newest", "foo"))
    group.joined(group.join(classic, metadata=metadata))
    [described] = group.shard.describe_consumer_groups([GROUP])
    [shown] = [each for each in described.members if each.member_id == classic]
    assert [topic.partitions for topic in shown.assignment.topic_partitions] == [[0, 1]], "it still reads both"


def test_a_classic_member_that_changes_over_under_its_own_id_owes_no_rejoin() -> None:
    group = driver()
    first, _ = halves(group)
    group.beat(join(GROUP, "new", "foo"))
    assert group.heartbeat(first, CLASSIC_GENERATION) is Error.REBALANCE_IN_PROGRESS
    joined = group.beat(join(GROUP, first, "foo"))
    for _ in range(REBALANCE_MS // 1_000 + 1):
        group.pass_time(1_000)
        answer = group.beat(beat(GROUP, first, joined.member_epoch, assigned(joined)))
        joined = answer if answer.assignment is not None else joined
        joined.member_epoch = answer.member_epoch
        assert answer.error_code == Error.NONE


# Going down.


def test_when_the_last_member_of_the_newer_protocol_leaves_the_group_is_classic_again_and_rebalances() -> None:
    group = driver()
    classic, joined = mixed(group)
    before = len(group.log)
    assert group.beat(leave(GROUP, "new")).error_code == Error.NONE
    assert key_names(group, before) == [
        *["ConsumerGroupCurrentMemberAssignment gone"] * 2,
        *["ConsumerGroupTargetAssignmentMember gone"] * 2,
        "ConsumerGroupTargetAssignmentMetadata gone",
        *["ConsumerGroupMemberMetadata gone"] * 2,
        "ConsumerGroupPartitionMetadata gone",
        "ConsumerGroupMetadata gone",
        "GroupMetadata",
    ]
    assert group.state() == ("classic", "PreparingRebalance")
    assert group.heartbeat(classic, joined.generation_id) is Error.REBALANCE_IN_PROGRESS
    again = rejoin(group, classic, [0, 1])
    assert again.leader == classic
    assert again.generation_id == joined.generation_id + 1
    synced = group.sync(again, {classic: assignment({"foo": [0, 1, 2, 3]})})
    assert group.synced(synced) == {"foo": {0, 1, 2, 3}}
    assert group.state() == ("classic", "Stable")


def test_a_group_goes_down_too_when_the_last_one_falls_silent() -> None:
    group = driver()
    classic, joined = mixed(group)
    for _ in range(SESSION_MS // 1_000):
        group.heartbeat(classic, joined.generation_id)
        group.pass_time(1_000)
    assert group.state() == ("classic", "PreparingRebalance")


def test_a_group_that_has_gone_down_rebalances_after_a_restart_too() -> None:
    """Otherwise nobody would ever read what the last member of the newer protocol had."""
    group = driver()
    classic, joined = mixed(group)
    group.beat(leave(GROUP, "new"))
    group.restart()
    assert group.state() == ("classic", "PreparingRebalance")
    assert group.heartbeat(classic, joined.generation_id) is Error.REBALANCE_IN_PROGRESS
    again = rejoin(group, classic, [0, 1])
    group.sync(again, {classic: assignment({"foo": [0, 1, 2, 3]})})
    group.restart()
    assert group.state() == ("classic", "Stable")


def test_when_everybody_leaves_at_once_the_group_is_empty_and_not_classic() -> None:
    group = driver()
    classic, _ = mixed(group)
    identities = [m.LeaveGroupRequest.MemberIdentity(member_id=each) for each in (classic, "new")]
    group.take(group.shard.leave(m.LeaveGroupRequest(group_id=GROUP, members=identities), 0, group.now_ms))
    assert group.state() == ("consumer", "Empty")


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_consumer_group_stays_one_where_the_policy_says_so(policy: str) -> None:
    group = driver()
    classic, joined = mixed(group)
    group.settings = group.settings._replace(consumer=group.settings.consumer._replace(migration_policy=policy))
    group.shard.reconfigure(group.settings)
    group.beat(leave(GROUP, "new"))
    assert group.state()[0] == "consumer"
    assert group.heartbeat(classic, joined.generation_id) is Error.NONE


def test_a_consumer_group_that_is_too_large_for_a_classic_one_stays_one() -> None:
    group = driver()
    mixed(group)
    group.settings = group.settings._replace(group=ClassicGroupSettings(group_max_size=0))
    group.shard.reconfigure(group.settings)
    group.beat(leave(GROUP, "new"))
    assert group.state()[0] == "consumer"


def test_a_static_member_that_comes_back_classic_takes_the_group_down_without_a_rebalance() -> None:
    group = driver()
    group.beat(join(GROUP, "new", "foo", instance_id="i"))
    back = group.joined(group.join(metadata=subscription(["foo"]), instance_id="i"))
    assert back.error_code == Error.NONE
    assert group.state() == ("classic", "Stable")
    assert group.heartbeat(back.member_id, back.generation_id, "i") is Error.NONE
    assert group.synced(group.sync(back, instance_id="i")) == {"foo": {0, 1, 2, 3}}


def test_it_rebalances_where_others_still_have_what_the_static_member_is_to_get() -> None:
    group = driver()
    (classic,) = group.classic_group({"foo": [0, 1, 2, 3]})
    group.beat(join(GROUP, "new", "foo", instance_id="i"))
    back = group.joined(group.join(metadata=subscription(["foo"]), instance_id="i"))
    assert group.state() == ("classic", "PreparingRebalance")
    refused = group.answers[group.sync(back, instance_id="i")]
    assert refused.error_code != Error.NONE, "the other member still reads what it would be given"
    assert group.heartbeat(classic, CLASSIC_GENERATION) is not Error.NONE


# Staying up.


class ClassicClient:
    """A classic member that rejoins whenever it is told to, and owns what it was last given."""

    def __init__(self, group: Driver, member_id: str) -> None:
        self.group = group
        self.member_id = member_id
        self.generation = -1
        self.owned: list[int] = []

    def rejoin(self) -> None:
        joined = rejoin(self.group, self.member_id, self.owned)
        self.generation = joined.generation_id
        call = self.group.sync(joined)
        if self.group.answers[call].error_code == Error.NONE:
            self.owned = sorted(self.group.synced(call).get("foo", ()))

    def beat(self) -> None:
        if self.group.heartbeat(self.member_id, self.generation) is Error.REBALANCE_IN_PROGRESS:
            self.rejoin()


def go_on(group: Driver, *clients: ClassicClient) -> list[list[int]]:
    """What each has when all have sent heartbeats for a while."""
    for _ in range(5):
        for client in clients:
            client.beat()
        group.pass_time(3_000)
    return [client.owned for client in clients]


@pytest.fixture(params=[0, 50], ids=["without gathering", "gathering"])
def left_to_classic_members(request: pytest.FixtureRequest) -> tuple[Driver, ClassicClient, ClassicClient]:
    """A consumer group that stays one, though the last member of the newer protocol has gone."""
    group = driver(assignment_interval_ms=1_000, gathering_ms=request.param, migration_policy="upgrade")
    first, second = (ClassicClient(group, member_id) for member_id in halves(group))
    group.begin_to_beat(join(GROUP, "new", "foo"))
    group.pass_time(2_000)
    first.rejoin()
    second.rejoin()
    group.beat(leave(GROUP, "new"))
    group.pass_time(2_000)
    assert sorted(chain.from_iterable(go_on(group, first, second))) == [0, 1, 2, 3]
    assert group.state() == ("consumer", "Stable")
    return group, first, second


def test_a_classic_member_that_comes_to_its_like_in_a_consumer_group_gets_its_share(
    left_to_classic_members: tuple[Driver, ClassicClient, ClassicClient],
) -> None:
    group, first, second = left_to_classic_members
    third = ClassicClient(group, group.joined(group.join(metadata=subscription(["foo"]))).member_id)
    third.rejoin()
    shares = go_on(group, first, second, third)
    assert sorted(chain.from_iterable(shares)) == [0, 1, 2, 3]
    assert sorted(map(len, shares)) == [1, 1, 2]


def test_what_a_classic_member_leaves_to_its_like_in_a_consumer_group_is_not_left_idle(
    left_to_classic_members: tuple[Driver, ClassicClient, ClassicClient],
) -> None:
    group, first, second = left_to_classic_members
    assert group.leave(second.member_id) is Error.NONE
    group.pass_time(1_000)
    assert go_on(group, first) == [[0, 1, 2, 3]]


def test_who_joins_and_leaves_a_group_that_is_classic_again_then_is_told_so() -> None:
    group = driver(assignment_interval_ms=1_000, gathering_ms=50)
    halves(group)
    call = group.begin_to_beat(join(GROUP, "new", "foo"))
    assert call not in group.answers
    group.beat(leave(GROUP, "new"))
    assert group.state()[0] == "classic"
    assert group.answered(call).error_code == Error.UNKNOWN_MEMBER_ID
