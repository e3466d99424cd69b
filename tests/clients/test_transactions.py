"""Transactions with three client libraries: all of one is seen or nothing, and of two with one name the newer stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import (
    Client,
    ClientError,
    ConsumerOptions,
    GroupConsumer,
    Isolation,
    MemberOptions,
    Message,
    TransactionalProducer,
    values,
)
from tests.clients.with_confluent import ConfluentClient
from tests.clients.with_kafka_python import KafkaPythonClient
from tests.conftest import GROUP_SETTINGS
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.clients.conftest import Begin
    from tests.clients.members import Members
    from tests.conftest import MakeNode
    from tests.peers import Peer, PeerKind

LIBRDKAFKA_FENCED = -144
FENCED = {47, 90, LIBRDKAFKA_FENCED}
"""What the producer is told by the partition, by the coordinator, and by librdkafka itself."""
NO_LONGER_A_MEMBER = {22, 25, -1}
"""The generation is another, the member is unknown; kafka-python gives no code."""
READ_COMMITTED = ConsumerOptions(isolation="read_committed")
A_MOMENT_S = 0.5
"""How long a reader is watched that must not get anything."""


@pytest.fixture
def kept_topic(group_confluent: ConfluentClient, topic: str) -> str:
    """A topic of two partitions, empty."""
    create(group_confluent, topic)
    return topic


def create(client: Client, topic: str, partitions: int = 2) -> None:
    client.create_topic(topic, partitions=partitions)
    wait_until(lambda: topic in client.topic_names(), f"{topic} is there")


def seen(client: Client, topic: str, isolation: Isolation, partition: int = 0) -> list[bytes | None]:
    """Everything in a partition that such a reader gets, up to a record that is written after it."""
    last = f"last of {isolation}".encode()
    client.produce(topic, [Message(last)], partition=partition)
    received: list[bytes | None] = []
    with client.consumer(
        topic, "beginning", partition=partition, options=ConsumerOptions(isolation=isolation)
    ) as reader:
        while last not in received:
            (record,) = reader.receive(1)
            received.append(record.value)
    return [value for value in received if not (value or b"").startswith(b"last of")]


def texts(messages: Iterable[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def refusal(call: Callable[[], None]) -> int:
    with pytest.raises(ClientError) as refused:
        call()
    return refused.value.code


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    group_client: Client, begin: Begin, kept_topic: str, transactional_id: str
) -> None:
    """A reader that does not ask for committed records sees both."""
    producer = begin(group_client, transactional_id)
    written = {}
    for number in range(6):
        if number:
            producer.begin()
        written[number] = values(3, prefix=f"transaction {number}")
        producer.send(kept_topic, written[number])
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
    committed = [text for number in (0, 2, 3, 5) for text in texts(written[number])]
    assert seen(group_client, kept_topic, "read_committed") == committed
    everything = [text for messages in written.values() for text in texts(messages)]
    assert seen(group_client, kept_topic, "read_uncommitted") == everything


def test_an_open_transaction_holds_back_the_readers_of_committed_records(
    group_client: Client, begin: Begin, kept_topic: str, transactional_id: str
) -> None:
    group_client.produce(kept_topic, [Message(b"before")], partition=0)
    producer = begin(group_client, transactional_id)
    producer.send(kept_topic, [Message(b"within")])
    group_client.produce(kept_topic, [Message(b"after")], partition=0)
    with group_client.consumer(kept_topic, "beginning") as impatient:
        assert [each.value for each in impatient.receive(3)] == [b"before", b"within", b"after"]
    with group_client.consumer(kept_topic, "beginning", options=READ_COMMITTED) as patient:
        assert [each.value for each in patient.receive(1)] == [b"before"]
        assert patient.receive(1, A_MOMENT_S) == []
        producer.commit()
        assert [each.value for each in patient.receive(2)] == [b"within", b"after"]


def test_a_transaction_over_several_topics_and_partitions_is_seen_as_a_whole(
    group_client: Client, begin: Begin, kept_topic: str, transactional_id: str
) -> None:
    other = f"{kept_topic}-other"
    create(group_client, other)
    places = [(topic, partition) for topic in (kept_topic, other) for partition in range(2)]
    producer = begin(group_client, transactional_id)
    for end, text in ((producer.abort, "no"), (producer.commit, "yes")):
        for topic, partition in places:
            producer.send(topic, values(5, prefix=text), partition)
        end()
        producer.begin()
    producer.abort()
    for topic, partition in places:
        assert seen(group_client, topic, "read_committed", partition) == texts(values(5, prefix="yes"))


def test_a_second_producer_with_the_same_transactional_id_fences_the_first(
    group_client: Client, begin: Begin, kept_topic: str, transactional_id: str
) -> None:
    first = begin(group_client, transactional_id)
    first.send(kept_topic, [Message(b"of the first")])
    second = begin(group_client, transactional_id)
    second.send(kept_topic, [Message(b"of the second")])
    second.commit()

    def goes_on() -> None:
        first.send(kept_topic, [Message(b"late")])
        first.commit()

    assert refusal(goes_on) in FENCED
    assert seen(group_client, kept_topic, "read_committed") == [b"of the second"]


def test_a_producer_whose_transaction_is_over_cannot_commit_it_for_its_successor(
    group_client: Client, begin: Begin, kept_topic: str, transactional_id: str
) -> None:
    """It is fenced though it has nothing to write any more."""
    first = begin(group_client, transactional_id)
    first.send(kept_topic, [Message(b"of the first")])
    second = begin(group_client, transactional_id)
    second.send(kept_topic, [Message(b"of the second")])
    assert refusal(first.commit) in FENCED
    second.commit()
    assert seen(group_client, kept_topic, "read_committed") == [b"of the second"]


def test_a_transaction_that_takes_too_long_is_aborted(
    group_client: Client, begin: Begin, kept_topic: str, transactional_id: str
) -> None:
    """Whoever waited behind it goes on, and its producer is told."""
    slow = begin(group_client, transactional_id, 1_000)
    slow.send(kept_topic, [Message(b"too late")])
    group_client.produce(kept_topic, [Message(b"after")], partition=0)
    with group_client.consumer(kept_topic, "beginning", options=READ_COMMITTED) as reader:
        assert [each.value for each in reader.receive(1)] == [b"after"]
    with pytest.raises(ClientError):
        slow.commit()
    newer = begin(group_client, transactional_id)
    newer.send(kept_topic, [Message(b"in time")])
    newer.commit()
    assert seen(group_client, kept_topic, "read_committed") == [b"after", b"in time"]


def consume_process_produce(
    consumer: GroupConsumer, producer: TransactionalProducer, source: str, target: str, count: int
) -> None:
    """Answer each record of the source by one of the target, and go on from where the last commit was. Every third
    transaction is aborted at first; what it did is done again."""
    positions = dict.fromkeys(range(2), 0)
    turn = 0
    while sum(positions.values()) < count:
        records = consumer.poll()
        if not records:
            continue
        turn += 1
        ends = {partition: positions[partition] for partition in positions}
        for record in records:
            producer.send(target, [Message(b"processed " + (record.value or b""))], record.partition)
            ends[record.partition] = record.offset + 1
        offsets = {(source, partition): end for partition, end in ends.items() if end > positions[partition]}
        producer.send_offsets(offsets, consumer.group_metadata())
        if turn % 3 == 1:
            producer.abort()
            for _, partition in offsets:
                consumer.seek(source, partition, positions[partition])
        else:
            producer.commit()
            positions = ends
        producer.begin()
    producer.abort()


def test_what_is_consumed_and_what_is_produced_agree(
    group_client: Client, begin: Begin, kept_topic: str, group: str, transactional_id: str
) -> None:
    target = f"{kept_topic}-processed"
    create(group_client, target)
    for partition in range(2):
        group_client.produce(kept_topic, values(10, prefix=f"p{partition}"), partition=partition)
    options = MemberOptions(isolation="read_committed")
    consumer = group_client.group_consumer(group, [kept_topic], options)
    try:
        producer = begin(group_client, transactional_id)
        consume_process_produce(consumer, producer, kept_topic, target, 20)
        for partition in range(2):
            group_client.produce(kept_topic, values(5, prefix=f"more p{partition}"), partition=partition)
        assert group_client.committed_offsets(group) == {(kept_topic, partition): 10 for partition in range(2)}
    finally:
        consumer.close()
    for partition in range(2):
        expected = [b"processed " + (text or b"") for text in texts(values(10, prefix=f"p{partition}"))]
        assert seen(group_client, target, "read_committed", partition) == expected


@pytest.mark.parametrize("fenceable", [ConfluentClient, KafkaPythonClient], ids=lambda each: each.name)
def test_offsets_of_a_member_that_is_no_longer_in_the_group_are_refused(
    fenceable: type[Client],
    group_node: Peer,
    members: Members,
    begin: Begin,
    kept_topic: str,
    group: str,
    transactional_id: str,
) -> None:
    """Its producer cannot commit what it made of them. aiokafka does not say who the member is."""
    client = fenceable(group_node.bootstrap)
    client.produce(kept_topic, values(5), partition=0)
    zombie = members.join(client, group, [kept_topic])
    wait_until(lambda: len(zombie.received()) == 5, "it has the records")
    metadata = zombie.do(lambda consumer: consumer.group_metadata())
    zombie.close()
    heir = members.join(client, group, [kept_topic])
    wait_until(lambda: len(heir.received()) == 5, "another has them as well")
    producer = begin(client, transactional_id)
    producer.send(kept_topic, [Message(b"made of them")], 1)

    def commits() -> None:
        producer.send_offsets({(kept_topic, 0): 5}, metadata)
        producer.commit()

    assert refusal(commits) in NO_LONGER_A_MEMBER
    producer.abort()
    assert client.committed_offsets(group) == {}
    assert seen(client, kept_topic, "read_committed", 1) == []


@pytest.fixture(params=["stop", "kill"])
def ending(request: pytest.FixtureRequest) -> Callable[[Peer], None]:
    """The two ways in which a node ends."""
    return lambda node: node.stop() if request.param == "stop" else node.kill()


def test_transactions_go_on_when_their_node_is_started_again(
    make_node: MakeNode, begin: Begin, ending: Callable[[Peer], None], topic: str, group: str, transactional_id: str
) -> None:
    """One is committed, one is aborted, and one whose producer is gone is aborted by its successor."""
    node = make_node({**GROUP_SETTINGS, "offsets.topic.num.partitions": "3"})
    client = ConfluentClient(node.bootstrap)
    create(client, topic)
    commits, aborts, lost = (begin(client, f"{transactional_id}-{name}") for name in ("commits", "aborts", "lost"))
    for name, producer in (("commits", commits), ("aborts", aborts), ("lost", lost)):
        producer.send(topic, [Message(f"{name} before".encode())])
    member = client.group_consumer(group, [topic])
    try:
        wait_until(lambda: len(member.poll()) + len(member.assigned()) > 1, "it is a member")
        commits.send_offsets({(topic, 0): 1}, member.group_metadata())
        aborts.send_offsets({(topic, 1): 1}, member.group_metadata())
    finally:
        member.close()
    ending(node)
    node.start()
    commits.send(topic, [Message(b"commits after")])
    aborts.send(topic, [Message(b"aborts after")])
    commits.commit()
    aborts.abort()
    successor = begin(client, f"{transactional_id}-lost")
    successor.send(topic, [Message(b"of the successor")])
    successor.commit()
    expected = [b"commits before", b"commits after", b"of the successor"]
    assert seen(client, topic, "read_committed") == expected
    wait_until(lambda: client.committed_offsets(group) == {(topic, 0): 1}, "the offset of the committed one counts")
    ending(node)
    node.start()
    client = ConfluentClient(node.bootstrap)
    assert seen(client, topic, "read_committed") == expected
    assert client.committed_offsets(group) == {(topic, 0): 1}


def test_a_transaction_that_was_open_when_its_node_was_killed_does_not_stay_open(
    make_node: MakeNode, peer_kind: PeerKind, begin: Begin, topic: str, transactional_id: str
) -> None:
    """Its timeout goes on counting. If that ends while Apache Kafka starts, it counts the transaction as aborted and
    writes no marker, so that readers wait for ever: it gets the time to start."""
    node = make_node(GROUP_SETTINGS)
    client = ConfluentClient(node.bootstrap)
    create(client, topic)
    abandoned = begin(client, transactional_id, 2_000 if peer_kind == "barnabas" else 25_000)
    abandoned.send(topic, [Message(b"abandoned")])
    node.kill()
    node.start()
    assert seen(client, topic, "read_committed") == []
    assert seen(client, topic, "read_uncommitted") == [b"abandoned"]
