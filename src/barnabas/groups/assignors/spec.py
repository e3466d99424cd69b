"""What an assignor is given and what it returns: plain values, so that equal groups get equal assignments anywhere.

Topics are known by their ids, and only those that exist are named. Neither of Kafka's assignors looks at racks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from barnabas.protocol.uuids import Uuid

Partitions: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions of one member, by topic. A topic without partitions is left out."""

PartitionCounts: TypeAlias = Mapping[Uuid, int]
"""How many partitions each topic has that somebody is subscribed to."""


class MemberSpec(NamedTuple):
    topics: frozenset[Uuid]
    """What it is subscribed to."""
    assigned: Partitions
    """Its target assignment until now; not what it has revoked or taken up of it yet."""
    instance_id: str | None = None
    """Of a static member."""


Assignor: TypeAlias = Callable[[Mapping[str, MemberSpec], PartitionCounts], dict[str, Partitions]]
"""From the members, by id, to the target of each of them. Every partition of a topic that has subscribers goes to
exactly one of them. Members are looked at in the order of the mapping where nothing else decides. A member whose
assignment stays has the very mapping that it came with."""
