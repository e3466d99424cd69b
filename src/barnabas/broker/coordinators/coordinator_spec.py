"""What a coordinator consists of: its topic, the shards that hold the state of the topic's partitions, and the parts of
the broker that it works with.

An id (of a group, or a transactional id) belongs to the partition that its hash names. It is Java's hash, so that a
data folder that moves between Apache Kafka and this broker keeps its groups and transactions where they were.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from barnabas.broker.flusher import Flusher
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.coordination.effects import Effects, ProducerId, Record
    from barnabas.metadata.image import MetadataImage
    from barnabas.net.purgatory import Purgatory
    from barnabas.ports import Clock, Disk
    from barnabas.protocol.varint import Buffer
    from barnabas.replication.replica_manager import ReplicaManager

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

NAMES_REMEMBERED = 10_000
"""The hash is computed character by character, and members ask for the same name again and again."""

_INT32_MIN = -(1 << 31)


class CoordinatorShard(Protocol):
    """The state of one partition. It first replays the records of its log, and then learns that it has loaded all."""

    @property
    def next_deadline_ms(self) -> int | None: ...

    def replay(self, record: Record, producer_id: ProducerId) -> None: ...

    def commit_transaction(self, producer_id: ProducerId) -> None: ...

    def abort_transaction(self, producer_id: ProducerId) -> None: ...

    def loaded(self, now_ms: int) -> Effects: ...

    def expire(self, now_ms: int) -> Effects: ...

    def unload(self) -> Effects: ...


S = TypeVar("S", bound=CoordinatorShard)


class CoordinatorSpec(NamedTuple, Generic[S]):
    """What distinguishes one coordinator from another."""

    what: str
    """What the partitions hold, for messages: "groups"."""
    topic: str
    partition_count: Callable[[], int]
    """How many partitions the topic gets when it is created."""
    make_shard: Callable[[int], S]
    """For a partition that this node leads in this epoch."""
    encode: Callable[[Record], tuple[bytes, bytes | None]]
    decode: Callable[[Buffer | None, Buffer | None], Record | None]
    """None for a record that nothing here acts on. Raises UnknownFormatError for one that is skipped with a warning,
    DecodeError for one without which the partition cannot be served."""
    base_sequence: int
    """The base sequence of batches, as Kafka writes it to this topic."""
    load_buffer_bytes: Callable[[], int]
    commit_timeout_ms: Callable[[], int]
    """How long an answer waits for the in-sync replicas."""


class CoordinatorEnvironment(NamedTuple):
    """The parts of the broker that coordinators work with."""

    replicas: ReplicaManager
    purgatory: Purgatory
    flusher: Flusher
    clock: Clock
    disk: Disk
    loop: asyncio.AbstractEventLoop
    run_in_thread: Callable[..., asyncio.Future[Any]]
    image: Callable[[], MetadataImage]
    """The newest metadata that is in effect on this node."""
    config: Callable[[], BrokerConfig]
    """The configuration now: some settings are dynamic."""


@lru_cache(maxsize=NAMES_REMEMBERED)
def partition_of(name: str, partition_count: int) -> int:
    """The partition of a group id or a transactional id."""
    return _absolute(java_hash(name)) % partition_count


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in 32 bits that wrap around."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        total = (31 * total + unit) & 0xFFFFFFFF
    return total - (1 << 32) if total & 0x80000000 else total


def _absolute(number: int) -> int:
    """Counts the one number whose negation does not fit into 32 bits as 0."""
    return 0 if number == _INT32_MIN else abs(number)
