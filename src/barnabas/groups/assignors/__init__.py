"""Assignors of consumer groups (KIP-848): which member of a group reads which partitions, decided by the broker.

An assignor is a function of plain values, so that equal groups get equal assignments on any broker. Topics are known by
their ids, and only those that exist are named. Neither of Kafka's assignors takes racks into account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from barnabas.groups.assignors import range_assignor, uniform_assignor
from barnabas.protocol.uuids import Uuid

Partitions: TypeAlias = Mapping[Uuid, frozenset[int]]
"""The partitions of one member, by topic. A topic without partitions is left out."""

PartitionCounts: TypeAlias = Mapping[Uuid, int]
"""The number of partitions of each topic that has subscribers."""


class MemberSpec(NamedTuple):
    topics: frozenset[Uuid]
    """Its subscription."""
    assigned: Partitions
    """Its current target assignment, whether or not it has been reconciled to it."""
    instance_id: str | None = None
    """Set for a static member."""


Assignor: TypeAlias = Callable[[Mapping[str, MemberSpec], PartitionCounts], dict[str, Partitions]]
"""From the members, by id, to the target assignment of each. Every partition of a topic that has subscribers goes to
exactly one of them. Ties are broken by the order of the mapping. A member whose assignment does not change keeps the
identical mapping object."""

ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform_assignor.assign, "range": range_assignor.assign}
"""By the names that clients and `group.consumer.assignors` use."""
