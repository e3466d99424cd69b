"""Positions in topics: where a read starts and ends, as values and as the JSON that users of Spark's connector know.

The JSON is Spark's own, both in options and in checkpoints: an offset or a timestamp for each partition of each topic,
as in `{"orders": {"0": 23, "1": -2}}`. In options, -2 stands for the earliest offset and -1 for the latest. Checkpoints
also record topic ids, because a topic that was deleted and recreated has the same name but another id:
`"topic ids": {"orders": "kVNNOy-yTtGxH7KCdVXEbw"}`. No topic can be named "topic ids". The entry may be missing, and is
ignored in options.
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
    """At the first record of each partition."""


@dataclass(frozen=True)
class Latest:
    """At the end of each partition."""


@dataclass(frozen=True)
class GroupOffsets:
    """At the committed offsets of a consumer group; partitions without one, at their first record."""


@dataclass(frozen=True)
class SpecificOffsets:
    """At one offset per partition, which may be EARLIEST or LATEST."""

    offsets: Offsets


@dataclass(frozen=True)
class AtTimestamp:
    """At the first record with this timestamp or a later one, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True)
class SpecificTimestamps:
    """At the first record with a given timestamp or a later one, with a timestamp per partition."""

    timestamps_ms: Offsets


Position: TypeAlias = Earliest | Latest | GroupOffsets | SpecificOffsets | AtTimestamp | SpecificTimestamps


class MalformedJsonError(ValueError):
    """A text is not the expected JSON; the message says where."""


def to_json(offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, Uuid] | None = None) -> dict[str, Any]:
    """A position as it is stored in a checkpoint. Equal positions give equal text, whatever their order was."""
    topics: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    # Old brokers have no topic ids, and send zero.
    ids = {topic: to_text(each) for topic in topics if (each := (topic_ids or {}).get(topic, ZERO_UUID)) != ZERO_UUID}
    return {**topics, TOPIC_IDS: ids} if ids else topics


def from_json(value: object) -> Offsets:
    """A position from parsed JSON, written by `to_json` or by Spark's own source."""
    if not isinstance(value, dict):
        raise MalformedJsonError(f"expected topics, as in {_example()}, but found {_shown(value)}")
    offsets: Offsets = {}
    for topic, partitions in value.items():
        if topic == TOPIC_IDS:
            continue
        if not isinstance(partitions, dict):
            raise MalformedJsonError(
                f"topic {topic!r} has {_shown(partitions)} instead of partitions, as in {_example()}"
            )
        for text, number in partitions.items():
            offsets[topic, _partition(topic, text)] = _number(topic, text, number)
    return offsets


def topic_ids_from_json(value: Mapping[str, Any]) -> TopicIds:
    """The ids of the topics in a checkpoint, as far as it has them."""
    return {topic: from_text(text) for topic, text in value.get(TOPIC_IDS, {}).items()}


def parse_offsets(text: str) -> Offsets:
    """The offsets or timestamps in an option."""
    offsets = from_json(_parse(text))
    if not offsets:
        raise MalformedJsonError(f"it names no partition; expected is {_example()}")
    return offsets


def parse_partitions(text: str) -> list[TopicPartition]:
    """The partitions in an option: a list of partitions for each topic."""
    value = _parse(text)
    example = '{"orders": [0, 1]}'
    if not isinstance(value, dict) or not value:
        raise MalformedJsonError(f"expected topics with lists of partitions, as in {example}")
    partitions: list[TopicPartition] = []
    for topic, numbers in value.items():
        if not isinstance(numbers, list) or not numbers:
            raise MalformedJsonError(
                f"topic {topic!r} has {_shown(numbers)} instead of a list of partitions, as in {example}"
            )
        partitions += [(topic, _partition(topic, number)) for number in numbers]
    if len(set(partitions)) < len(partitions):
        raise MalformedJsonError("a partition is named twice")
    return sorted(partitions)


def describe(offsets: Iterable[TopicPartition]) -> str:
    """Partitions in Kafka's notation, as in `orders-0, orders-1`."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(offsets)) or "none"


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as error:
        raise MalformedJsonError(f"it is not JSON: {error}") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses a JSON object with a repeated name, of which all values but one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise MalformedJsonError(f"{next(name for name in names if names.count(name) > 1)!r} is named twice")
    return found


def _partition(topic: str, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or int(text) > _PARTITION_MAX:
        raise MalformedJsonError(f"topic {topic!r} has {_shown(value)} instead of a partition number")
    return int(text)


def _number(topic: str, partition: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST <= value <= _OFFSET_MAX:
        raise MalformedJsonError(
            f"{topic}-{partition} has {_shown(value)} instead of a whole number, {EARLIEST} or greater"
        )
    return value


def _shown(value: object) -> str:
    return json.dumps(value)


def _example() -> str:
    return '{"orders": {"0": 23, "1": -2}}'
