"""`barnabas group reset`: where a group goes on, shown as a plan before anything is changed."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.cluster_connection import require_partitions
from barnabas.cli.cluster_session import add_cluster_arguments, cluster_of
from barnabas.cli.command_line import EXIT_OK, CommandError, nearest
from barnabas.cli.confirmation import add_confirmation, check_confirmation, confirm
from barnabas.cli.groups.known_groups import described_groups, members_text
from barnabas.cli.output import Column, counted, number, print_json, print_table
from barnabas.cli.times import EXAMPLES, TimeError, parse_time_ms, time_text
from barnabas.client.admin import group_resets
from barnabas.client.admin.groups import (
    GroupDescription,
    OtherProtocolError,
    alter_offsets,
    describe_consumer_groups,
    fetch_offsets,
)
from barnabas.client.admin.topics import TopicState, describe_topics, list_topics
from barnabas.client.offset_queries import EARLIEST, LATEST, by_topic
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.command_line import Parser
    from barnabas.client.admin.group_resets import Targets
    from barnabas.client.cluster import Cluster, TopicPartition

OFFSET_MAX = (1 << 63) - 1
NOTHING = "-"
COLUMNS = (
    Column("topic"),
    number("partition"),
    number("now"),
    number("then"),
    number("change"),
    Column("note"),
)
EPILOG = """examples:
  barnabas group reset report --topic orders --to beginning
  barnabas group reset report --topic orders:0,2 --to 2026-01-31T12:00:00Z
  barnabas group reset report --all-topics --to -10m --yes
  barnabas group reset report --topic orders --by -100

--to takes `beginning`, `end`, `current` (which commits an offset where there is none yet), an offset, or a time: ISO
8601 (local time if there is no time zone), -10m for ten minutes ago (ms, s, m, h, d, w), or @ followed by milliseconds
since 1970. --by takes a number of records, back if it is negative. The group must have no members: stop them first.
The plan is shown, and carried out when you say yes, or at once with --yes; with --dry-run it is only shown.
exit codes: 0 it is done, or was only to be shown, 1 it was refused or you said no, 2 the command line is wrong
"""


class Aim(NamedTuple):
    """What --to says: an end by its word, an offset, or a time."""

    word: str = ""
    offset: int | None = None
    timestamp_ms: int | None = None


def add_arguments(parser: Parser) -> None:
    parser.add_argument("group", metavar="GROUP")
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument(
        "--topic",
        type=parse_scope,
        action="append",
        default=[],
        metavar="TOPIC[:N,…]",
        help="a topic, or some of its partitions; may be given several times",
    )
    scope.add_argument("--all-topics", action="store_true", help="all that the group has committed offsets for")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--to", type=parse_aim, metavar="WHERE", help="see below")
    how.add_argument("--by", type=int, metavar="RECORDS", help="so many records further, or back")
    parser.add_argument("--dry-run", action="store_true", help="only show the plan")
    add_confirmation(parser)
    add_cluster_arguments(parser)


def parse_scope(text: str) -> tuple[str, tuple[int, ...]]:
    """A topic and the partitions that are meant; none of them means all."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not re.fullmatch(r"\d+(,\d+)*", numbers, re.ASCII)):
        raise argparse.ArgumentTypeError(f"{text!r} is neither TOPIC nor TOPIC:0,1")
    return topic, tuple(map(int, numbers.split(","))) if colon else ()


def parse_aim(text: str) -> Aim:
    words = {"beginning": "beginning", "earliest": "beginning", "end": "end", "latest": "end", "current": "current"}
    if text in words:
        return Aim(word=words[text])
    if text.isascii() and text.isdigit() and int(text) <= OFFSET_MAX:
        return Aim(offset=int(text))
    try:
        return Aim(timestamp_ms=parse_time_ms(text))
    except TimeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not valid: expected beginning, end, current, an offset, or {EXAMPLES}"
        ) from None


def reset(options: argparse.Namespace) -> int:
    check_confirmation(options)
    with cluster_of(options) as cluster:
        require_inactive(cluster, options.group)
        committed = {place: each.offset for place, each in fetch_offsets(cluster, options.group).items()}
        places = scope_of(cluster, options, committed)
        targets = planned(cluster, options, places, committed)
        changes = {place: target.offset for place, target in targets.items() if committed.get(place) != target.offset}
        if not options.json:
            show(options, targets, committed)
        is_to_be_done = bool(changes) and not options.dry_run
        if is_to_be_done:
            confirm(f"Set {counted(len(changes), 'offset')} of {options.group}?", options)
            alter_offsets(cluster, options.group, changes)
        if options.json:
            print_json(plan_facts(options.group, targets, committed, is_done=is_to_be_done))
        elif is_to_be_done:
            print(f"set {counted(len(changes), 'offset')} of {options.group}")
    return EXIT_OK


def require_inactive(cluster: Cluster, group: str) -> None:
    """A group that is not there is fine: it comes with its first offset."""
    found = describe_consumer_groups(cluster, [group])[group]
    if isinstance(found, KafkaError) and found.error is Error.GROUP_ID_NOT_FOUND:
        return
    if isinstance(found, KafkaError | OtherProtocolError):
        raise CommandError(described_groups(cluster, [group])[1][0])
    if found.state not in group_resets.INACTIVE_STATES:
        raise CommandError(active_text(found))


def active_text(group: GroupDescription) -> str:
    return (
        f"group {group.group!r} is in use ({group.state}), and its members would go on where they are: stop "
        f"{members_text(group) or 'them'} first"
    )


def scope_of(
    cluster: Cluster, options: argparse.Namespace, committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    if options.all_topics:
        if not committed:
            raise CommandError(f"group {options.group!r} has committed no offsets: say which --topic is meant")
        return sorted(committed)
    states = describe_topics(cluster, {topic for topic, _ in options.topic})
    places: set[TopicPartition] = set()
    for topic, partitions in options.topic:
        state = require_topic(cluster, topic, states[topic])
        require_partitions(topic, len(state.partitions), partitions)
        places.update((topic, each) for each in partitions or range(len(state.partitions)))
    return sorted(places)


def require_topic(cluster: Cluster, topic: str, state: TopicState | KafkaError) -> TopicState:
    if isinstance(state, TopicState):
        return state
    if state.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandError(f"topic {topic!r}: {state}")
    hint = nearest(topic, [each.name for each in list_topics(cluster)])
    if not hint.startswith("did you mean"):
        hint = "`barnabas topic list` lists topics"
    raise CommandError(f"topic {topic!r} does not exist ({hint})")


def planned(
    cluster: Cluster,
    options: argparse.Namespace,
    places: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> Targets:
    if options.by is not None:
        try:
            requested = group_resets.stepped(committed, places, options.by)
        except group_resets.NoOffsetError as failure:
            topic, partition = failure.place
            raise CommandError(
                f"group {options.group!r} has no offset in {topic}-{partition} to count from: use --to instead of --by"
            ) from None
        return group_resets.within_logs(cluster, requested)
    aim: Aim = options.to
    if aim.offset is not None:
        return group_resets.within_logs(cluster, dict.fromkeys(places, aim.offset))
    if aim.timestamp_ms is not None:
        return group_resets.at_time(cluster, places, aim.timestamp_ms)
    if aim.word == "current":
        return group_resets.where_it_is(cluster, committed, places)
    return group_resets.at_ends(cluster, places, EARLIEST if aim.word == "beginning" else LATEST)


def show(options: argparse.Namespace, targets: Targets, committed: Mapping[TopicPartition, int]) -> None:
    rows = [plan_row(place, targets[place], committed.get(place)) for place in sorted(targets)]
    when = ""
    if options.to is not None and options.to.timestamp_ms is not None:
        when = f"  to {time_text(options.to.timestamp_ms)}"
    topics = by_topic(targets)
    print_table(COLUMNS, rows, f"{options.group}: {counted(len(rows), 'partition')} of {', '.join(topics)}{when}")
    if all(committed.get(place) == target.offset for place, target in targets.items()):
        print("nothing is to be changed")


def plan_row(place: TopicPartition, target: group_resets.Target, now: int | None) -> tuple[object, ...]:
    change = NOTHING if now is None else f"{target.offset - now:+d}"
    return (*place, NOTHING if now is None else now, target.offset, change, note(target))


def note(target: group_resets.Target) -> str:
    if target.outside is not None:
        return f"there is no offset {target.outside}; this is the nearest"
    return "no record is so late; this is the end" if target.has_no_record_so_late else ""


def plan_facts(
    group: str, targets: Targets, committed: Mapping[TopicPartition, int], *, is_done: bool
) -> dict[str, object]:
    return {
        "group": group,
        "done": is_done,
        "partitions": [
            {
                "topic": topic,
                "partition": partition,
                "now": committed.get((topic, partition)),
                "then": targets[topic, partition].offset,
                "note": note(targets[topic, partition]) or None,
            }
            for topic, partition in sorted(targets)
        ],
    }
