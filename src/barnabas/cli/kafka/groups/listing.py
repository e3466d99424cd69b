"""`kafka-consumer-groups --list`: the names of groups, with their types and states where those are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.groups.failures import asking_cluster, listing_failed
from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash
from barnabas.cli.kafka.tool import ToolUsageError
from barnabas.client.admin.groups import CLASSIC, CONSUMER, CONSUMER_PROTOCOL, GroupListing, list_groups

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.cli.kafka.flags import Given
    from barnabas.client.cluster import Cluster

UNKNOWN: Final = "Unknown"
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
"""In which a group of consumers can be."""
TYPES: Final = (CONSUMER, CLASSIC)
OF_CONSUMERS: Final = ("", CONSUMER_PROTOCOL)
NAME_WIDTH_MIN: Final = 15
_NAME_GAP: Final = 10


def print_list(cluster: Cluster, given: Given) -> None:
    shows_type, shows_state = given.has("type"), given.has("state")
    if not shows_type and not shows_state:
        for group in group_names(cluster):
            print(group)
        return
    types, states = _types(given.text("type") or ""), _states(given.text("state") or "")
    listed = _listed(cluster, types, states)
    width = max([NAME_WIDTH_MIN, *(len(each.group) for each in listed)]) + _NAME_GAP
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(each.group, known(each.type, TYPES), known(each.state, STATES)) for each in listed]
    for group, kind, state in rows:
        cells = [f"{group:<{width}}"]
        if shows_type:
            cells.append(f"{kind:<20}")
        if shows_state:
            cells.append(f"{state:<20}")
        print(" ".join(cells))


def group_names(cluster: Cluster) -> list[str]:
    """All groups of consumers, in the order in which the tool goes through them."""
    return [each.group for each in _listed(cluster, TYPES, ())]


def known(name: str, names: Collection[str]) -> str:
    """A type or state under its own name, whatever its letters' case."""
    return next((each for each in names if each.lower() == name.lower()), UNKNOWN)


def _listed(cluster: Cluster, types: Collection[str], states: Collection[str]) -> list[GroupListing]:
    with asking_cluster("listGroups", listing_failed):
        listed = list_groups(cluster, types=types, states=states, protocol_types=OF_CONSUMERS)
    by_name = {each.group: each for each in listed}
    return [by_name[name] for name in in_hash_order(by_name, string_hash)]


def _states(text: str) -> list[str]:
    parsed = [known(part.strip(), STATES) for part in text.split(",")] if text else []
    if UNKNOWN in parsed:
        raise ToolUsageError(f"Invalid state list '{text}'. Valid states are: {', '.join(STATES)}")
    return parsed


def _types(text: str) -> list[str]:
    parsed = [known(part.strip(), TYPES) for part in text.split(",")] if text else []
    if UNKNOWN in parsed:
        raise ToolUsageError(f"Invalid types list '{text}'. Valid types are: {', '.join(TYPES)}")
    return parsed
