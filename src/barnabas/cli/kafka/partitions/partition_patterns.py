"""Which partitions of which topics are meant: `orders:0-3,payments,:5-`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.kafka.flags import read_int
from barnabas.cli.kafka.tool import ToolError
from barnabas.cli.kafka.topics.include_list import EVERY_TOPIC, IncludeList

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_RULE: Final = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<one>[0-9]*)|(?P<first>[0-9]*)-(?P<end>[0-9]*)))?")
_PARTITIONS_END: Final = (1 << 31) - 1
EVERY_PARTITION: Final = range(_PARTITIONS_END)


class PartitionRule(NamedTuple):
    """A pattern of topics, and the partitions of theirs that are meant."""

    topics: IncludeList
    partitions: Collection[int]

    def allows(self, topic: str, partition: int) -> bool:
        return partition in self.partitions and self.topics.allows(topic)


def read_rules(text: str) -> list[PartitionRule]:
    """The value of `--topic-partitions`."""
    return [_read_rule(part) for part in java_split(text)]


def read_partitions(text: str) -> Collection[int]:
    """The value of `--partitions`; an empty one means all."""
    if not text:
        return EVERY_PARTITION
    try:
        return {read_int(part) for part in java_split(text)} or EVERY_PARTITION
    except ValueError:
        raise ToolError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {text}"
        ) from None


def java_split(text: str) -> Sequence[str]:
    """Parts between commas, as Java splits: without those at the end that are empty."""
    return text.rstrip(",").split(",") if text.strip(",") or not text else []


def _read_rule(text: str) -> PartitionRule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ToolError(f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}")
    topics = IncludeList(found["topic"] or EVERY_TOPIC)
    if found["one"]:
        one = _number(found["one"])
        return PartitionRule(topics, range(one, one + 1))
    first = _number(found["first"]) if found["first"] else 0
    end = _number(found["end"]) if found["end"] else _PARTITIONS_END
    return PartitionRule(topics, range(first, end))


def _number(text: str) -> int:
    try:
        return read_int(text)
    except ValueError:
        raise ToolError(f'For input string: "{text}"') from None
