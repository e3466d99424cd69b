"""What a consumer group is subscribed to: topics found by a regular expression, and a hash that tells of their change.

The hash is written with the group's epoch. When the hash of the topics as they are now is another one, a topic has been
made, deleted or enlarged, or has replicas in other racks, and the group needs a new assignment. It is Kafka's to the
bit, so that a group that moves between the two is not reassigned for that alone.

Regular expressions are RE2's, which no input makes slow. The library is loaded with the first of them.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from xxhash import xxh3_64_intdigest

from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.metadata.image import BrokerImage, TopicImage, TopicsImage

NO_TOPICS_HASH: Final = 0
_TOPIC_HASH_VERSION: Final = b"\x00"
_INT: Final = Struct("<i")
_TOPIC_ID: Final = Struct(">QQ")
_LONGS: Final = Struct("<QQ")


def check_regex(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION for what is not a regular expression of RE2."""
    import re2

    try:
        _compile(regex)
    except re2.error as mistake:
        reason = mistake.args[0].decode(errors="replace")
        message = f"{regex!r} is not a regular expression that RE2 can read: {reason}"
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, message) from mistake


def resolve_regex(regex: str, topic_names: Iterable[str]) -> frozenset[str]:
    """The topics whose whole name matches an expression: internal ones too, as in Kafka. One that cannot be read, which
    the log may have from a Kafka with another RE2, matches none."""
    import re2

    try:
        matches = _compile(regex).fullmatch
    except re2.error:
        return frozenset()
    return frozenset(name for name in topic_names if matches(name) is not None)


def _compile(regex: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options)


class TopicHashes:
    """The hashes of topics, each worked out once for as long as neither the topic nor any broker changes.

    Those of topics that are gone are dropped when they are the greater part.
    """

    __slots__ = ("_brokers", "_known")

    def __init__(self) -> None:
        self._brokers: Mapping[int, BrokerImage] = {}
        self._known: dict[str, tuple[TopicImage, int]] = {}

    def of_group(self, topic_names: Collection[str], topics: TopicsImage, brokers: Mapping[int, BrokerImage]) -> int:
        """The hash of those of the topics that exist. The names are in Kafka's order of strings, which for the
        characters that a topic's name may have is everybody's."""
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
    """From the hashes of the group's topics, in the order of the topics' names."""
    if not topic_hashes:
        return NO_TOPICS_HASH
    return _xxh3(b"".join(topic_hash.to_bytes(8, "little", signed=True) for topic_hash in topic_hashes))


def topic_hash(topic: TopicImage, brokers: Mapping[int, BrokerImage]) -> int:
    """From the id, the name, and for each partition the racks of its replicas.

    Hashed are, numbers least byte first: a version (1 byte); both halves of the id (8 each); the name; the number of
    partitions (4); and for each partition its number (4) and, for each of its racks in order, its length (4) and its
    name. A name is its UTF-16 units (2 bytes each) and their number (4).
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
    """A sort key: the order of Java's strings."""
    return text.encode("utf-16-be")


def _xxh3(data: bytes | bytearray) -> int:
    """A hash as Java has it: a signed number."""
    unsigned = xxh3_64_intdigest(data)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned
