"""Well-formed requests of transactions that make no sense: any producer, any epoch, any version, in any order.

Each is answered, the connection lives on, and no stack trace is printed. What they came to is found again after a kill.
However wild the requests were, whoever begins properly afterwards ends all that was left open, and readers of committed
data get to the end of every partition.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import TRANSACTIONAL, batch
from tests.wire.connection import Connection
from tests.wire.groups import await_coordinator
from tests.wire.requests import create_topic, produce_request
from tests.wire.transactions import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Producer,
    add_partitions_request,
    await_transactions,
    describe,
    init,
    init_request,
    latest_offset,
    offsets_request,
    producers_of,
    read,
    verify_partitions_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.conftest import MakeNode
    from tests.peers import PeerKind
    from tests.wire.requests import Topic

SEED = 20_261_116
REQUESTS = 1_500
IDS = ("first", "second")
GROUP = "group"
STRANGER = Producer("first", 999_999, 0)
NUMBERS = (-1, 0, 1, 7, 2**31 - 1)

Asked = tuple["Any", int, type["Any"]]


class Fuzz:
    """Makes requests up. The producers that the node made known are used again, with epochs around theirs."""

    def __init__(self, chance: random.Random, topics: dict[str, Topic]) -> None:
        self._chance = chance
        self._topics = topics
        self.known = [STRANGER]
        self._kinds: list[Callable[[Producer], Asked]] = [
            self._init,
            self._add,
            self._add_group,
            self._commit_offsets,
            self._write,
            self._write,
            self._end,
        ]

    def request(self) -> Asked:
        found = self._chance.choice(self.known[-6:])
        epoch = found.epoch + self._chance.choice((0, 0, 0, 0, 0, 1, -1))
        name = self._chance.choice((found.transactional_id,) * 9 + ("", "other"))
        return self._chance.choice(self._kinds)(Producer(name, found.id, max(epoch, -1)))

    def _version(self, request: type[Any], lowest: int = 0) -> int:
        return self._chance.randint(lowest, APIS[request.api_key].max_version)

    def _some_partitions(self) -> dict[str, list[int]]:
        names = self._chance.sample((*self._topics, "gone", "__consumer_offsets"), self._chance.randint(0, 2))
        return {name: [self._chance.choice((0, 1, 9))] for name in names}

    def _init(self, producer: Producer) -> Asked:
        says_who = self._chance.random() < 0.4
        request = init_request(
            self._chance.choice((*IDS, "", None)),
            timeout_ms=self._chance.choice((60_000, 60_000, 60_000, *NUMBERS)),
            producer_id=producer.id if says_who else -1,
            epoch=producer.epoch if says_who else -1,
        )
        return request, self._version(m.InitProducerIdRequest, 3), m.InitProducerIdResponse

    def _add(self, producer: Producer) -> Asked:
        version = self._version(m.AddPartitionsToTxnRequest)
        is_verifying = version >= 4 and self._chance.random() < 0.3
        make = verify_partitions_request if is_verifying else add_partitions_request
        return make(producer, self._some_partitions(), version), version, m.AddPartitionsToTxnResponse

    def _add_group(self, producer: Producer) -> Asked:
        request = m.AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=self._chance.choice((GROUP, "")),
        )
        return request, self._version(m.AddOffsetsToTxnRequest), m.AddOffsetsToTxnResponse

    def _commit_offsets(self, producer: Producer) -> Asked:
        offsets = {self._chance.choice((0, 9)): self._chance.choice(NUMBERS)}
        request = offsets_request(
            producer, self._chance.choice((GROUP, "")), self._chance.choice(("a", "gone")), offsets
        )
        return request, self._version(m.TxnOffsetCommitRequest), m.TxnOffsetCommitResponse

    def _write(self, producer: Producer) -> Asked:
        version = self._version(m.ProduceRequest, 3)
        attributes, epoch = self._chance.choice((TRANSACTIONAL, TRANSACTIONAL, 0)), max(producer.epoch, 0)
        if not attributes:
            # A write outside of transactions brings its epoch along. One that nobody gave out would shut out the
            # transactions of the real producer, and after that Kafka does not come to an end with them.
            epoch = min(epoch, max(each.epoch for each in self.known if each.id == producer.id))
        records = batch(
            [b"v"] * self._chance.randint(1, 2),
            attributes=attributes,
            producer_id=producer.id,
            producer_epoch=epoch,
            base_sequence=self._chance.choice((0, 0, 1, 2)),
        )
        topic = self._topics[self._chance.choice(tuple(self._topics))]
        request = produce_request(topic, records, version, partition=self._chance.choice((0, 1)))
        request.transactional_id = self._chance.choice((producer.transactional_id,) * 9 + (None,))
        request.acks = self._chance.choice((-1, 1))
        return request, version, m.ProduceResponse

    def _end(self, producer: Producer) -> Asked:
        request = m.EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=self._chance.random() < 0.5,
        )
        return request, self._version(m.EndTxnRequest), m.EndTxnResponse

    def answered(self, request: Any, answer: Any) -> None:
        if isinstance(answer, m.InitProducerIdResponse | m.EndTxnResponse) and answer.error_code == Error.NONE:
            name, producer_id = request.transactional_id, answer.producer_id
            if name and producer_id >= 0:
                self.known.append(Producer(name, producer_id, answer.producer_epoch))


def await_no_decision(connection: Connection, transactional_id: str) -> None:
    """Returns when what was decided is known to all partitions."""
    wait_until(
        lambda: not describe(connection, transactional_id).state.startswith("Prepare"),
        f"{transactional_id} has ended, if it was to",
    )


def look(connection: Connection, topics: dict[str, Topic]) -> list[object]:
    """All that a partition's leader tells of its transactions: what readers get, and whose are open."""
    return [
        (
            read(connection, topic, isolation_level, partition=partition),
            producers_of(connection, topic.name, partition),
        )
        for topic in topics.values()
        for partition in (0, 1)
        for isolation_level in (READ_UNCOMMITTED, READ_COMMITTED)
    ]


def test_requests_that_make_no_sense_are_answered_and_leave_nothing_open(
    make_node: MakeNode, peer_kind: PeerKind
) -> None:
    node: Any = make_node({"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"})
    with Connection(node.port) as connection:
        await_coordinator(connection, GROUP)
        await_transactions(connection, *IDS)
        topics = {name: create_topic(connection, name, partitions=2) for name in ("a", "b")}
        fuzz = Fuzz(random.Random(SEED), topics)
        for _ in range(REQUESTS):
            request, version, response = fuzz.request()
            fuzz.answered(request, connection.call(request, version, response))
        assert len(fuzz.known) > REQUESTS // 50, "some requests make sense after all"
        for name in IDS:
            await_no_decision(connection, name)
        seen = look(connection, topics)
    node.kill()
    node.start()
    with Connection(node.port) as connection:
        await_transactions(connection, *IDS)
        assert look(connection, topics) == seen
        for name in IDS:
            init(connection, init_request(name))
        for topic in topics.values():
            for partition in (0, 1):
                end = latest_offset(connection, topic, READ_UNCOMMITTED, partition=partition)
                assert end > 0
                assert latest_offset(connection, topic, READ_COMMITTED, partition=partition) == end
    if peer_kind == "barnabas":
        assert "Traceback" not in node.log_text()
