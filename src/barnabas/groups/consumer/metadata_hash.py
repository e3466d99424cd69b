"""The metadata hash of a consumer group: a hash of its subscribed topics, which shows when they change.

It is written with the group epoch. If the hash of the topics now is another one, a topic was created, deleted or got
more partitions, or has replicas in other racks, and the group needs a new assignment. The hash is identical to Kafka's,
so that a group that moves between the two is not reassigned just for that.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.metadata.image import BrokerImage, TopicImage, TopicsImage

NO_TOPICS_HASH: Final = 0
_TOPIC_HASH_VERSION: Final = b"\x00"
_INT: Final = Struct("<i")
_TOPIC_ID: Final = Struct(">QQ")
_LONGS: Final = Struct("<QQ")


class TopicHashes:
    """A cache of topic hashes, each valid for as long as neither the topic nor any broker changes.

    Those of deleted topics are dropped when they are the majority.
    """

    __slots__ = ("_brokers", "_known")

    def __init__(self) -> None:
        self._brokers: Mapping[int, BrokerImage] = {}
        self._known: dict[str, tuple[TopicImage, int]] = {}

    def of_group(self, topic_names: Collection[str], topics: TopicsImage, brokers: Mapping[int, BrokerImage]) -> int:
        """The hash of those of the topics that exist. They are sorted as in Java, which makes no difference for the
        characters of topic names."""
        if brokers is not self._brokers or len(self._known) > 2 * len(topics):
            self._brokers = brokers
            self._known.clear()
        existing = [topic for name in sorted(topic_names) if (topic := topics.get(name)) is not None]
        return group_hash([self._of(topic) for topic in existing])

    def _of(self, topic: TopicImage) -> int:
        known = self._known.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        computed = topic_hash(topic, self._brokers)
        self._known[topic.name] = topic, computed
        return computed


def group_hash(topic_hashes: Collection[int]) -> int:
    """Takes the hashes of the group's topics, in the order of their names."""
    if not topic_hashes:
        return NO_TOPICS_HASH
    return _xxh3(b"".join(topic_hash.to_bytes(8, "little", signed=True) for topic_hash in topic_hashes))


def topic_hash(topic: TopicImage, brokers: Mapping[int, BrokerImage]) -> int:
    """A hash of the id, the name, and for each partition the racks of its replicas.

    The input is, with numbers in little-endian order: a version (1 byte); both halves of the id (8 each); the name; the
    number of partitions (4); and for each partition its number (4) and, for each of its racks in order, the length (4)
    and the name. A name is its UTF-16 code units (2 bytes each), followed by their number (4).
    """
    racks = {broker.id: broker.rack for broker in brokers.values() if broker.rack is not None}
    hashed = bytearray(_TOPIC_HASH_VERSION)
    hashed += _LONGS.pack(*_TOPIC_ID.unpack(topic.topic_id))
    _put_string(hashed, topic.name)
    hashed += _INT.pack(len(topic.partitions))
    for index, partition in enumerate(topic.partitions):
        hashed += _INT.pack(index)
        for rack in sorted((racks[each] for each in partition.replicas if each in racks), key=_utf16_units):
            hashed += _INT.pack(len(rack.encode("utf-16-le")) // 2)
            _put_string(hashed, rack)
    return _xxh3(hashed)


def _put_string(hashed: bytearray, text: str) -> None:
    units = text.encode("utf-16-le")
    hashed += units
    hashed += _INT.pack(len(units) // 2)


def _utf16_units(text: str) -> bytes:
    """A sort key: strings in Java's order."""
    return text.encode("utf-16-be")


def _xxh3(data: bytes | bytearray) -> int:
    """As a signed number, as in Java."""
    unsigned = xxh3_64_intdigest(data)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned
