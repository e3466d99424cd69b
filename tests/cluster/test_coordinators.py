"""Groups and transactions go on when the node of their coordinator is gone.

Each of their topics has one partition, so that all of them have the same coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import MemberOptions, Message, values
from tests.clients.committed import read_committed
from tests.clients.conftest import LIBRARIES
from tests.clients.members import is_shared, receive, settle
from tests.clients.with_confluent import ConfluentClient
from tests.clients.with_kafka_python import KafkaPythonClient
from tests.cluster.clusters import QUICK, create_replicated, leader_of, make_whole, running, wait_until
from tests.conftest import GROUP_SETTINGS
from tests.nodes import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.clients.adapter import Client, Received, TransactionalProducer
    from tests.clients.conftest import Begin
    from tests.clients.members import Members

PARTITIONS = 3
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SETTINGS = {
    **QUICK,
    **GROUP_SETTINGS,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
MODERN = MemberOptions(protocol="consumer")
CLASSIC = MemberOptions()
NEEDS_THE_NODE = KafkaPythonClient.name
"""kafka-python 3.0.12 forgets what it wanted of a coordinator that refuses its connection, and waits for ever: it ends
its transactions when the node is back, and hears from it that another one coordinates them."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("coordinators"), settings=SETTINGS) as started:
        yield started


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[list[Client]]:
    """The three libraries. What a test has ended runs again after it."""
    yield [library(running(cluster)) for library in LIBRARIES]
    make_whole(cluster)


@pytest.fixture(params=["kill", "stop_node"])
def end_coordinator(request: pytest.FixtureRequest, cluster: Cluster) -> Callable[[str], None]:
    """Ends the node that coordinates what a topic of coordinators remembers, in one of two ways, and waits until
    another does."""

    def end(topic: str) -> None:
        coordinator = leader_of(cluster, topic)
        getattr(cluster, request.param)(coordinator)
        wait_until(lambda: leader_of(cluster, topic) not in (coordinator, -1), f"another node leads {topic}")

    return end


class Group:
    """Two members of one library that share a topic of their own."""

    def __init__(self, cluster: Cluster, client: Client, name: str, members: Members, options: MemberOptions) -> None:
        self.cluster = cluster
        self.client = client
        self.name = name
        self.members = [members.join(client, name, [name], options) for _ in range(2)]

    def settle(self) -> None:
        settle(self.members, lambda: is_shared(self.members, self.name, PARTITIONS), f"{self.name} is shared")

    def consume_and_commit(self, end: int) -> None:
        """Up to this offset in each partition; nothing comes that has come before."""
        for partition in range(PARTITIONS):
            self.client.produce(self.name, values(5), partition=partition)
        assert {(record.partition, record.offset) for record in receive(self.members, 5 * PARTITIONS)} == {
            (partition, offset) for partition in range(PARTITIONS) for offset in range(end - 5, end)
        }
        for member in self.members:
            member.commit()
        expected = {(self.name, partition): end for partition in range(PARTITIONS)}
        assert self.operator().committed_offsets(self.name) == expected

    def operator(self) -> Client:
        """Somebody who comes now, and knows of no coordinator that is gone: librdkafka may wait for one in vain."""
        return type(self.client)(running(self.cluster))

    def member_ids(self) -> set[str]:
        return set(self.operator().describe_group(self.name).members)

    def shares(self) -> list[tuple[set[tuple[str, int]], int]]:
        """What each member has, and by how many assignments it got there."""
        return [(member.assigned(), len(member.assignments)) for member in self.members]


def test_groups_go_on_with_another_coordinator_and_no_member_notices(
    cluster: Cluster,
    clients: list[Client],
    members: Members,
    end_coordinator: Callable[[str], None],
    group: str,
) -> None:
    """Of both protocols; librdkafka alone has the newer one."""
    kinds = [*((client, CLASSIC) for client in clients), (ConfluentClient(running(cluster)), MODERN)]
    for client, options in kinds:
        create_replicated(cluster, f"{group}-{client.name}-{options.protocol}", PARTITIONS, min_insync_replicas="2")
    groups = [
        Group(cluster, client, f"{group}-{client.name}-{options.protocol}", members, options)
        for client, options in kinds
    ]
    for each in groups:
        each.settle()
        each.consume_and_commit(5)
    shares = [each.shares() for each in groups]
    ids = [each.member_ids() for each in groups]
    end_coordinator(GROUPS)
    for each in groups:
        each.consume_and_commit(10)
    assert [each.shares() for each in groups] == shares
    assert [each.member_ids() for each in groups] == ids


def test_transactions_go_on_with_another_coordinator(
    cluster: Cluster,
    clients: list[Client],
    begin: Begin,
    end_coordinator: Callable[[str], None],
    topic: str,
    transactional_id: str,
) -> None:
    """Each over partitions of three leaders. One is committed, one is aborted, and one is left to its timeout."""
    create_replicated(cluster, topic, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], min_insync_replicas="2")
    committing = {client.name: begin(client, f"{transactional_id}-{client.name}-commits") for client in clients}
    aborting = {client.name: begin(client, f"{transactional_id}-{client.name}-aborts") for client in clients}
    leaving = {client.name: begin(client, f"{transactional_id}-{client.name}-leaves", 5_000) for client in clients}
    for producers in (committing, aborting, leaving):
        send_everywhere(producers, topic, "before")
    end_coordinator(TRANSACTIONS)
    for producers in (committing, aborting):
        send_everywhere(producers, topic, "after")
    for name in (*(set(committing) - {NEEDS_THE_NODE}), NEEDS_THE_NODE):
        if name == NEEDS_THE_NODE:
            make_whole(cluster)
        committing[name].commit()
        aborting[name].abort()
    for name, producer in committing.items():
        producer.begin()
        producer.send(topic, [Message(f"{name} next".encode())], 0)
        producer.commit()
    count = len(clients) * (2 * PARTITIONS + 1)
    found: list[Received] = []

    def are_all_there() -> bool:
        """A reader is held back until the transactions that nobody ends have been aborted."""
        found[:] = read_committed(running(cluster), topic, PARTITIONS)
        return len(found) >= count

    wait_until(are_all_there, "all that was committed is seen")
    for partition in range(PARTITIONS):
        for client in clients:
            expected = [f"{client.name} before", f"{client.name} after"]
            if partition == 0:
                expected.append(f"{client.name} next")
            records = [(each.value or b"").decode() for each in found if each.partition == partition]
            assert [each for each in records if each.startswith(client.name)] == expected, f"partition {partition}"


def send_everywhere(producers: dict[str, TransactionalProducer], topic: str, when: str) -> None:
    for name, producer in producers.items():
        for partition in range(PARTITIONS):
            producer.send(topic, [Message(f"{name} {when}".encode())], partition)
