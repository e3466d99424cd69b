"""`barnabas group delete`, `delete-offsets`: groups go, or what they have committed for some topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.cluster_session import add_cluster_arguments, cluster_of, refusal_text
from barnabas.cli.command_line import CommandError
from barnabas.cli.confirmation import add_confirmation, check_confirmation, confirm
from barnabas.cli.groups.describing import ending
from barnabas.cli.groups.known_groups import absent_text, described_groups, members_text
from barnabas.cli.groups.resetting import parse_scope
from barnabas.cli.output import counted, print_json
from barnabas.client.admin import groups as admin
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    import argparse

    from barnabas.cli.command_line import Parser
    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.protocol.errors import KafkaError


def add_delete_arguments(parser: Parser) -> None:
    parser.add_argument("groups", metavar="GROUP", nargs="+")
    parser.add_argument("--if-exists", action="store_true", help="do not fail if a group does not exist")
    add_confirmation(parser)
    add_cluster_arguments(parser)


def delete(options: argparse.Namespace) -> int:
    check_confirmation(options)
    names = list(dict.fromkeys(options.groups))
    with cluster_of(options) as cluster:
        if not options.yes:
            print(f"to be deleted with all their offsets: {', '.join(names)}")
        confirm(f"Delete {counted(len(names), 'group')}?", options)
        outcomes = admin.delete_groups(cluster, names)
        failures = [
            delete_failure(cluster, name, failure)
            for name, failure in outcomes.items()
            if failure is not None and not (options.if_exists and failure.error is Error.GROUP_ID_NOT_FOUND)
        ]
    gone = [name for name, failure in outcomes.items() if failure is None]
    if options.json:
        print_json(gone)
    else:
        for name in gone:
            print(f"deleted {name}")
    return ending(failures)


def delete_failure(cluster: Cluster, name: str, failure: KafkaError) -> str:
    if failure.error is Error.GROUP_ID_NOT_FOUND:
        return absent_text(cluster, name)
    if failure.error is Error.NON_EMPTY_GROUP:
        described, _ = described_groups(cluster, [name])
        members = members_text(described[0]) if described else ""
        return f"group {name!r} has members: stop {members or 'them'} first"
    return f"group {name!r}: {refusal_text(failure)}"


def add_delete_offsets_arguments(parser: Parser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "--topic",
        type=parse_scope,
        action="append",
        required=True,
        metavar="TOPIC[:N,…]",
        help="a topic, or some of its partitions; may be given several times",
    )
    add_confirmation(parser)
    add_cluster_arguments(parser)


def delete_offsets(options: argparse.Namespace) -> int:
    check_confirmation(options)
    with cluster_of(options) as cluster:
        places = committed_places(cluster, options)
        if not options.yes:
            for topic, partition in places:
                print(f"to be forgotten: {topic}-{partition}")
        confirm(f"Forget {counted(len(places), 'offset')} of {options.group}?", options)
        outcomes = admin.delete_offsets(cluster, options.group, places)
    gone = [place for place in places if outcomes.get(place) is None]
    failures = [
        f"{topic}-{partition}: {offset_failure(failure)}"
        for (topic, partition), failure in sorted(outcomes.items())
        if failure is not None
    ]
    if options.json:
        print_json([{"topic": topic, "partition": partition} for topic, partition in gone])
    elif gone:
        print(f"forgot {counted(len(gone), 'offset')} of {options.group}")
    return ending(failures)


def committed_places(cluster: Cluster, options: argparse.Namespace) -> list[TopicPartition]:
    """The partitions that are meant, of those that the group has offsets in: the topic itself may be gone."""
    described, failures = described_groups(cluster, [options.group])
    if failures:
        raise CommandError(failures[0])
    committed = admin.fetch_offsets(cluster, described[0].group)
    places: set[TopicPartition] = set()
    for topic, partitions in options.topic:
        there = {partition for name, partition in committed if name == topic}
        absent = sorted(set(partitions) - there)
        if absent or not there:
            where = f"{topic}-{absent[0]}" if absent else f"topic {topic!r}"
            raise CommandError(f"group {options.group!r} has committed no offset for {where}")
        places.update((topic, each) for each in partitions or there)
    return sorted(places)


def offset_failure(failure: KafkaError) -> str:
    if failure.error is Error.GROUP_SUBSCRIBED_TO_TOPIC:
        return "members of the group read the topic: stop them first"
    return refusal_text(failure)
