"""Members that stop, die, or are cut off, and a node that goes away: the group goes on without losing its place."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from tests.clients.adapter import ClientError, MemberOptions, values
from tests.clients.member_process import MemberProcess
from tests.clients.members import Members, is_shared, owned, receive, settle
from tests.clients.proxy import CuttingProxy
from tests.clients.with_confluent import ConfluentClient
from tests.conftest import GROUP_SETTINGS
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeNode
    from tests.peers import Peer

PARTITIONS = 4
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION = 25, 22
SHORT = MemberOptions(session_timeout_ms=1_000)
LONG = MemberOptions(session_timeout_ms=45_000)


@pytest.fixture
def shared_topic(group_confluent: ConfluentClient, topic: str) -> str:
    """A topic for a group to share, empty."""
    group_confluent.create_topic(topic, partitions=PARTITIONS)
    return topic


def test_the_partitions_of_a_killed_member_move_after_its_session_timeout(
    group_confluent: ConfluentClient, group_node: Peer, members: Members, shared_topic: str, group: str
) -> None:
    """There are more members than partitions: one that had none may take over."""
    joined = [members.join(group_confluent, group, [shared_topic], SHORT) for _ in range(4)]
    with MemberProcess(group_node.bootstrap, group, [shared_topic], SHORT) as doomed:
        doomed.poll_until_ended()  # or it would hold up whoever comes, or comes again, after it
        settle(joined, lambda: owned(joined) in ([1, 1, 1, 0], [1, 1, 1, 1]), "the group is stable")
        wait_until(lambda: len(group_confluent.describe_group(group).members) == 5, "all five are members")
        doomed.kill()
        killed = time.monotonic()
        settle(
            joined,
            lambda: (
                len(group_confluent.describe_group(group).members) == 4 and is_shared(joined, shared_topic, PARTITIONS)
            ),
            "the others have all partitions",
        )
    assert time.monotonic() - killed > SHORT.session_timeout_ms / 1000 / 2
    assert owned(joined) == [1, 1, 1, 1]


def test_what_a_member_had_not_committed_when_it_was_killed_comes_again(
    group_confluent: ConfluentClient, group_node: Peer, members: Members, shared_topic: str, group: str
) -> None:
    """Its automatic commit was still to come."""
    group_confluent.produce(shared_topic, values(20), partition=0)
    options = MemberOptions(session_timeout_ms=1_000, auto_commit_interval_ms=60_000)
    with MemberProcess(group_node.bootstrap, group, [shared_topic], options) as doomed:
        assert doomed.poll_until_received(20) == [(0, offset) for offset in range(20)]
        assert doomed.commit({(shared_topic, 0): 12}) == 0
        doomed.kill()
        heir = members.join(group_confluent, group, [shared_topic], SHORT)
        assert [record.offset for record in receive([heir], 8)] == list(range(12, 20))


def test_the_late_commit_of_a_member_that_stood_still_is_refused(
    group_confluent: ConfluentClient, group_node: Peer, members: Members, shared_topic: str, group: str
) -> None:
    group_confluent.produce(shared_topic, values(20), partition=0)
    with MemberProcess(group_node.bootstrap, group, [shared_topic], SHORT) as zombie:
        assert len(zombie.poll_until_received(20)) == 20
        assert zombie.commit({(shared_topic, 0): 5}) == 0
        os.kill(zombie.pid, signal.SIGSTOP)
        heir = members.join(group_confluent, group, [shared_topic], SHORT)
        receive([heir], 15)
        heir.commit({(shared_topic, 0): 20})
        zombie.send_commit({(shared_topic, 0): 10})
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.result_of_commit() in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION)
    assert group_confluent.committed_offsets(group) == {(shared_topic, 0): 20}


def test_a_member_that_a_signal_ends_leaves_at_once(
    group_confluent: ConfluentClient, group_node: Peer, members: Members, shared_topic: str, group: str
) -> None:
    """Long before its session would time out."""
    with MemberProcess(group_node.bootstrap, group, [shared_topic], LONG) as ended:
        assert len(ended.poll_until_assigned(PARTITIONS)) == PARTITIONS
        heir = members.join(group_confluent, group, [shared_topic], LONG)
        ended.poll_until_ended()
        settle([heir], lambda: owned([heir]) == [2], "they share")
        os.kill(ended.pid, signal.SIGTERM)
        assert ended.wait() == 0
        settle([heir], lambda: owned([heir]) == [4], "the other has everything", deadline_s=10)


def test_a_member_that_is_not_polled_gives_its_partitions_up(
    group_confluent: ConfluentClient, members: Members, shared_topic: str, group: str
) -> None:
    options = MemberOptions(session_timeout_ms=1_000, max_poll_interval_ms=1_000)
    busy, other = (members.join(group_confluent, group, [shared_topic], options) for _ in range(2))
    settle([busy, other], lambda: owned([busy, other]) == [2, 2], "they share")
    busy.stop_polling()
    settle([other], lambda: owned([other]) == [4], "the other has everything")
    busy.poll_again()
    wait_until(lambda: busy.failure is not None, "the busy one is told")
    assert isinstance(busy.failure, ClientError)
    assert busy.failure.code == confluent_kafka.KafkaError._MAX_POLL_EXCEEDED
    assert owned([other]) == [4]


def test_members_whose_connections_are_cut_keep_their_partitions(make_node: MakeNode, topic: str, group: str) -> None:
    """They come back within their sessions, and nothing is lost."""
    with CuttingProxy(1, request_bytes=(0, 0), response_bytes=(0, 0)) as proxy, contextlib.ExitStack() as closing:
        proxy.calm()
        node = make_node(
            {
                **GROUP_SETTINGS,
                "offsets.topic.num.partitions": "2",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
            }
        )
        proxy.target_port = node.port
        client = ConfluentClient(f"127.0.0.1:{proxy.port}")
        client.create_topic(topic, partitions=PARTITIONS)
        members = closing.enter_context(contextlib.closing(Members()))
        joined = [members.join(client, group, [topic], LONG) for _ in range(2)]
        settle(joined, lambda: is_shared(joined, topic, PARTITIONS), "they share")
        ids = set(client.describe_group(group).members)
        assignments = [len(member.assignments) for member in joined]
        before = proxy.cuts
        proxy.unleash()
        wait_until(lambda: proxy.cuts >= before + 4, "connections were cut")
        proxy.calm()
        for partition in range(PARTITIONS):
            client.produce(topic, values(5), partition=partition)
        receive(joined, 5 * PARTITIONS)
        for member in joined:
            member.commit()
        assert client.committed_offsets(group) == {(topic, partition): 5 for partition in range(PARTITIONS)}
        assert set(client.describe_group(group).members) == ids
        assert [len(member.assignments) for member in joined] == assignments


@pytest.fixture(params=["stop", "kill"])
def ending(request: pytest.FixtureRequest) -> Callable[[Peer], None]:
    """The two ways in which a node ends."""
    return lambda node: node.stop() if request.param == "stop" else node.kill()


def test_a_restarted_node_has_its_groups_and_their_offsets_and_no_member_notices(
    make_node: MakeNode, members: Members, ending: Callable[[Peer], None], topic: str, group: str
) -> None:
    node = make_node({**GROUP_SETTINGS, "offsets.topic.num.partitions": "3"})
    client = ConfluentClient(node.bootstrap)
    client.create_topic(topic, partitions=PARTITIONS)
    joined = [members.join(client, group, [topic], LONG) for _ in range(3)]
    settle(joined, lambda: is_shared(joined, topic, PARTITIONS), "they share")
    client.produce(topic, values(10), partition=0)
    receive(joined, 10)
    (owner,) = [member for member in joined if (topic, 0) in member.assigned()]
    owner.commit({(topic, 0): 7})
    client.alter_offsets(f"{group}-b", {(topic, 1): 3})
    before = client.describe_group(group)
    assigned = [member.assigned() for member in joined]
    assignments = [len(member.assignments) for member in joined]
    ending(node)
    node.start()
    client = ConfluentClient(node.bootstrap)
    wait_until(lambda: is_described(client, group), "the group is there")
    assert client.describe_group(group) == before
    assert client.committed_offsets(group) == {(topic, 0): 7}
    assert client.committed_offsets(f"{group}-b") == {(topic, 1): 3}
    client.produce(topic, values(5), partition=0)
    assert [record.offset for record in receive(joined, 5)] == [10, 11, 12, 13, 14]
    owner.commit({(topic, 0): 15})
    assert [member.assigned() for member in joined] == assigned
    assert [len(member.assignments) for member in joined] == assignments
    assert set(client.describe_group(group).members) == set(before.members)


def is_described(client: ConfluentClient, group: str) -> bool:
    """Whether the coordinator has loaded the group."""
    try:
        return client.describe_group(group).state == "Stable"
    except ClientError:
        return False
