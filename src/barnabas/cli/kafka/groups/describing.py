"""`kafka-consumer-groups --describe`: the partitions of groups with their lag, their members, or their state."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.groups.failures import asking_cluster, failed, named, nested, print_error
from barnabas.cli.kafka.groups.listing import NAME_WIDTH_MIN, STATES, group_names, known
from barnabas.cli.kafka.groups.partitions import topic_states
from barnabas.client.admin.group_progress import Owner, Place
from barnabas.client.admin.groups import (
    GroupDescription,
    MemberState,
    OtherProtocolError,
    describe_consumer_groups,
    fetch_offsets,
)
from barnabas.client.offset_queries import LATEST, CommittedOffset, by_topic, list_offsets
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.cli.kafka.flags import Given
    from barnabas.client.cluster import Cluster, TopicPartition

MISSING: Final = "-"
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_UNNAMED_EPOCH: Final = -1
NOBODY: Final = Owner(MISSING, MISSING, MISSING)


def describe(cluster: Cluster, given: Given) -> None:
    groups = group_names(cluster) if given.has("all-groups") else given.texts("group")
    described = descriptions(cluster, groups)
    is_verbose = given.has("verbose")
    for name in sorted(described):
        group = described[name]
        if given.has("members"):
            _print_members(group, is_verbose=is_verbose)
        elif given.has("state"):
            _print_state(group, is_verbose=is_verbose)
        else:
            _print_places(group, places_of(cluster, group), is_verbose=is_verbose)


def descriptions(cluster: Cluster, groups: Iterable[str]) -> dict[str, GroupDescription]:
    """All of these groups; ToolError for one that cannot be described."""
    with asking_cluster("describeConsumerGroups(api=FIND_COORDINATOR)", named):
        described = {}
        for name, group in describe_consumer_groups(cluster, groups).items():
            if isinstance(group, KafkaError):
                raise group
            if isinstance(group, OtherProtocolError):
                raise failed(f"java.lang.IllegalArgumentException: {group}")
            described[name] = group
    return described


def places_of(cluster: Cluster, group: GroupDescription) -> list[Place]:
    """The partitions of members, those of the busiest first, then what is committed and read by nobody."""
    with asking_cluster("listConsumerGroupOffsets(api=FIND_COORDINATOR)", nested):
        committed = fetch_offsets(cluster, group.group)
    owned: set[TopicPartition] = set()
    places = []
    for member in sorted(group.members, key=lambda each: -len(each.assignment)):
        if member.assignment:
            owner = Owner(member.member_id, member.host, member.client_id)
            places += _places(cluster, member.assignment, committed, owner)
            owned.update(member.assignment)
    places += _places(cluster, [place for place in committed if place not in owned], committed, None)
    return places


def _places(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    committed: dict[TopicPartition, CommittedOffset],
    owner: Owner | None,
) -> list[Place]:
    states = topic_states(cluster, by_topic(partitions), nested)
    led = {
        (topic, each.partition) for topic, state in states.items() for each in state.partitions if each.leader_id >= 0
    }
    with asking_cluster("listOffsets(api=METADATA)", nested):
        ends = list_offsets(cluster, dict.fromkeys((place for place in partitions if place in led), LATEST))
    places = []
    for topic, partition in sorted(partitions):
        end = ends.get((topic, partition))
        places.append(
            Place(topic, partition, committed.get((topic, partition)), None if end is None else end.offset, owner)
        )
    return places


def _print_places(group: GroupDescription, places: list[Place], *, is_verbose: bool) -> None:
    if not _is_worth_showing(group, len(places)):
        return
    widths = [
        max([NAME_WIDTH_MIN, *map(len, column)])
        for column in (
            [group.group],
            [each.topic for each in places],
            [(each.owner or NOBODY).member_id for each in places],
            [(each.owner or NOBODY).host for each in places],
        )
    ]

    def print_row(name: str, topic: str, figures: Sequence[object], owner: Owner) -> None:
        partition, epoch, offset, end, lag = ("-" if each is None else str(each) for each in figures)
        middle = [f"{partition:<10}", *([f"{epoch:<15}"] if is_verbose else []), f"{offset:<15}", f"{end:<15}"]
        cells = [f"{name:<{widths[0]}}", f"{topic:<{widths[1]}}", *middle, f"{lag:<15}"]
        cells += [f"{owner.member_id:<{widths[2]}}", f"{owner.host:<{widths[3]}}", owner.client_id]
        print("\n" + " ".join(cells), end="")

    titles = ("PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    print_row("GROUP", "TOPIC", titles, Owner("CONSUMER-ID", "HOST", "CLIENT-ID"))
    for each in places:
        epoch = None if each.committed is None or each.committed.leader_epoch == _UNNAMED_EPOCH else each.committed[1]
        offset = None if each.committed is None else each.committed.offset
        print_row(group.group, each.topic, (each.partition, epoch, offset, each.end, each.lag), each.owner or NOBODY)
    print()


def _print_members(group: GroupDescription, *, is_verbose: bool) -> None:
    # Kafka's tool prints the heading of a group even where it has just said that it has no members.
    members = group.members
    _is_worth_showing(group, len(members))
    rows = [_member_cells(group, each) for each in members]
    shows_instances = any(each.instance_id for each in members)
    is_migrating = {each.is_of_consumer_protocol for each in members} >= {True, False}
    widths = {"GROUP": 15, "CONSUMER-ID": 15, "GROUP-INSTANCE-ID": 17, "HOST": 15, "CLIENT-ID": 15, "#PARTITIONS": 15}
    if not shows_instances:
        del widths["GROUP-INSTANCE-ID"]
    if is_verbose:
        widths |= {"CURRENT-EPOCH": 15, "CURRENT-ASSIGNMENT": 20, "TARGET-EPOCH": 15, "TARGET-ASSIGNMENT": 20}
    if is_verbose and is_migrating:
        widths["UPGRADED"] = 0
    fixed = ("#PARTITIONS", "CURRENT-EPOCH", "TARGET-EPOCH", "UPGRADED")
    for column, width in widths.items():
        if column not in fixed:
            widths[column] = max([width, *(len(row[column]) for row in rows)])

    def print_row(row: dict[str, str]) -> None:
        # Without the columns of --verbose, a blank follows the last of the others.
        line = " ".join(f"{row[column]:<{width}}" for column, width in widths.items())
        print(line if is_verbose else f"{line} ")

    print()
    print_row({column: column for column in widths})
    for row in rows:
        print_row(row)


def _member_cells(group: GroupDescription, member: MemberState) -> dict[str, str]:
    upgraded = {None: MISSING, True: "true", False: "false"}[member.is_of_consumer_protocol]
    return {
        "GROUP": group.group,
        "CONSUMER-ID": member.member_id,
        "GROUP-INSTANCE-ID": member.instance_id or "",
        "HOST": member.host,
        "CLIENT-ID": member.client_id,
        "#PARTITIONS": str(len(set(member.assignment))),
        "CURRENT-EPOCH": _number(member.epoch),
        "CURRENT-ASSIGNMENT": _assignment(member.assignment),
        "TARGET-EPOCH": _number(group.target_epoch),
        "TARGET-ASSIGNMENT": _assignment(member.target),
        "UPGRADED": upgraded,
    }


def _assignment(partitions: Iterable[TopicPartition]) -> str:
    topics = by_topic(sorted(set(partitions)))
    shown = sorted(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items())
    return ";".join(shown) or MISSING


def _print_state(group: GroupDescription, *, is_verbose: bool) -> None:
    if not _is_worth_showing(group, 1):
        return
    host, port = group.coordinator.address
    coordinator = f"{host}:{port}  ({group.coordinator.node_id})"
    widths = [max(15, len(group.group)), max(25, len(coordinator)), 20, 20]
    titles = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    cells = [group.group, coordinator, group.assignor or MISSING, known(group.state, STATES)]
    if is_verbose:
        widths += [15, 25]
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        cells += [_number(group.epoch), _number(group.target_epoch)]
    for row in ([*titles, "#MEMBERS"], [*cells, str(len(group.members))]):
        print("\n" + " ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)), end="")
    print()


def _is_worth_showing(group: GroupDescription, row_count: int) -> bool:
    """Whether there is something to show; a word about the group where it is not as it should be."""
    state = known(group.state, STATES)
    sys.stdout.flush()
    if state == "Dead":
        print_error(f"Consumer group '{group.group}' does not exist.")
    elif state == "Empty":
        print(f"\nConsumer group '{group.group}' has no active members.", file=sys.stderr)
    elif state in _REBALANCING:
        print(f"\nWarning: Consumer group '{group.group}' is rebalancing.", file=sys.stderr)
    elif state != "Stable":
        raise failed(f"Expected a valid consumer group state, but found '{state}'.")
    return state != "Dead" and row_count > 0


def _number(value: int | None) -> str:
    return MISSING if value is None else str(value)
