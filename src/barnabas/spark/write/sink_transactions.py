"""The calls of a transactional producer to its coordinator, each retried until there is a final answer.

A transaction consists of: a new epoch of the transactional id (`begin`), which fences any earlier producer and aborts
what it left open; batches, sent by `producer`; a marker among the offsets of a group (`commit_marker`); and the end.

There are two versions of the protocol. In the first, a producer adds partitions and groups to its transaction before it
writes to them. In the second, which a cluster offers through the feature `transaction.version`, they are added when
they are written to, and each transaction has an epoch of its own, so that nothing of one can slip into the next. The
older versions of a request imply the first protocol, so both sides must agree: the cluster's feature level decides.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.cluster import TRANSACTION_COORDINATOR, Call, Fault
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.spark.columnar.record_encoding import Author

FEATURE: Final = "transaction.version"
FEATURE_LEVEL_V2: Final = 2

INIT_VERSION_MAX: Final = 5
"""Later ones are for two-phase commit, where a transaction is prepared in one process and ended in another."""
ADD_PARTITIONS_VERSION_MAX: Final = 3
"""Later ones are for brokers, which send requests for many transactions at once."""

_BUSY: Final = frozenset({Error.CONCURRENT_TRANSACTIONS})
"""The previous transaction is still being completed."""

FENCING: Final = frozenset(
    {Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_TXN_STATE}
)


class Versions(NamedTuple):
    """The newest version of each request that belongs to a version of the protocol."""

    produce: int
    commit_offsets: int
    end: int


class Protocol(enum.Enum):
    V1 = Versions(produce=11, commit_offsets=4, end=4)
    V2 = Versions(produce=12, commit_offsets=5, end=5)


class FencedError(KafkaError):
    """Another producer has taken over the transactional id, or the cluster has ended the transaction by itself."""


def protocol_of(cluster: Cluster) -> Protocol:
    """The version of the transaction protocol that a cluster uses."""
    request = m.ApiVersionsRequest(client_software_name="barnabas", client_software_version="sink")
    response: m.ApiVersionsResponse = cluster.ask_any(Call(ApiKey.API_VERSIONS, lambda _: request))
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return Protocol.V2 if levels.get(FEATURE, 0) >= FEATURE_LEVEL_V2 else Protocol.V1


def begin(cluster: Cluster, transactional_id: str, timeout_ms: int) -> Author:
    """A new epoch of a transactional id. A transaction that an older epoch left open is aborted when this returns."""
    from barnabas.spark.columnar.record_encoding import Author

    request = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    call = Call(ApiKey.INIT_PRODUCER_ID, lambda _: request, version_max=INIT_VERSION_MAX, retried=_BUSY)
    try:
        response = _ask(cluster, transactional_id, call)
    except KafkaError as failure:
        if failure.error is Error.INVALID_TRANSACTION_TIMEOUT:
            raise KafkaError(
                failure.error,
                f"{failure.message}: option kafka.transaction.timeout.ms is {timeout_ms}, which is more than the "
                "brokers' transaction.max.timeout.ms",
            ) from failure
        raise
    return Author(response.producer_id, response.producer_epoch, transactional_id)


def new_producer(cluster: Cluster) -> Author:
    """An idempotent producer without transactions."""
    from barnabas.spark.columnar.record_encoding import Author

    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    response = cluster.ask_any(Call(ApiKey.INIT_PRODUCER_ID, lambda _: request, version_max=INIT_VERSION_MAX))
    return Author(response.producer_id, response.producer_epoch)


def add_partitions(cluster: Cluster, author: Author, partitions: Iterable[TopicPartition]) -> None:
    """Adds partitions to the transaction (version 1)."""
    transactional_id = _id_of(author)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    structs = m.AddPartitionsToTxnRequest
    request = structs(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=author.producer_id,
        v3_and_below_producer_epoch=author.producer_epoch,
        v3_and_below_topics=[
            structs.AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic.items()
        ],
    )
    call = Call(ApiKey.ADD_PARTITIONS_TO_TXN, lambda _: request, _add_fault, ADD_PARTITIONS_VERSION_MAX, _BUSY)
    _ask(cluster, transactional_id, call)


def commit_marker(
    cluster: Cluster, author: Author, protocol: Protocol, group: str, place: TopicPartition, offset: int, metadata: str
) -> None:
    """Commits an offset for a group, which takes effect when the transaction is committed."""
    transactional_id = _id_of(author)
    if protocol is Protocol.V1:
        added = m.AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=author.producer_id,
            producer_epoch=author.producer_epoch,
            group_id=group,
        )
        _ask(cluster, transactional_id, Call(ApiKey.ADD_OFFSETS_TO_TXN, lambda _: added, retried=_BUSY))
    structs = m.TxnOffsetCommitRequest
    marked = structs.TxnOffsetCommitRequestPartition(
        partition_index=place[1], committed_offset=offset, committed_metadata=metadata
    )
    request = structs(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=author.producer_id,
        producer_epoch=author.producer_epoch,
        topics=[structs.TxnOffsetCommitRequestTopic(name=place[0], partitions=[marked])],
    )
    call = Call(
        ApiKey.TXN_OFFSET_COMMIT, lambda _: request, _commit_fault, protocol.value.commit_offsets, retried=_BUSY
    )
    with_fencing(lambda: cluster.ask_coordinator(group, call), transactional_id)


def commit(cluster: Cluster, author: Author, protocol: Protocol) -> None:
    """Commits everything that was written in the transaction."""
    _end(cluster, author, protocol, m.EndTxnRequest(committed=True))


def abort(cluster: Cluster, author: Author, protocol: Protocol, *, timeout_ms: int | None = None) -> None:
    """Aborts the transaction: nothing that was written in it takes effect."""
    _end(cluster, author, protocol, m.EndTxnRequest(committed=False), timeout_ms)


def with_fencing(ask: Callable[[], Any], transactional_id: str) -> Any:
    """The response; `FencedError` if another producer has taken over the transactional id."""
    try:
        return ask()
    except KafkaError as failure:
        raise explained(failure, transactional_id) from failure


def explained(failure: KafkaError, transactional_id: str) -> KafkaError:
    """The same failure, as a FencedError if that is what it means."""
    if failure.error not in FENCING:
        return failure
    return FencedError(
        failure.error,
        f"{failure.message}: transactional id {transactional_id} was taken over by another attempt of this task or by "
        "another query with the same identity, or its transaction took longer than kafka.transaction.timeout.ms",
    )


def _end(
    cluster: Cluster, author: Author, protocol: Protocol, request: m.EndTxnRequest, timeout_ms: int | None = None
) -> None:
    request.transactional_id = _id_of(author)
    request.producer_id = author.producer_id
    request.producer_epoch = author.producer_epoch
    call = Call(ApiKey.END_TXN, lambda _: request, version_max=protocol.value.end, retried=_BUSY)
    _ask(cluster, request.transactional_id, call, timeout_ms)


def _ask(cluster: Cluster, transactional_id: str, call: Call, timeout_ms: int | None = None) -> Any:
    def ask() -> Any:
        return cluster.ask_coordinator(transactional_id, call, key_type=TRANSACTION_COORDINATOR, timeout_ms=timeout_ms)

    return with_fencing(ask, transactional_id)


def _id_of(author: Author) -> str:
    assert author.transactional_id is not None, "a producer without a transactional id has no transactions"
    return author.transactional_id


def _add_fault(response: m.AddPartitionsToTxnResponse) -> int | Fault:
    faults = [
        Fault(each.partition_error_code, f"{topic.name}-{each.partition_index}")
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
        if each.partition_error_code not in (Error.NONE, Error.OPERATION_NOT_ATTEMPTED)
    ]
    return faults[0] if faults else int(Error.NONE)


def _commit_fault(response: m.TxnOffsetCommitResponse) -> int | Fault:
    faults = [
        Fault(each.error_code, f"{topic.name}-{each.partition_index}")
        for topic in response.topics
        for each in topic.partitions
        if each.error_code != Error.NONE
    ]
    return faults[0] if faults else int(Error.NONE)
