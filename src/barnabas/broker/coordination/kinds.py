"""What tells one coordinator from another: its topic, its state machine and the form of its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordination.effects import Effects, ProducerId, Record
    from barnabas.protocol.varint import Buffer


class Shard(Protocol):
    """The state of one partition. First it is fed with the records of its log, then it is told that it is loaded."""

    @property
    def next_deadline_ms(self) -> int | None: ...

    def replay(self, record: Record, producer_id: ProducerId) -> None: ...

    def commit_transaction(self, producer_id: ProducerId) -> None: ...

    def abort_transaction(self, producer_id: ProducerId) -> None: ...

    def loaded(self, now_ms: int) -> Effects: ...

    def expire(self, now_ms: int) -> Effects: ...

    def resign(self) -> Effects: ...


S = TypeVar("S", bound=Shard)


class Kind(NamedTuple, Generic[S]):
    what: str
    """What lives in the partitions, for messages: "groups"."""
    topic: str
    partition_count: Callable[[], int]
    """How many the topic has, or will have when it is made."""
    make_shard: Callable[[int], S]
    """For a partition that is led in this epoch."""
    encode: Callable[[Record], tuple[bytes, bytes | None]]
    decode: Callable[[Buffer | None, Buffer | None], Record | None]
    """None for a record that nothing here acts on."""
    base_sequence: int
    """What batches say of the number of their first record, as Kafka writes it in this topic."""
    load_buffer_bytes: Callable[[], int]
    commit_timeout_ms: Callable[[], int]
    """How long an answer waits for the in-sync replicas."""
