"""What consumers that speak the classic protocol say to each other inside of it: subscriptions and assignments.

To a classic group these are bytes that it hands from member to member. They have to be understood where such members
are in one group with members of the newer protocol. Each begins with a version, an int16, which is that of the message
after it; one that is higher than known is read as the highest that is, whose fields it has.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from barnabas.protocol import messages as m
from barnabas.protocol.codec import DecodeError, decode_prefix, encode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.metadata.image import TopicsImage
    from barnabas.protocol.uuids import Uuid

PROTOCOL_TYPE: Final = "consumer"
HIGHEST_VERSION: Final = 3
_VERSION: Final = Struct(">h")


def version_of(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise DecodeError(f"{len(data)} bytes are too few for the version of the consumer protocol")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"the consumer protocol has no version {version}")
    return min(version, HIGHEST_VERSION)


def version_for_answer(data: bytes) -> int:
    """The version in which to answer to a subscription. All can read the first one, should this be unreadable."""
    try:
        return version_of(data)
    except DecodeError:
        return 0


def read_subscription(data: bytes) -> m.ConsumerProtocolSubscription:
    subscription, _ = decode_prefix(m.ConsumerProtocolSubscription, data, version_of(data), _VERSION.size)
    return subscription


def read_assignment(data: bytes) -> m.ConsumerProtocolAssignment:
    """No bytes at all are what a member has that was given nothing."""
    if not data:
        return m.ConsumerProtocolAssignment()
    assignment, _ = decode_prefix(m.ConsumerProtocolAssignment, data, version_of(data), _VERSION.size)
    return assignment


def write_assignment(partitions: Mapping[Uuid, Collection[int]], topics: TopicsImage, version: int) -> bytes:
    """An assignment for a member whose subscription had the version. Topics that are gone are left out."""
    assigned = [
        m.ConsumerProtocolAssignment.TopicPartition(topic=topic.name, partitions=sorted(numbers))
        for topic_id, numbers in sorted(partitions.items())
        if (topic := topics.by_id(topic_id)) is not None
    ]
    body = encode(m.ConsumerProtocolAssignment(assigned_partitions=assigned), version)
    return _VERSION.pack(version) + body


def by_topic_id(
    named: Iterable[m.ConsumerProtocolAssignment.TopicPartition | m.ConsumerProtocolSubscription.TopicPartition],
    topics: TopicsImage,
) -> dict[Uuid, frozenset[int]]:
    """Partitions by the id of their topic, which may be named more than once. What does not exist is left out: members
    say what they like, and nothing else checks it."""
    by_id: dict[Uuid, frozenset[int]] = {}
    for each in named:
        topic = topics.get(each.topic)
        if topic is not None:
            existing = {number for number in each.partitions if 0 <= number < len(topic.partitions)}
            if existing:
                by_id[topic.topic_id] = by_id.get(topic.topic_id, frozenset()).union(existing)
    return by_id
