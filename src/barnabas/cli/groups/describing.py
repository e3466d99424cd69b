"""`barnabas group describe`, `members`: the lag of groups by partition, once or again and again, and who reads."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.cluster_session import add_cluster_arguments, cluster_of, failing_in_one_line
from barnabas.cli.command_line import EXIT_FAILED, EXIT_OK, CommandError, UsageError, seconds
from barnabas.cli.groups.known_groups import described_groups
from barnabas.cli.live import draw_again_and_again, print_again_and_again
from barnabas.cli.output import Column, comma_list, number, print_json, print_json_line, print_table, rich_table
from barnabas.client.admin.group_progress import Place, progress
from barnabas.client.admin.groups import GroupDescription, MemberState, list_groups
from barnabas.client.offset_queries import by_topic

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from barnabas.cli.command_line import Parser
    from barnabas.client.cluster import Cluster, TopicPartition

WATCH_S = 2.0
NOTHING = "-"
CONSUMER_PROTOCOL_TYPES = ("", "consumer")
DESCRIBE_EPILOG = f"""--watch asks again every {WATCH_S:g} seconds, or as often as it says, until ^C. At a terminal that
is a screen of its own; in a pipe, one table after the other, and with --json one line of JSON for each time.

lag is what is still to be read: the end of the partition less what the group has committed.
exit codes: 0 all groups were shown, 1 one does not exist or the cluster refused, 2 the command line is wrong
"""
PLACE_COLUMNS = (
    Column("topic"),
    number("partition"),
    number("committed"),
    number("end"),
    number("lag"),
    Column("client"),
    Column("host"),
)
WATCH_COLUMNS = (*PLACE_COLUMNS[:5], number("read/s"), *PLACE_COLUMNS[5:])
MEMBER_COLUMNS = (
    Column("member"),
    Column("instance"),
    Column("client"),
    Column("host"),
    number("epoch"),
    number("partitions"),
    Column("reads"),
)


class GroupView(NamedTuple):
    """A group with its partitions, as they were at some moment."""

    group: GroupDescription
    places: list[Place]
    at_s: float

    @property
    def lag(self) -> int:
        return sum(each.lag or 0 for each in self.places)

    @property
    def unknown_count(self) -> int:
        return sum(each.lag is None for each in self.places)


def add_describe_arguments(parser: Parser) -> None:
    add_group_arguments(parser)
    parser.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="only this topic's partitions")
    parser.add_argument(
        "--watch", nargs="?", type=seconds, const=WATCH_S, metavar="SECONDS", help="ask again and again; see below"
    )
    add_cluster_arguments(parser)


def add_members_arguments(parser: Parser) -> None:
    add_group_arguments(parser)
    add_cluster_arguments(parser)


def add_group_arguments(parser: Parser) -> None:
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="(default: all groups of consumers)")


def describe(options: argparse.Namespace) -> int:
    with cluster_of(options) as cluster:
        if options.watch is not None:
            watch(cluster, options)
        views, failures = views_of(cluster, options)
    if options.json:
        print_json([view_facts(view) for view in views])
    else:
        for view in views:
            print_table(PLACE_COLUMNS, [place_row(each) for each in view.places], heading(view))
    return ending(failures)


def show_members(options: argparse.Namespace) -> int:
    with cluster_of(options) as cluster:
        groups, failures = described_groups(cluster, names_of(cluster, options))
    if options.json:
        print_json([group_facts(group) | {"members": member_facts(group)} for group in groups])
    else:
        for group in groups:
            rows = [member_row(each) for each in group.members]
            print_table(MEMBER_COLUMNS, rows, f"{group_heading(group)}  members {len(rows)}")
    return ending(failures)


def ending(failures: Iterable[str]) -> int:
    failed = False
    for each in failures:
        failed = True
        print(f"barnabas: {each}", file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK


def names_of(cluster: Cluster, options: argparse.Namespace) -> list[str]:
    """The groups that were named, or all."""
    if options.groups:
        return list(dict.fromkeys(options.groups))
    return sorted(each.group for each in list_groups(cluster, protocol_types=CONSUMER_PROTOCOL_TYPES))


def views_of(cluster: Cluster, options: argparse.Namespace) -> tuple[list[GroupView], list[str]]:
    groups, failures = described_groups(cluster, names_of(cluster, options))
    views = []
    for group in groups:
        places = progress(cluster, group)
        if options.topic:
            places = [each for each in places if each.topic in options.topic]
        views.append(GroupView(group, places, time.monotonic()))
    return views, failures


def watch(cluster: Cluster, options: argparse.Namespace) -> None:
    """Ends with ^C only."""
    if options.watch <= 0:
        raise UsageError("--watch needs a time that is longer than nothing")
    earlier: dict[str, GroupView] = {}

    def look() -> tuple[list[GroupView], list[str]]:
        try:
            with failing_in_one_line():
                return views_of(cluster, options)
        except CommandError as error:
            return [], [f"{error} (still trying)"]

    def draw() -> RenderableType:
        from rich.console import Group

        views, failures = look()
        tables = [
            rich_table(WATCH_COLUMNS, watch_rows(view, earlier.get(view.group.group)), heading(view)) for view in views
        ]
        earlier.update({view.group.group: view for view in views})
        moment = datetime.now().astimezone().strftime("%H:%M:%S")
        return Group(*tables, *failures, f"{moment}, again every {options.watch:g} s, ^C ends")

    def show() -> None:
        views, failures = look()
        if options.json:
            now_ms = int(time.time() * 1000)
            print_json_line({"timestamp_ms": now_ms, "groups": [view_facts(view) for view in views]})
        for view in () if options.json else views:
            rows = watch_rows(view, earlier.get(view.group.group))
            print_table(WATCH_COLUMNS, rows, heading(view))
        earlier.update({view.group.group: view for view in views})
        ending(failures)

    if sys.stdout.isatty() and not options.json:
        draw_again_and_again(draw, options.watch)
    print_again_and_again(show, options.watch)


def heading(view: GroupView) -> str:
    unknown = f" and {view.unknown_count} unknown" if view.unknown_count else ""
    return f"{group_heading(view.group)}  members {len(view.group.members)}  lag {view.lag:,}{unknown}"


def group_heading(group: GroupDescription) -> str:
    epoch = "" if group.epoch is None else f"  epoch {group.epoch}"
    coordinator = f"{group.coordinator.node_id} at {group.coordinator.address}"
    return (
        f"{group.group}  {group.type.lower()}  {group.state}  assignor {group.assignor or 'none'}{epoch}"
        f"  coordinator {coordinator}"
    )


def place_row(place: Place) -> tuple[object, ...]:
    owner = place.owner
    return (
        place.topic,
        place.partition,
        NOTHING if place.committed is None else place.committed.offset,
        NOTHING if place.end is None else place.end,
        NOTHING if place.lag is None else place.lag,
        NOTHING if owner is None else owner.client_id,
        NOTHING if owner is None else owner.host.removeprefix("/"),
    )


def watch_rows(view: GroupView, earlier: GroupView | None) -> list[tuple[object, ...]]:
    """The rows with how many records a second were committed since the last time."""
    rates = rates_between(earlier, view) if earlier else {}
    rows = []
    for each in view.places:
        row = place_row(each)
        rate = rates.get((each.topic, each.partition))
        rows.append((*row[:5], NOTHING if rate is None else f"{rate:,.0f}", *row[5:]))
    return rows


def rates_between(earlier: GroupView, later: GroupView) -> dict[TopicPartition, float]:
    elapsed_s = later.at_s - earlier.at_s
    before = {(each.topic, each.partition): each.committed for each in earlier.places}
    rates = {}
    for each in later.places:
        then = before.get((each.topic, each.partition))
        if then is not None and each.committed is not None and elapsed_s > 0:
            rates[each.topic, each.partition] = (each.committed.offset - then.offset) / elapsed_s
    return rates


def member_row(member: MemberState) -> tuple[object, ...]:
    return (
        member.member_id,
        member.instance_id or NOTHING,
        member.client_id,
        member.host.removeprefix("/"),
        NOTHING if member.epoch is None else member.epoch,
        len(set(member.assignment)),
        assignment_text(member.assignment),
    )


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    topics = by_topic(sorted(set(partitions)))
    return " ".join(f"{topic}:{comma_list(numbers)}" for topic, numbers in topics.items()) or NOTHING


def view_facts(view: GroupView) -> dict[str, object]:
    return group_facts(view.group) | {
        "lag": view.lag,
        "members": member_facts(view.group),
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": None if each.committed is None else each.committed.offset,
                "end": each.end,
                "lag": each.lag,
                "member": None if each.owner is None else each.owner.member_id,
            }
            for each in view.places
        ],
    }


def group_facts(group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "coordinator": {"id": group.coordinator.node_id, "address": str(group.coordinator.address)},
    }


def member_facts(group: GroupDescription) -> list[dict[str, object]]:
    return [
        {
            "member": each.member_id,
            "instance": each.instance_id,
            "client_id": each.client_id,
            "host": each.host.removeprefix("/"),
            "epoch": each.epoch,
            "partitions": [
                {"topic": topic, "partition": partition} for topic, partition in sorted(set(each.assignment))
            ],
        }
        for each in group.members
    ]
