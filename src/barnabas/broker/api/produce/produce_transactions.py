"""What a Produce request of a transaction needs before its batches are appended: the coordinator's consent.

A batch goes into a partition at once while its transaction is open there. The first one does not: the coordinator must
know that the partition belongs to the transaction, or the partition would wait forever for an end marker. Clients of
transactions v1 have told it beforehand, so it is only asked; with v2 (Produce v12), asking adds the partition.
Meanwhile the partition keeps a `Verification`, which the end of the transaction invalidates.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.produce.produce_wire import NotInTransactionError
from barnabas.log.batch_validation import is_one_batch
from barnabas.log.producers.producer_state import NOT_NEEDED
from barnabas.protocol.batch import HEADER_SIZE, MAGIC, MAGIC_AT
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from barnabas.broker.api.produce.produce_wire import ProduceRequest
    from barnabas.broker.coordinators.transaction_verification import TransactionVerification
    from barnabas.log.producers.producer_state import Verification
    from barnabas.replication.hosted import HostedPartition

    PartitionKey = tuple[bytes, int]
    """A partition as the request names it: topic name or id, and index."""
    Find = Callable[[bytes, int], HostedPartition]

FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_THAT_ADDS = 12

LOW_ATTRIBUTES_AT = 22
TRANSACTIONAL_BIT = 0x10

_PRODUCER_AT = 43
_PRODUCER = Struct(">qhi")
"""Id, epoch, base sequence."""

_UNAVAILABLE = (
    Error.NETWORK_EXCEPTION,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)


class Transactional(NamedTuple):
    """What is known of the transactional batches of a request. The dicts are filled while the request is handled."""

    transactional_id: str
    producer_id: int
    epoch: int
    adds: bool
    verifications: dict[PartitionKey, Verification]
    """What the first batch in each partition is appended with."""
    unverified: dict[PartitionKey, tuple[str, int]]
    """The partitions about which the coordinator must be asked, with the names of their topics."""
    errors: dict[PartitionKey, KafkaError]
    """Why batches are not appended."""

    async def ask_coordinator(self, transactions: TransactionVerification, version: int) -> None:
        partitions = list(self.unverified.values())
        answers = await transactions.check_partitions(
            self.transactional_id, self.producer_id, self.epoch, partitions, adds=self.adds
        )
        for key, partition in self.unverified.items():
            if answers[partition] is not Error.NONE:
                self.errors[key] = for_version(answers[partition], version)


def is_transactional(batch: memoryview) -> bool:
    """False for batches of an older magic, and for incomplete ones: the log refuses them, whatever they contain."""
    return len(batch) >= HEADER_SIZE and bool(batch[LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT) and batch[MAGIC_AT] == MAGIC


def is_open(hosted: HostedPartition, batch: memoryview) -> bool:
    """Whether the transaction of a transactional batch is open in the partition."""
    producer_id, epoch, _ = _PRODUCER.unpack_from(batch, _PRODUCER_AT)
    return hosted.log.has_open_txn(producer_id, epoch)


def transactional_batches(request: ProduceRequest) -> dict[PartitionKey, memoryview]:
    return {
        (topic, index): batch
        for topic, partitions in request.topics
        for index, batch in partitions
        if is_transactional(batch)
    }


def producers_of(batches: Mapping[PartitionKey, memoryview], find: Find) -> dict[PartitionKey, tuple[int, int, int]]:
    """Id, epoch and sequence of the producer of each batch that could be appended. A partition that does not exist, or
    that was sent anything but one batch, has an error of its own, whoever the producer is."""
    return {
        key: _PRODUCER.unpack_from(batch, _PRODUCER_AT)
        for key, batch in batches.items()
        if is_one_batch(batch) and _exists(key, find)
    }


def _exists(key: PartitionKey, find: Find) -> bool:
    try:
        find(*key)
    except KafkaError as error:
        return error.error not in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)
    return True


def require_transactional_id(transactional_id: str | None) -> None:
    """Of a request that has transactional batches."""
    if transactional_id is None:
        raise KafkaError(
            Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch came without a transactional id"
        )


def sole_producer(producers: Collection[tuple[int, int, int]]) -> tuple[int, int] | None:
    """Id and epoch of the producer of all transactional batches; None if there is none. Raises KafkaError if nothing of
    their request may be appended."""
    known = {(producer_id, epoch) for producer_id, epoch, _ in producers if producer_id >= 0}
    if len(known) > 1:
        raise KafkaError(Error.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID")
    return known.pop() if known else None


def begin(request: ProduceRequest, version: int, find: Find, *, verifies: bool) -> Transactional | None:
    """Prepares the partitions for the transactional batches of a request; None if it has no such batch. Raises
    KafkaError if nothing of the request may be appended.

    Without `verifies` (`transaction.partition.verification.enable`) the coordinator is not asked about partitions that
    clients have added themselves."""
    batches = transactional_batches(request)
    if not batches:
        return None
    require_transactional_id(request.transactional_id)
    producers = producers_of(batches, find)
    known = sole_producer(producers.values())
    if known is None:
        return None
    assert request.transactional_id is not None
    producer_id, epoch = known
    adds = version >= FIRST_VERSION_THAT_ADDS
    found = Transactional(request.transactional_id, producer_id, epoch, adds, {}, {}, {})
    if not adds and not verifies:
        found.verifications.update(dict.fromkeys(producers, NOT_NEEDED))
        return found
    for key, (_, _, sequence) in producers.items():
        try:
            hosted = find(*key)
            verification = hosted.begin_verification(producer_id, epoch, sequence, adds_partition=adds)
        except KafkaError as error:
            found.errors[key] = error
            continue
        if verification is not None:
            found.verifications[key] = verification
            found.unverified[key] = hosted.topic, hosted.index
    return found


def for_version(error: Error, version: int) -> KafkaError:
    """The error in a form that a producer of this version understands."""
    is_to_be_repeated = error in _UNAVAILABLE or (
        error is Error.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_THAT_ADDS
    )
    if is_to_be_repeated:
        # Producers retry after this error without refreshing their metadata.
        return NotInTransactionError(
            Error.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}",
        )
    if error is Error.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        error = Error.INVALID_TXN_STATE
    if error is Error.INVALID_TXN_STATE:
        return NotInTransactionError(error, "Partition was not added to the transaction")
    return KafkaError(error)
