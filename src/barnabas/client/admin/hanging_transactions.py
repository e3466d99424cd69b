"""Transactions that hang: partitions have records of them, and their coordinators know nothing of that.

Readers of committed data wait in front of such records for ever.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.transactions import (
    ProducerState,
    TransactionState,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.cluster import Cluster, TopicPartition


class Hanging(NamedTuple):
    """A transaction in a partition that its coordinator knows nothing of."""

    place: TopicPartition
    producer: ProducerState
    transactional_id: str | None
    """None where no coordinator knows the producer either."""


def find_hanging(
    cluster: Cluster, places: Iterable[TopicPartition], *, older_than_ms: int, now_ms: int | None = None
) -> list[Hanging]:
    """Transactions that have been open for so long in one of these partitions, without their coordinators' knowing.

    Those that are younger are left alone: their coordinator may be about to hear of them.
    """
    before_ms = (int(time.time() * 1000) if now_ms is None else now_ms) - older_than_ms
    old = [
        (place, producer)
        for place, producers in describe_producers(cluster, places).items()
        if not isinstance(producers, KafkaError)
        for producer in producers
        if producer.start_offset >= 0 and producer.last_timestamp_ms <= before_ms
    ]
    if not old:
        return []
    listed = list_transactions(cluster, producer_ids={producer.producer_id for _, producer in old})
    ids = {each.producer_id: each.transactional_id for each in listed}
    described = describe_transactions(cluster, ids.values())
    hanging = []
    for place, producer in old:
        transactional_id = ids.get(producer.producer_id)
        transaction = None if transactional_id is None else described.get(transactional_id)
        is_known = isinstance(transaction, TransactionState) and place in transaction.partitions
        if not is_known:
            hanging.append(Hanging(place, producer, transactional_id))
    return hanging
