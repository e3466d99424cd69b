"""Positions in topics: as values, as the JSON that Spark's Kafka users write, and as the places where a read starts.

The JSON form is Spark's own, in options and in checkpoints: topics, in each its partitions as text, for each an
offset or a timestamp: `{"orders": {"0": 23, "1": -2}}`. In options -2 stands for the earliest offset and -1 for the
latest. Checkpoints also say which topics they mean, as a topic that was deleted and made again has its name from
before, but not its id: `"topic ids": {"orders": "kVNNOy-yTtGxH7KCdVXEbw"}`. No topic can have such a name, and where
this is missing, or stands in an option, nothing follows from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from barnabas.protocol.uuids import ZERO_UUID, Uuid, from_text, to_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TopicPartition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[TopicPartition, int]
TopicIds: TypeAlias = dict[str, Uuid]

TOPIC_IDS: Final = "topic ids"

EARLIEST: Final = -2
LATEST: Final = -1

_PARTITION_MAX: Final = (1 << 31) - 1
_OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Earliest:
    """At the first record that each partition keeps."""


@dataclass(frozen=True)
class Latest:
    """At the end of each partition."""


@dataclass(frozen=True)
class GroupOffsets:
    """Where a consumer group has come to; partitions of which it knows nothing, at their first record."""


@dataclass(frozen=True)
class SpecificOffsets:
    """At an offset per partition, each of which may be EARLIEST or LATEST."""

    offsets: Offsets


@dataclass(frozen=True)
class AtTimestamp:
    """At the first record of that time or later, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True)
class SpecificTimestamps:
    """At the first record of a time or later, with a time for each partition."""

    timestamps_ms: Offsets


Position: TypeAlias = Earliest | Latest | GroupOffsets | SpecificOffsets | AtTimestamp | SpecificTimestamps


class MalformedJsonError(ValueError):
    """A text is not the JSON that was expected; the message says where."""


def to_json(offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, Uuid] | None = None) -> dict[str, Any]:
    """A position as a checkpoint has it. Equal positions give equal texts, whatever order they were made in."""
    topics: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    # Old brokers know of no ids, and say zero.
    ids = {topic: to_text(each) for topic in topics if (each := (topic_ids or {}).get(topic, ZERO_UUID)) != ZERO_UUID}
    return {**topics, TOPIC_IDS: ids} if ids else topics


def from_json(value: object) -> Offsets:
    """A position out of parsed JSON: what `to_json` made, or what Spark's own source wrote."""
    if not isinstance(value, dict):
        raise MalformedJsonError(f"topics are expected, as in {_example()}, but this is {_shown(value)}")
    offsets: Offsets = {}
    for topic, partitions in value.items():
        if topic == TOPIC_IDS:
            continue
        if not isinstance(partitions, dict):
            raise MalformedJsonError(
                f"topic {topic!r} has {_shown(partitions)} where partitions are expected, as in {_example()}"
            )
        for text, number in partitions.items():
            offsets[topic, _partition(topic, text)] = _number(topic, text, number)
    return offsets


def topic_ids_from_json(value: Mapping[str, Any]) -> TopicIds:
    """Which topics a position in a checkpoint means, as far as it says so."""
    return {topic: from_text(text) for topic, text in value.get(TOPIC_IDS, {}).items()}


def parse_offsets(text: str) -> Offsets:
    """The offsets or timestamps in an option."""
    offsets = from_json(_parse(text))
    if not offsets:
        raise MalformedJsonError(f"no partition is named; this is expected: {_example()}")
    return offsets


def parse_partitions(text: str) -> list[TopicPartition]:
    """The partitions in an option: topics, in each a list of partitions."""
    value = _parse(text)
    example = '{"orders": [0, 1]}'
    if not isinstance(value, dict) or not value:
        raise MalformedJsonError(f"topics with lists of partitions are expected, as in {example}")
    partitions: list[TopicPartition] = []
    for topic, numbers in value.items():
        if not isinstance(numbers, list) or not numbers:
            raise MalformedJsonError(
                f"topic {topic!r} has {_shown(numbers)} where a list of partitions is expected, as in {example}"
            )
        partitions += [(topic, _partition(topic, number)) for number in numbers]
    if len(set(partitions)) < len(partitions):
        raise MalformedJsonError("a partition is named twice")
    return sorted(partitions)


def describe(offsets: Iterable[TopicPartition]) -> str:
    """Partitions as people write them."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(offsets)) or "none"


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as error:
        raise MalformedJsonError(f"this is no JSON: {error}") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object that names something twice says two things, of which one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise MalformedJsonError(f"{next(name for name in names if names.count(name) > 1)!r} is named twice")
    return found


def _partition(topic: str, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or int(text) > _PARTITION_MAX:
        raise MalformedJsonError(f"topic {topic!r} has {_shown(value)} where the number of a partition is expected")
    return int(text)


def _number(topic: str, partition: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST <= value <= _OFFSET_MAX:
        raise MalformedJsonError(
            f"{topic}-{partition} has {_shown(value)} where a whole number is expected, {EARLIEST} or greater"
        )
    return value


def _shown(value: object) -> str:
    return json.dumps(value)


def _example() -> str:
    return '{"orders": {"0": 23, "1": -2}}'
