"""`kafka-transactions find-hanging`: transactions that are open in a partition, and that no coordinator will end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from barnabas.cli.kafka.java.java_order import in_hash_order
from barnabas.cli.kafka.java.java_tables import print_table
from barnabas.cli.kafka.tool import ToolError
from barnabas.cli.kafka.transactions.failures import failing
from barnabas.client.admin.topics import describe_topics, list_topics
from barnabas.client.admin.transactions import (
    ProducerState,
    TransactionState,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from barnabas.client.cluster import Cluster, TopicPartition

HEADINGS: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
_BATCH: Final = 500
"""How many topics or partitions are asked about at a time."""
_MINUTE_MS: Final = 60_000
_NS_IN_MS: Final = 1_000_000

T = TypeVar("T")


class OpenTransaction(NamedTuple):
    place: TopicPartition
    producer: ProducerState


def find_hanging(cluster: Cluster, options: argparse.Namespace) -> None:
    if options.topic is None and options.broker_id is None:
        raise ToolError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if options.partition is not None and options.topic is None:
        raise ToolError("The --partition argument requires --topic to be provided")
    partitions = _partitions_meant(cluster, options)
    candidates = list(
        _open_for_long(cluster, partitions, options.broker_id, options.max_transaction_timeout * _MINUTE_MS)
    )
    _print(_hanging(cluster, candidates) if candidates else [])


def _partitions_meant(cluster: Cluster, options: argparse.Namespace) -> list[TopicPartition]:
    if options.topic is None:
        with failing("Failed to list topics", "listTopics"):
            topics = [each.name for each in list_topics(cluster)]
    elif options.partition is not None:
        return [(options.topic, options.partition)]
    else:
        topics = [options.topic]
    found: list[TopicPartition] = []
    for some in _batches(topics):
        with failing(f"Failed to describe {len(some)} topics", "listNodes"):
            for state in describe_topics(cluster, some).values():
                if isinstance(state, KafkaError):
                    raise state
                found += [
                    (state.name, each.partition)
                    for each in state.partitions
                    if options.broker_id is None or options.broker_id in each.replicas
                ]
    return found


def _open_for_long(
    cluster: Cluster, partitions: Sequence[TopicPartition], broker_id: int | None, longer_than_ms: int
) -> Iterator[OpenTransaction]:
    """The transactions in which nothing has been written for so long."""
    asked = "Optional.empty" if broker_id is None else f"Optional[{broker_id}]"
    api = "METADATA" if broker_id is None else "DESCRIBE_PRODUCERS"
    for some in _batches(partitions):
        what = f"Failed to describe producers for {len(some)} partitions on broker {asked}"
        with failing(what, f"describeProducers(api={api})"):
            described = describe_producers(cluster, some, broker_id)
            for outcome in described.values():
                if isinstance(outcome, KafkaError):
                    raise outcome
        now_ms = time.time_ns() // _NS_IN_MS
        for place, producers in described.items():
            assert not isinstance(producers, KafkaError), "seen above"
            for each in producers:
                if each.start_offset >= 0 and now_ms - each.last_timestamp_ms > longer_than_ms:
                    yield OpenTransaction(place, each)


def _hanging(cluster: Cluster, candidates: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Those of which no coordinator knows, or knows that the partition is waiting."""
    by_producer: dict[int, list[OpenTransaction]] = {}
    for each in candidates:
        by_producer.setdefault(each.producer.producer_id, []).append(each)
    what = f"Failed to list transactions for {len(by_producer)} producers"
    with failing(what, "listTransactions(api=METADATA)"):
        listed = list_transactions(cluster, producer_ids=by_producer)
    ids = {each.producer_id: each.transactional_id for each in listed if each.producer_id in by_producer}
    described = _described(cluster, ids.values())
    found: list[OpenTransaction] = []
    for producer_id in in_hash_order(by_producer, _long_hash):
        state = described.get(ids[producer_id]) if producer_id in ids else None
        expected = [] if state is None else state.partitions
        found += [each for each in by_producer[producer_id] if each.place not in expected]
    return found


def _described(cluster: Cluster, transactional_ids: Collection[str]) -> Mapping[str, TransactionState]:
    found: dict[str, TransactionState] = {}
    what = f"Failed to describe {len(transactional_ids)} transactions"
    with failing(what, "describeTransactions(api=FIND_COORDINATOR)"):
        for transactional_id, state in describe_transactions(cluster, transactional_ids).items():
            if not isinstance(state, KafkaError):
                found[transactional_id] = state
            elif state.error is not Error.TRANSACTIONAL_ID_NOT_FOUND:
                raise state
    return found


def _print(hanging: Sequence[OpenTransaction]) -> None:
    now_ms = time.time_ns() // _NS_IN_MS
    rows = [
        (
            *each.place,
            each.producer.producer_id,
            each.producer.producer_epoch,
            each.producer.coordinator_epoch,
            each.producer.start_offset,
            each.producer.last_timestamp_ms,
            (now_ms - each.producer.last_timestamp_ms) // _MINUTE_MS,
        )
        for each in hanging
    ]
    print_table(HEADINGS, rows)


def _batches(things: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(things), _BATCH):
        yield things[start : start + _BATCH]


def _long_hash(number: int) -> int:
    """`Long.hashCode`, without its sign."""
    bits = number & (1 << 64) - 1
    return (bits ^ bits >> 32) & 0xFFFF_FFFF
