"""What stands in a request for a value that each side gives out itself: ids of topics, producers, members, sessions.

A sequence is made up before it runs, and goes to two brokers. So a request does not have a topic's id but `TopicId` of
its name, not a producer's id but the number of the producer, and each side puts in what it was last told. A number in
the place of an epoch may be off by some: `MemberEpoch(member, 1)` is the epoch after the one that the member has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.protocol.compiler.structs import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.compiler.structs import Message


@dataclass(frozen=True, slots=True)
class Reference:
    """Stands for a value that depends on the side, or on the run."""


@dataclass(frozen=True, slots=True)
class Name(Reference):
    """A name that no other run of a sequence uses."""

    text: str


@dataclass(frozen=True, slots=True)
class TopicId(Reference):
    """The id that the topic of this name had when the side last told it."""

    topic: Name


@dataclass(frozen=True, slots=True)
class ProducerId(Reference):
    producer: int


@dataclass(frozen=True, slots=True)
class ProducerEpoch(Reference):
    producer: int
    off_by: int = 0


@dataclass(frozen=True, slots=True)
class MemberId(Reference):
    """What the group calls a member, or what the member calls itself as long as it has not been told."""

    group: str
    member: int
    before: str = ""


@dataclass(frozen=True, slots=True)
class MemberEpoch(Reference):
    """The generation or epoch in which a member is."""

    group: str
    member: int
    off_by: int = 0


@dataclass(frozen=True, slots=True)
class Owned(Reference):
    """The partitions that a member of a consumer group was last given."""

    group: str
    member: int


@dataclass(frozen=True, slots=True)
class SessionId(Reference):
    """Of the fetch session of a connection."""

    connection: int


@dataclass(frozen=True, slots=True)
class SessionEpoch(Reference):
    connection: int
    off_by: int = 0


@dataclass(frozen=True, slots=True)
class DataFolder(Reference):
    """Where the side keeps its partitions."""


@dataclass(frozen=True, slots=True)
class Instance(Reference):
    """The id under which a client pushes its metrics."""


@dataclass(frozen=True, slots=True)
class Subscription(Reference):
    """The id of what is wanted of a client's metrics."""

    off_by: int = 0


@dataclass(frozen=True, slots=True)
class Records(Reference):
    """A batch for a partition."""

    topic: Name
    partition: int
    values: int = 1
    producer: int | None = None
    epoch_off_by: int = 0
    sequence_off_by: int = 0
    attributes: int = 0
    minutes: int = 0
    """How much later than the run's first record."""
    key: bytes | None = None
    flaw: str = ""


def resolved(value: Any, resolve: Callable[[Reference], Any]) -> Any:
    """A copy of a value with all references replaced, however deep."""
    if isinstance(value, Reference):
        return resolve(value)
    if isinstance(value, list):
        return [resolved(each, resolve) for each in value]
    if isinstance(value, Struct):
        return type(value)(**{name: resolved(getattr(value, name), resolve) for name in value.__slots__})
    return value


@dataclass(frozen=True, slots=True)
class Step:
    """A request, and who sends it."""

    request: Message
    version: int
    connection: int = 0
    group: str = "g0"
    member: int = 0
    producer: int = 0
    cut: int = 0
    """How many bytes of the request are missing; if negative, how many there are too many."""
