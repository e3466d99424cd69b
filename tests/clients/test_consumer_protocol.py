"""Groups of the next-generation protocol with librdkafka: the broker assigns, and only what moves stands still."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType

from tests.clients.adapter import ClientError, MemberOptions, Message, TopicPartition, values
from tests.clients.member_process import MemberProcess
from tests.clients.members import Member, Members, owned, receive, settle
from tests.clients.with_confluent import ConfluentClient
from tests.conftest import GROUP_SETTINGS
from tests.peers import wait_until
from tests.wire.connection import Connection
from tests.wire.consumer_groups import configure

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.conftest import Begin
    from tests.conftest import MakeNode
    from tests.peers import Peer

PARTITIONS = 4
UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH = 25, 110, 113
MODERN = MemberOptions(protocol="consumer")
CLASSIC = MemberOptions(assignor="range")


@pytest.fixture
def shared_topic(group_confluent: ConfluentClient, topic: str) -> str:
    """A topic for a group to share, empty."""
    create(group_confluent, topic)
    return topic


def create(client: ConfluentClient, topic: str, partitions: int = PARTITIONS) -> None:
    client.create_topic(topic, partitions=partitions)
    wait_until(lambda: topic in client.topic_names(), f"{topic} is there")


def shorten_session(node: Peer, group: str) -> None:
    """A member of the group that is not heard of for a second is thrown out."""
    with Connection(node.port) as connection:
        assert configure(connection, group, {"consumer.session.timeout.ms": "1000"}) == 0


def fill(client: ConfluentClient, topic: str) -> set[bytes | None]:
    """Five records for each partition; their values."""
    written: set[bytes | None] = set()
    for partition in range(PARTITIONS):
        messages = [Message(f"{topic} {partition} {n}".encode()) for n in range(5)]
        client.produce(topic, messages, partition=partition)
        written |= {message.value for message in messages}
    return written


def test_members_share_the_partitions_as_they_come(
    group_confluent: ConfluentClient, members: Members, shared_topic: str, group: str
) -> None:
    """4, then 2 and 2, then 1 each, then one member idle; another group sees everything."""
    joined: list[Member] = []
    for count, expected in ((1, [4]), (2, [2, 2]), (4, [1, 1, 1, 1]), (5, [1, 1, 1, 1, 0])):
        while len(joined) < count:
            joined.append(members.join(group_confluent, group, [shared_topic], MODERN))
        settle(joined, partial(is_spread, joined, shared_topic, expected), f"{count} members have all partitions")
    written = fill(group_confluent, shared_topic)
    assert {record.value for record in receive(joined, len(written))} == written
    other = members.join(group_confluent, f"{group}-other", [shared_topic], MODERN)
    assert {record.value for record in receive([other], len(written))} == written


def is_spread(members: list[Member], topic: str, expected: list[int]) -> bool:
    """Whether each partition has one owner, and the members have so many each."""
    assigned = sorted(partition for member in members for partition in member.assigned())
    return assigned == [(topic, partition) for partition in range(PARTITIONS)] and owned(members) == expected


def test_what_does_not_move_is_consumed_without_a_pause(
    group_confluent: ConfluentClient, members: Members, shared_topic: str, group: str
) -> None:
    stays = members.join(group_confluent, group, [shared_topic], MODERN)
    settle([stays], lambda: owned([stays]) == [4], "the first has them all")
    had = stays.assigned()
    joins = members.join(group_confluent, group, [shared_topic], MODERN)
    settle([stays, joins], lambda: is_spread([stays, joins], shared_topic, [2, 2]), "both have two")
    assert [each for each in stays.revocations if each] == [had - stays.assigned()]
    assert [each for each in stays.assignments if each] == [had]
    joins.close()
    settle([stays], lambda: owned([stays]) == [4], "the first has them all again")
    assert len([each for each in stays.revocations if each]) == 1


@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_two_topics_of_three_partitions_are_assigned_to_two_members(
    group_confluent: ConfluentClient, members: Members, topic: str, group: str, assignor: Literal["range", "uniform"]
) -> None:
    names = [f"{topic}-1", f"{topic}-2"]
    for name in names:
        create(group_confluent, name, 3)
    options = replace(MODERN, remote_assignor=assignor)
    joined = [members.join(group_confluent, group, names, options) for _ in range(2)]
    everything = {(name, partition) for name in names for partition in range(3)}
    lower = {(name, partition) for name in names for partition in range(2)}

    def is_assigned() -> bool:
        shares = [member.assigned() for member in joined]
        if assignor == "uniform":
            return [len(share) for share in shares] == [3, 3] and shares[0] | shares[1] == everything
        return shares in ([lower, everything - lower], [everything - lower, lower])

    settle(joined, is_assigned, f"the members have what {assignor} gives them")


def test_a_static_member_that_restarts_in_time_keeps_its_partitions_and_the_others_theirs(
    group_confluent: ConfluentClient, members: Members, shared_topic: str, group: str
) -> None:
    def start(name: str) -> Member:
        return members.join(group_confluent, group, [shared_topic], replace(MODERN, instance_id=name, client_id=name))

    static = {name: start(name) for name in "abc"}
    settle([*static.values()], lambda: is_spread([*static.values()], shared_topic, [2, 1, 1]), "all are assigned")
    before = {name: static[name].assigned() for name in static}
    rebalances = {name: len(static[name].assignments) for name in "ac"}
    static["b"].close()
    static["b"] = start("b")
    settle([*static.values()], lambda: static["b"].assigned() == before["b"], "the member has its own again")
    written = fill(group_confluent, shared_topic)
    assert {record.value for record in receive([*static.values()], len(written))} == written
    assert {name: static[name].assigned() for name in static} == before
    assert {name: len(static[name].assignments) for name in "ac"} == rebalances
    described = group_confluent.describe_group(group)
    assert {each.client_id: each.assigned for each in described.members.values()} == before


def test_a_topic_that_is_made_later_is_found_by_a_pattern(
    group_confluent: ConfluentClient, members: Members, topic: str, group: str
) -> None:
    """The broker looks again a few seconds after the topics have changed."""
    create(group_confluent, f"test.{topic}.a", 1)
    member = members.join(group_confluent, group, [f"^test.{topic}.*"], MODERN)
    settle([member], lambda: member.assigned() == {(f"test.{topic}.a", 0)}, "the first topic is assigned")
    create(group_confluent, f"test.{topic}.b", 1)
    both: set[TopicPartition] = {(f"test.{topic}.a", 0), (f"test.{topic}.b", 0)}
    settle([member], lambda: member.assigned() == both, "the new topic is assigned as well")


def test_the_partitions_of_a_killed_member_move_after_its_session(
    group_confluent: ConfluentClient, group_node: Peer, members: Members, shared_topic: str, group: str
) -> None:
    shorten_session(group_node, group)
    with MemberProcess(group_node.bootstrap, group, [shared_topic], MODERN) as doomed:
        assert len(doomed.poll_until_assigned(PARTITIONS)) == PARTITIONS
        doomed.kill()
        heir = members.join(group_confluent, group, [shared_topic], MODERN)
        settle([heir], lambda: owned([heir]) == [PARTITIONS], "the other has everything")


def test_the_late_commit_of_a_member_that_stood_still_is_refused(
    group_confluent: ConfluentClient, group_node: Peer, members: Members, shared_topic: str, group: str
) -> None:
    shorten_session(group_node, group)
    group_confluent.produce(shared_topic, values(20), partition=0)
    with MemberProcess(group_node.bootstrap, group, [shared_topic], MODERN) as zombie:
        assert len(zombie.poll_until_received(20)) == 20
        assert zombie.commit({(shared_topic, 0): 5}) == 0
        os.kill(zombie.pid, signal.SIGSTOP)
        heir = members.join(group_confluent, group, [shared_topic], MODERN)
        receive([heir], 15)
        heir.commit({(shared_topic, 0): 20})
        zombie.send_commit({(shared_topic, 0): 10})
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.result_of_commit() in (UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH)
    assert group_confluent.committed_offsets(group) == {(shared_topic, 0): 20}


@pytest.fixture(params=["stop", "kill"])
def ending(request: pytest.FixtureRequest) -> Callable[[Peer], None]:
    """The two ways in which a node ends."""
    return lambda node: node.stop() if request.param == "stop" else node.kill()


def test_a_restarted_node_has_its_groups_and_no_member_notices(
    make_node: MakeNode, members: Members, ending: Callable[[Peer], None], topic: str, group: str
) -> None:
    node = make_node({**GROUP_SETTINGS, "offsets.topic.num.partitions": "3"})
    client = ConfluentClient(node.bootstrap)
    create(client, topic)
    joined = [members.join(client, group, [topic], MODERN) for _ in range(2)]
    settle(joined, lambda: is_spread(joined, topic, [2, 2]), "they share")
    client.produce(topic, values(10), partition=0)
    receive(joined, 10)
    (owner,) = [member for member in joined if (topic, 0) in member.assigned()]
    owner.commit({(topic, 0): 7})
    assigned = [member.assigned() for member in joined]
    assignments = [len(member.assignments) for member in joined]
    ids = set(client.describe_group(group).members)
    ending(node)
    node.start()
    client = ConfluentClient(node.bootstrap)
    client.produce(topic, values(5), partition=0)
    assert [record.offset for record in receive(joined, 5)] == [10, 11, 12, 13, 14]
    assert client.committed_offsets(group) == {(topic, 0): 7}
    owner.commit({(topic, 0): 15})
    assert [member.assigned() for member in joined] == assigned
    assert [len(member.assignments) for member in joined] == assignments
    assert set(client.describe_group(group).members) == ids


@pytest.mark.parametrize(("before", "after"), [(CLASSIC, MODERN), (MODERN, CLASSIC)], ids=["upgrade", "downgrade"])
def test_a_group_changes_its_protocol_member_by_member(
    group_confluent: ConfluentClient,
    members: Members,
    shared_topic: str,
    group: str,
    before: MemberOptions,
    after: MemberOptions,
) -> None:
    """No record is lost, none that was committed comes again, and the group is never without its partitions."""
    joined = [members.join(group_confluent, group, [shared_topic], before) for _ in range(2)]
    settle(joined, lambda: is_spread(joined, shared_topic, [2, 2]), "they share")
    for number in range(2):
        consume_and_commit(group_confluent, joined, shared_topic)
        joined[number].close()
        joined[number] = members.join(group_confluent, group, [shared_topic], after)
        settle(joined, lambda: is_spread(joined, shared_topic, [2, 2]) and is_stable(group_confluent, group), "shared")
    consume_and_commit(group_confluent, joined, shared_topic)
    assert group_confluent.committed_offsets(group) == {(shared_topic, each): 15 for each in range(PARTITIONS)}
    assert kind_of(group_confluent, group) == (
        ConsumerGroupType.CONSUMER if after is MODERN else ConsumerGroupType.CLASSIC
    )


def is_stable(client: ConfluentClient, group: str) -> bool:
    """Whether no member has a rebalance ahead of it, in which it would forget how far it has read."""
    state: ConsumerGroupState = client._admin().describe_consumer_groups([group])[group].result(30).state
    return state is ConsumerGroupState.STABLE


def consume_and_commit(client: ConfluentClient, members: list[Member], topic: str) -> None:
    written = fill(client, topic)
    assert {record.value for record in receive(members, len(written))} == written
    for member in members:
        member.commit()


def kind_of(client: ConfluentClient, group: str) -> ConsumerGroupType:
    described = client._admin().describe_consumer_groups([group])[group].result(30)
    kind: ConsumerGroupType = described.type
    return kind


def test_an_operator_sees_what_kind_of_group_it_is(
    group_confluent: ConfluentClient, members: Members, shared_topic: str, group: str
) -> None:
    modern = members.join(group_confluent, group, [shared_topic], replace(MODERN, client_id="modern"))
    classic = members.join(group_confluent, f"{group}-classic", [shared_topic])
    settle([modern, classic], lambda: owned([modern, classic]) == [4, 4], "both are assigned")
    described = group_confluent.describe_group(group)
    assert (described.state, described.assignor) == ("Stable", "uniform")
    (member,) = described.members.values()
    assert (member.client_id, set(member.assigned)) == ("modern", modern.assigned())
    assert kind_of(group_confluent, group) == ConsumerGroupType.CONSUMER
    assert kind_of(group_confluent, f"{group}-classic") == ConsumerGroupType.CLASSIC
    for kind, name in ((ConsumerGroupType.CONSUMER, group), (ConsumerGroupType.CLASSIC, f"{group}-classic")):
        listed = group_confluent._admin().list_consumer_groups(types={kind}).result(30).valid
        (found,) = [each for each in listed if each.group_id in (group, f"{group}-classic")]
        assert (found.group_id, found.type, found.state) == (name, kind, ConsumerGroupState.STABLE)


def test_offsets_of_a_member_are_committed_with_a_transaction_and_refused_when_it_is_gone(
    group_confluent: ConfluentClient,
    begin: Begin,
    members: Members,
    shared_topic: str,
    group: str,
    transactional_id: str,
) -> None:
    group_confluent.produce(shared_topic, values(5), partition=0)
    member = members.join(group_confluent, group, [shared_topic], MODERN)
    receive([member], 5)
    producer = begin(group_confluent, transactional_id)
    producer.send_offsets({(shared_topic, 0): 3}, member.do(lambda consumer: consumer.group_metadata()))
    producer.commit()
    wait_until(
        lambda: group_confluent.committed_offsets(group) == {(shared_topic, 0): 3},
        "the offset of the transaction counts",
    )
    stale = member.do(lambda consumer: consumer.group_metadata())
    member.close()
    producer.begin()
    with pytest.raises(ClientError) as refused:
        producer.send_offsets({(shared_topic, 0): 5}, stale)
    assert refused.value.code == UNKNOWN_MEMBER_ID
    producer.abort()
    assert group_confluent.committed_offsets(group) == {(shared_topic, 0): 3}
