"""The consumer embedded protocol: subscriptions and assignments of consumers inside of the classic protocol.

To a classic group these are opaque bytes that it passes between its members. They have to be decoded when such members
are in a group with members of the consumer protocol. Each begins with the version of the message that follows, an
int16; a version higher than known is read as the highest known one, whose fields it has.
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
        raise DecodeError(f"the consumer embedded protocol has only {len(data)} bytes, too few for its version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"the consumer embedded protocol has no version {version}")
    return min(version, HIGHEST_VERSION)


def version_for_answer(data: bytes) -> int:
    """The version in which to answer a subscription: version 0, which all can read, if it cannot be decoded."""
    try:
        return version_of(data)
    except DecodeError:
        return 0


def read_subscription(data: bytes) -> m.ConsumerProtocolSubscription:
    subscription, _ = decode_prefix(m.ConsumerProtocolSubscription, data, version_of(data), _VERSION.size)
    return subscription


def read_assignment(data: bytes) -> m.ConsumerProtocolAssignment:
    """A member without an assignment has no bytes at all."""
    if not data:
        return m.ConsumerProtocolAssignment()
    assignment, _ = decode_prefix(m.ConsumerProtocolAssignment, data, version_of(data), _VERSION.size)
    return assignment


def write_assignment(partitions: Mapping[Uuid, Collection[int]], topics: TopicsImage, version: int) -> bytes:
    """An assignment in the version of the member's subscription. Topics that no longer exist are left out."""
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
    """Partitions by topic id. A topic may be named more than once. What does not exist is left out: this comes from
    members, and nothing else checks it."""
    by_id: dict[Uuid, frozenset[int]] = {}
    for each in named:
        topic = topics.get(each.topic)
        if topic is not None:
            existing = {number for number in each.partitions if 0 <= number < len(topic.partitions)}
            if existing:
                by_id[topic.topic_id] = by_id.get(topic.topic_id, frozenset()).union(existing)
    return by_id
