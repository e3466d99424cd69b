"""One small vocabulary over three client libraries, so that a behaviour is stated once and holds for each of them.

An adapter translates and does nothing else: it never retries, hides an error or fills in a value that the broker left
out. What only one library can do is tested with that library directly.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
Start = int | Literal["beginning", "end"]
Assignor = Literal["range", "roundrobin", "cooperative-sticky"]
Isolation = Literal["read_uncommitted", "read_committed"]
TopicPartition = tuple[str, int]
Headers = tuple[tuple[str, bytes | None], ...]

DEADLINE_S = 30.0
TURN_S = 0.02
"""How long one poll of a member of a group takes at most."""


class ClientError(Exception):
    """What a library reported, with Kafka's error code; −1 where the library gave none."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Message:
    """A record as an application hands it over."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A record as an application gets it."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where the broker said that it put a record; the offset is −1 where it said nothing (acks=0)."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    acks: Literal[0, 1, -1] = -1
    codec: Codec = "none"
    idempotent: bool = False
    linger_ms: int = 5
    max_request_bytes: int = 4_000_000
    request_timeout_ms: int = 20_000
    """How long a node that says nothing is waited for."""
    delivery_timeout_ms: int = int(DEADLINE_S * 1000)
    """How long a record is sent again and again; aiokafka sends it without end where it is idempotent, and else for
    `request_timeout_ms`."""
    retries: int = 2_147_483_647
    """How often at most; aiokafka counts nothing."""


PRODUCER = ProducerOptions()


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Kafka's own defaults, except that a long poll is short enough for a test."""

    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 100
    fetch_max_bytes: int = 52_428_800
    max_partition_bytes: int = 1_048_576
    out_of_range: Literal["earliest", "latest", "error"] = "error"
    isolation: Isolation = "read_uncommitted"
    rack: str = ""


CONSUMER = ConsumerOptions()


class Consumer(AbstractContextManager["Consumer"], Protocol):
    """A reader of one partition, assigned by hand."""

    def receive(self, count: int, deadline_s: float = DEADLINE_S) -> list[Received]:
        """Up to `count` records: fewer only when the deadline passed first."""

    def seek(self, offset: int) -> None: ...


class Producer(Protocol):
    """A producer that stays connected from one call to the next."""

    def send(self, topic: str, messages: Sequence[Message], partition: int | None = None) -> list[Delivery]:
        """Send all, wait for all, raise the first error."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """A member of a group that soon hears of a rebalance, and starts at the beginning where nothing is committed."""

    assignor: Assignor = "range"
    client_id: str = "member"
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    max_poll_interval_ms: int = 300_000
    auto_commit_interval_ms: int | None = None
    """None: only what the test commits is committed."""
    protocol: Literal["classic", "consumer"] = "classic"
    remote_assignor: Literal["uniform", "range"] | None = None
    """Where the protocol is `consumer`, the broker assigns, and sets the session and the interval of heartbeats."""
    isolation: Isolation = "read_uncommitted"


MEMBER = MemberOptions()


class GroupConsumer(Protocol):
    """A consumer in a group. It takes its part in a rebalance only while it is polled."""

    assignments: list[set[TopicPartition]]
    """What each rebalance gave, to be added to what the member had where the protocol is cooperative."""
    revocations: list[set[TopicPartition]]
    """What each rebalance took."""

    def poll(self) -> list[Received]:
        """What has come, after at most `TURN_S`."""

    def assigned(self) -> set[TopicPartition]: ...

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these, or the position of every partition, and wait for the answer."""

    def committed(self, topic: str, partition: int) -> int | None:
        """The group's committed offset, as the coordinator knows it."""

    def group_metadata(self) -> object:
        """What a transactional producer wants to know of the member whose offsets it commits."""

    def seek(self, topic: str, partition: int, offset: int) -> None: ...

    def pause(self, topic: str, partition: int) -> None: ...

    def resume(self, topic: str, partition: int) -> None: ...

    def close(self) -> None:
        """Leave the group."""


class TransactionalProducer(Protocol):
    """A producer with a transactional id, which has fenced those before it that had the same."""

    def begin(self) -> None: ...

    def send(self, topic: str, messages: Sequence[Message], partition: int = 0) -> None:
        """Send all and wait for all, as a part of the transaction."""

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: object) -> None:
        """Commit for a group, as a part of the transaction."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None:
        """Go away, whatever is open."""


@dataclass(frozen=True, slots=True)
class DescribedMember:
    client_id: str
    instance_id: str | None
    host: str
    assigned: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    state: str
    assignor: str
    members: dict[str, DescribedMember]
    """By member id."""


class Client(Protocol):
    """A library, bound to one bootstrap address."""

    name: str

    def __init__(self, bootstrap: str) -> None: ...

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int | None = None,
        options: ProducerOptions = PRODUCER,
    ) -> list[Delivery]:
        """Send all, wait for all, raise the first error."""

    def producer(self, options: ProducerOptions = PRODUCER) -> Producer: ...

    def consumer(
        self, topic: str, start: Start, *, partition: int = 0, options: ConsumerOptions = CONSUMER
    ) -> Consumer: ...

    def offset_range(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The log start offset and the high watermark."""

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """The first offset whose timestamp is at least this, None where there is none."""

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def add_partitions(self, topic: str, total: int) -> None: ...

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> int:
        """Delete what comes before this offset, or all if it is -1; where the partition begins then."""

    def topic_names(self) -> set[str]: ...

    def partition_count(self, topic: str) -> int: ...

    def topic_config(self, topic: str) -> dict[str, str | None]: ...

    def alter_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Set these; a library that knows only the old AlterConfigs thereby drops the topic's other settings."""

    def group_consumer(self, group: str, topics: Sequence[str], options: MemberOptions = MEMBER) -> GroupConsumer:
        """A new member, subscribed to these topics; one that begins with ^ is a pattern."""

    def transactional_producer(self, transactional_id: str, timeout_ms: int = 60_000) -> TransactionalProducer: ...

    def group_names(self) -> set[str]: ...

    def describe_group(self, group: str) -> DescribedGroup: ...

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Every offset that the group has committed."""


class GroupAdmin(Client, Protocol):
    """A library that also changes groups."""

    def delete_group(self, group: str) -> None: ...

    def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit in the place of a group that has no members."""


def consume(
    client: Client,
    topic: str,
    count: int,
    *,
    start: Start = "beginning",
    partition: int = 0,
    options: ConsumerOptions = CONSUMER,
) -> list[Received]:
    """Read `count` records and require that they all came."""
    with client.consumer(topic, start, partition=partition, options=options) as consumer:
        received = consumer.receive(count)
    assert len(received) == count, f"{client.name} received {len(received)} of {count} records of {topic}-{partition}"
    return received


def values(count: int, *, prefix: str = "value") -> list[Message]:
    """Distinct, numbered messages."""
    return [Message(f"{prefix}-{n}".encode()) for n in range(count)]
