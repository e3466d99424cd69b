"""`barnabas group list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.cluster_session import add_cluster_arguments, cluster_of
from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.output import Column, print_json, print_table
from barnabas.client.admin.groups import list_groups

if TYPE_CHECKING:
    import argparse

    from barnabas.cli.command_line import Parser

COLUMNS = (Column("group"), Column("type"), Column("state"), Column("protocol"))


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only groups in this state, such as Empty"
    )
    parser.add_argument(
        "--type", action="append", default=[], metavar="TYPE", help="only groups of this type, such as consumer"
    )
    add_cluster_arguments(parser)


def list_all(options: argparse.Namespace) -> int:
    with cluster_of(options) as cluster:
        listed = sorted(list_groups(cluster))
    states, types = ({each.lower() for each in given} for given in (options.state, options.type))
    shown = [
        each
        for each in listed
        if (not states or each.state.lower() in states) and (not types or each.type.lower() in types)
    ]
    if options.json:
        facts = ("group", "type", "state", "protocol_type")
        print_json([{name: getattr(each, name) for name in facts} for each in shown])
    else:
        print_table(COLUMNS, [(each.group, each.type, each.state, each.protocol_type or "-") for each in shown])
    return EXIT_OK
