"""Batches on their way to leaders that die or hand over in the meantime, as a test tells them to."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from barnabas.client.cluster import Cluster
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import read_header
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Error
from barnabas.spark.columnar.record_encoding import Author, Batch
from barnabas.spark.write.producer import Producer
from barnabas.spark.write.sink_options import parse_sink
from tests.unit.client.brokers import broker, knows, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator

AUTHOR: Final = Author(producer_id=7, producer_epoch=0)
OPTIONS: Final = parse_sink({"kafka.bootstrap.servers": "x:1", "kafka.delivery.timeout.ms": "10000"}).producer
ONE, TWO, THREE = 1, 2, 3


class Replicas:
    """Three brokers with topic `t`. They share its log, in which they put what follows; one leads each partition."""

    def __init__(self, stack: ExitStack) -> None:
        self.brokers = {number: stack.enter_context(broker({})) for number in (ONE, TWO, THREE)}
        self.leaders: dict[int, int] = {}
        self.log: dict[int, list[int]] = {}
        """The sequences of the batches in each partition, each of which has one record."""
        self._epoch = -1

    def lead(self, leaders: dict[int, int]) -> None:
        self._epoch += 1
        self.leaders = leaders
        for number, each in self.brokers.items():
            each.answers[ApiKey.METADATA] = knows(self.brokers, {"t": leaders}, leader_epoch=self._epoch)
            each.answers[ApiKey.PRODUCE] = partial(self._append, number)

    def _append(self, number: int, request: m.ProduceRequest) -> m.ProduceResponse:
        response = m.ProduceResponse
        (topic,) = request.topic_data
        partitions = [
            response.PartitionProduceResponse(
                index=each.index,
                error_code=self._take(each) if self.leaders[each.index] == number else Error.NOT_LEADER_OR_FOLLOWER,
            )
            for each in topic.partition_data
        ]
        return response(responses=[response.TopicProduceResponse(name="t", partition_responses=partitions)])

    def _take(self, data: m.ProduceRequest.PartitionProduceData) -> Error:
        sequence = read_header(data.records or b"").base_sequence
        log = self.log.setdefault(data.index, [])
        if sequence in log:
            return Error.DUPLICATE_SEQUENCE_NUMBER
        if log and sequence != log[-1] + 1:
            return Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        log.append(sequence)
        return Error.NONE


@pytest.fixture
def replicas() -> Iterator[Replicas]:
    with ExitStack() as stack:
        yield Replicas(stack)


@pytest.fixture
def cluster(replicas: Replicas) -> Iterator[Cluster]:
    replicas.lead({0: ONE, 1: TWO, 2: THREE})
    with Cluster.connect(settings_for(replicas.brokers[ONE])) as connected:
        yield connected


@pytest.fixture
def producer(cluster: Cluster) -> Producer:
    return Producer(cluster, AUTHOR, OPTIONS)


def write(producer: Producer, partition: int) -> None:
    """A batch of one record."""
    producer.write("t", [Batch(partition, 1, 0, 0, Codec.NONE, b"\x0c\0\0\0\1\1\0")])


def test_batches_go_to_the_leaders_of_their_partitions_in_order(replicas: Replicas, producer: Producer) -> None:
    for _ in range(5):
        for partition in range(3):
            write(producer, partition)
    producer.flush()
    assert replicas.log == {0: [*range(5)], 1: [*range(5)], 2: [*range(5)]}


def test_what_was_collected_for_a_leader_that_has_handed_over_goes_to_the_next_one(
    replicas: Replicas, producer: Producer
) -> None:
    write(producer, 0)
    producer.flush()
    write(producer, 0)
    replicas.brokers[TWO].close()
    replicas.lead({0: THREE, 1: THREE})
    write(producer, 1)  # which is how the cluster comes to know of it
    write(producer, 0)
    producer.flush()
    assert replicas.log == {0: [0, 1, 2], 1: [0]}


def test_a_leader_that_is_looked_for_while_answers_are_due_is_found(replicas: Replicas, producer: Producer) -> None:
    for _ in range(4):
        write(producer, 0)
    replicas.brokers[TWO].close()
    replicas.brokers[THREE].close()
    replicas.lead({0: ONE, 1: ONE})
    write(producer, 1)
    producer.flush()
    assert replicas.log == {0: [0, 1, 2, 3], 1: [0]}


def test_a_broker_that_dies_with_batches_under_way_and_collected_costs_none(
    replicas: Replicas, producer: Producer
) -> None:
    for _ in range(2):
        write(producer, 0)
        write(producer, 1)
    for _ in range(3):
        write(producer, 1)
    replicas.brokers[TWO].close()
    replicas.lead({0: ONE, 1: THREE})
    for _ in range(3):
        write(producer, 1)
        write(producer, 0)
    producer.flush()
    assert replicas.log == {0: [*range(5)], 1: [*range(8)]}


def test_the_second_batch_of_a_partition_waits_for_the_first_also_where_its_leader_had_to_be_found(
    replicas: Replicas, producer: Producer
) -> None:
    """A leader takes whatever it sees first for the first batch there is."""
    write(producer, 0)
    write(producer, 0)
    assert replicas.log == {0: [0]}
