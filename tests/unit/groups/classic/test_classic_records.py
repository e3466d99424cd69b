"""A classic group as it is written and read back, described, and asked for its topics."""

from __future__ import annotations

import pytest

from barnabas.groups.classic.classic_group import ClassicGroup, ClassicGroupSettings, ClassicGroupState
from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import Error
from tests.unit.groups.classic.classic_driver import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, START_MS, Driver


@pytest.fixture
def driver() -> Driver:
    return Driver()


def subscription(*topics: str, version: int = 3) -> bytes:
    """What a consumer's assignor puts into its metadata: a version, then the subscription."""
    body = encode(m.ConsumerProtocolSubscription(topics=list(topics), generation_id=-1), version)
    return version.to_bytes(2, "big") + body


def test_the_record_holds_what_members_and_tools_need(driver: Driver) -> None:
    call = driver.join(instance_id="one", protocols=[("range", b"meta")])
    driver.pass_time(INITIAL_DELAY_MS)
    driver.sync(call.response, instance_id="one", assignments={"one-1": b"partitions"})
    key, value = driver.records[-1]
    assert key == m.GroupMetadataKey(group="readers")
    assert value == m.GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="one-1",
        current_state_timestamp=START_MS + INITIAL_DELAY_MS,
        members=[
            m.GroupMetadataValue.MemberMetadata(
                member_id="one-1",
                group_instance_id="one",
                client_id="app",
                client_host="/10.0.0.1",
                rebalance_timeout=REBALANCE_MS,
                session_timeout=SESSION_MS,
                subscription=b"meta",
                assignment=b"partitions",
            )
        ],
    )


def test_an_empty_group_is_written_without_members_and_with_the_time_it_became_empty(driver: Driver) -> None:
    (leader,) = driver.stable(1)
    driver.pass_time(1_000)
    driver.leave((leader.member_id, None))
    assert driver.records[-1].value == m.GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        current_state_timestamp=driver.now_ms,
        members=[],
    )


def test_a_restart_keeps_members_and_assignments_without_a_rebalance(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    before = driver.group.describe()
    driver.pass_time(SESSION_MS - 1)
    driver.restart()
    assert driver.group.describe() == before
    assert driver.group.members.leader_id == leader.member_id
    driver.pass_time(SESSION_MS - 1)
    for member in (leader, follower):
        assert driver.heartbeat(member.member_id) == Error.NONE
        assert driver.sync(member).response.assignment == member.member_id.encode()
    driver.pass_time(SESSION_MS - 1)
    assert driver.group.generation == 1


def test_members_that_do_not_show_up_after_a_restart_are_out_after_their_session(driver: Driver) -> None:
    driver.stable(2)
    driver.restart()
    driver.pass_time(SESSION_MS)
    assert driver.group.is_empty


def test_what_was_written_reads_back_as_it_was_written(driver: Driver) -> None:
    driver.stable(3)
    driver.restart()
    assert driver.group.record() == driver.records[-1]


def test_a_group_without_a_leader_has_yet_to_rebalance() -> None:
    member = m.GroupMetadataValue.MemberMetadata(
        member_id="m", session_timeout=7_000, rebalance_timeout=9_000, subscription=b"s"
    )
    value = m.GroupMetadataValue(protocol_type="consumer", generation=4, protocol="p", leader=None, members=[member])
    group = ClassicGroup.from_record("g", value, ClassicGroupSettings(), START_MS)
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    assert group.generation == 4
    assert group.join_deadline_ms == START_MS + 9_000


def test_a_group_of_another_program_may_name_a_leader_that_is_gone_and_no_rebalance_timeout() -> None:
    member = m.GroupMetadataValue.MemberMetadata(member_id="m", session_timeout=7_000, subscription=b"s")
    value = m.GroupMetadataValue(protocol_type="consumer", generation=4, protocol="p", leader="n", members=[member])
    group = ClassicGroup.from_record("g", value, ClassicGroupSettings(), START_MS)
    assert group.state is ClassicGroupState.STABLE
    assert group.members.leader_id == "m"
    assert group.members["m"].rebalance_timeout_ms == 7_000
    assert group.next_deadline_ms == START_MS + 7_000


def test_a_stable_group_describes_its_members_with_metadata_and_assignment(driver: Driver) -> None:
    (leader,) = driver.stable(1)
    assert driver.group.describe() == m.DescribeGroupsResponse.DescribedGroup(
        group_id="readers",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[
            m.DescribeGroupsResponse.DescribedGroupMember(
                member_id=leader.member_id,
                client_id="app",
                client_host="/10.0.0.1",
                member_metadata=b"R",
                member_assignment=leader.member_id.encode(),
            )
        ],
    )


def test_a_group_in_motion_describes_its_members_without_metadata(driver: Driver) -> None:
    driver.enter()
    described = driver.group.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in described.members] == [b""]


def test_an_unused_group_describes_itself_as_empty(driver: Driver) -> None:
    described = driver.group.describe()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "", [])
    assert driver.group.is_simple
    assert driver.group.can_be_deleted


def test_topics_are_those_that_any_member_subscribes_to(driver: Driver) -> None:
    assert driver.group.subscribed_topics() is None
    calls = [
        driver.enter(protocols=[("range", subscription("a", "b", version=0))]),
        driver.enter(protocols=[("range", subscription("b", "c", version=3))]),
    ]
    joined = driver.settle(*calls)
    assert driver.group.subscribed_topics() == frozenset({"a", "b", "c"})
    assert driver.group.is_subscribed_to("a")
    assert not driver.group.is_subscribed_to("d")
    driver.restart()
    assert driver.group.subscribed_topics() == frozenset({"a", "b", "c"})
    driver.leave(*[(member.member_id, None) for member in joined])
    assert driver.group.subscribed_topics() == frozenset()


def test_topics_of_consumers_with_metadata_of_their_own_are_unknown(driver: Driver) -> None:
    driver.settle(driver.enter(protocols=[("mine", b"\x00")]))
    assert driver.group.subscribed_topics() is None
    assert driver.group.is_subscribed_to("any")


def test_a_group_that_is_not_of_consumers_subscribes_to_nothing_that_is_known(driver: Driver) -> None:
    first = driver.join(version=3, protocol_type="connect")
    driver.pass_time(INITIAL_DELAY_MS)
    driver.sync(first.response, protocol_type="connect")
    assert driver.group.subscribed_topics() is None
    assert not driver.group.is_subscribed_to("any")
    assert not driver.group.uses_consumer_protocol


def test_a_static_member_that_comes_back_with_other_topics_changes_what_is_subscribed_to(driver: Driver) -> None:
    call = driver.join(instance_id="one", protocols=[("range", subscription("a"))])
    driver.settle(call, instance_ids=["one"])
    driver.join(instance_id="one", protocols=[("range", subscription("b"))])
    assert driver.group.subscribed_topics() == frozenset({"b"})
