"""Where a group is to go on: what to commit for it, by an offset, a step, a time, or an end of its partitions.

    committed = {("orders", 0): 7}
    targets = within_logs(cluster, stepped(committed, committed, -5))
    alter_offsets(cluster, "report", {place: target.offset for place, target in targets.items()})

Nothing here commits anything. What was asked for may not be there; a `Target` then says so beside the nearest offset
that is, for whoever shows it to a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.offset_queries import EARLIEST, LATEST, list_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.cluster import Cluster, TopicPartition

INACTIVE_STATES: Final = ("Empty", "Dead")
"""In which a group has no members that would commit something else right after; one that is not there has none."""


class Target(NamedTuple):
    """Where a group goes on in a partition."""

    offset: int
    outside: int | None = None
    """What was asked for, where the log does not reach that far; `offset` is the end that is nearest to it."""
    has_no_record_so_late: bool = False
    """There is no record of the time that was asked for, or a later one; `offset` is the end."""


Targets = dict["TopicPartition", Target]


class NoOffsetError(Exception):
    """There is nothing to count from: the group has committed no offset in this partition."""

    def __init__(self, place: TopicPartition) -> None:
        super().__init__(place)
        self.place = place


def at_ends(cluster: Cluster, places: Iterable[TopicPartition], which: int) -> Targets:
    """The first offset of each partition (EARLIEST), or the one after its last (LATEST)."""
    found = list_offsets(cluster, dict.fromkeys(places, which))
    return {place: Target(at.offset) for place, at in found.items() if at is not None}


def at_time(cluster: Cluster, places: Iterable[TopicPartition], timestamp_ms: int) -> Targets:
    """The first record of a time or later; the end, where there is none."""
    found = list_offsets(cluster, dict.fromkeys(places, timestamp_ms))
    late = {place: Target(at.offset) for place, at in found.items() if at is not None}
    none_so_late = at_ends(cluster, [place for place in found if place not in late], LATEST)
    return late | {place: each._replace(has_no_record_so_late=True) for place, each in none_so_late.items()}


def within_logs(cluster: Cluster, requested: Mapping[TopicPartition, int]) -> Targets:
    """These offsets, or the nearest that there are."""
    starts, ends = at_ends(cluster, requested, EARLIEST), at_ends(cluster, requested, LATEST)
    return {place: _within(offset, starts[place].offset, ends[place].offset) for place, offset in requested.items()}


def stepped(
    committed: Mapping[TopicPartition, int], places: Iterable[TopicPartition], by: int
) -> dict[TopicPartition, int]:
    """So many records further, or back, whether there are as many or not."""
    wanted = list(places)
    missing = next((place for place in wanted if place not in committed), None)
    if missing is not None:
        raise NoOffsetError(missing)
    return {place: committed[place] + by for place in wanted}


def where_it_is(cluster: Cluster, committed: Mapping[TopicPartition, int], places: Iterable[TopicPartition]) -> Targets:
    """Where the group is; the end, where it is nowhere."""
    wanted = list(places)
    stays = {place: Target(committed[place]) for place in wanted if place in committed}
    return stays | at_ends(cluster, [place for place in wanted if place not in committed], LATEST)


def _within(offset: int, start: int, end: int) -> Target:
    nearest = max(min(offset, end), start)
    return Target(nearest, None if nearest == offset else offset)
