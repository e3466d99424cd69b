"""`barnabas config describe`: settings with their values, where those come from, and what they are for."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Final

from barnabas.cli.cluster_session import add_cluster_arguments, cluster_of, refusal_text
from barnabas.cli.command_line import EXIT_FAILED, EXIT_OK, CommandError, nearest
from barnabas.cli.configs.things import add_kind, all_resources, resource_named, shown
from barnabas.cli.configs.units import readable
from barnabas.cli.output import Column, counted, print_json, print_table
from barnabas.client.admin.configs import DEFAULT, ConfigEntry, Resource, describe_configs
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from barnabas.cli.command_line import Parser

EPILOG = """examples:
  barnabas config describe topic orders                   # what is not as it would be by default
  barnabas config describe topic orders --all --docs
  barnabas config describe topic orders retention.ms      # everything about one setting
  barnabas config describe broker 1
  barnabas config describe broker default                 # what is set for all brokers
  barnabas config describe topic                          # all topics

exit codes: 0 it was shown, 1 there is no such thing or setting, or the cluster refused, 2 the command line is wrong
"""
PLACES: Final = {
    "DYNAMIC_TOPIC_CONFIG": "this topic",
    "DYNAMIC_BROKER_CONFIG": "this broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "properties file",
    "DEFAULT_CONFIG": "default",
    "DYNAMIC_BROKER_LOGGER_CONFIG": "this broker",
    "DYNAMIC_CLIENT_METRICS_CONFIG": "this subscription",
    "DYNAMIC_GROUP_CONFIG": "this group",
}
"""Where a value comes from, in words."""
COLUMNS = (Column("setting"), Column("value"), Column("is"), Column("from"), Column("default"))
HIDDEN: Final = "(hidden)"
NO_VALUE: Final = "(none)"
DOCS_WIDTH: Final = 100


def add_arguments(parser: Parser) -> None:
    add_kind(parser)
    parser.add_argument("name", metavar="NAME", nargs="?", help="(default: all of this kind)")
    parser.add_argument("settings", metavar="SETTING", nargs="*", help="only these settings, with all about them")
    parser.add_argument("--all", action="store_true", help="also what is as it is by default")
    parser.add_argument("--docs", action="store_true", help="say what each setting is for")
    add_cluster_arguments(parser)


def describe(options: argparse.Namespace) -> int:
    with cluster_of(options) as cluster:
        if options.name is None:
            resources = all_resources(cluster, options.kind)
        else:
            resources = [resource_named(cluster, options.kind, options.name)]
        found = describe_configs(cluster, resources, include_synonyms=True, include_documentation=True)
    chosen = {
        each: chosen_entries(entries, options) for each, entries in found.items() if not isinstance(entries, KafkaError)
    }
    if options.json:
        print_json([resource_facts(each, entries) for each, entries in chosen.items()])
    else:
        for each, entries in chosen.items():
            show(each, entries, options)
    failures = [f"{shown(each)}: {refusal_text(why)}" for each, why in found.items() if isinstance(why, KafkaError)]
    for text in failures:
        print(f"barnabas: {text}", file=sys.stderr)
    return EXIT_FAILED if failures else EXIT_OK


def chosen_entries(entries: Sequence[ConfigEntry], options: argparse.Namespace) -> list[ConfigEntry]:
    in_order = sorted(entries)
    if options.settings:
        names = [each.name for each in in_order]
        for name in options.settings:
            if name not in names:
                raise CommandError(f"there is no setting {name!r} of a {options.kind} {known_text(name, names)}")
        return [each for each in in_order if each.name in options.settings]
    return in_order if options.all else [each for each in in_order if not each.is_default]


def known_text(name: str, names: Sequence[str]) -> str:
    hint = nearest(name, names)
    return f"({hint})" if hint.startswith("did you mean") else "(`barnabas config describe … --all` lists them)"


def show(resource: Resource, entries: Sequence[ConfigEntry], options: argparse.Namespace) -> None:
    if options.settings:
        for each in entries:
            print_one(each)
        return
    if not entries and options.name is None:
        return  # among many, only those are of interest that differ from the others
    title = f"{shown(resource)}  {counted(len(entries), 'setting')}"
    if not options.all:
        title += " not as by default (--all shows all)"
    print_table(COLUMNS, [row(each) for each in entries], title)
    if options.docs:
        for each in entries:
            print(f"\n{each.name}")
            print(documentation_text(each))


def print_one(entry: ConfigEntry) -> None:
    amount = readable(entry.name, entry.value)
    print(f"{entry.name} = {value_text(entry)}{f' ({amount})' if amount else ''}")
    print(f"  from: {PLACES.get(entry.source, entry.source)}{', read-only while the node runs' * entry.is_read_only}")
    print(f"  default: {default_text(entry)}")
    for each in entry.synonyms[1:]:
        print(f"  otherwise: {each.name} = {each.value} ({PLACES.get(each.source, each.source)})")
    print(documentation_text(entry))


def row(entry: ConfigEntry) -> tuple[object, ...]:
    amount = readable(entry.name, entry.value)
    return entry.name, value_text(entry), amount, PLACES.get(entry.source, entry.source), default_text(entry)


def value_text(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return HIDDEN
    return NO_VALUE if entry.value is None else entry.value


def default_of(entry: ConfigEntry) -> str | None:
    """None where there is none, or it is not known: a cluster may leave it out for what was set otherwise."""
    if entry.is_default:
        return entry.value
    return next((each.value for each in entry.synonyms if each.source == DEFAULT), None)


def default_text(entry: ConfigEntry) -> str:
    if entry.is_default:
        return value_text(entry)
    default = default_of(entry)
    return "-" if default is None else default


def documentation_text(entry: ConfigEntry) -> str:
    text = entry.documentation or "(the cluster says nothing about it)"
    return textwrap.fill(" ".join(text.split()), DOCS_WIDTH, initial_indent="  ", subsequent_indent="  ")


def resource_facts(resource: Resource, entries: Sequence[ConfigEntry]) -> dict[str, object]:
    kind, _, name = shown(resource).partition(" ")
    return {
        "kind": kind,
        "name": name,
        "settings": [
            {
                "name": each.name,
                "value": each.value,
                "source": each.source,
                "default": default_of(each),
                "read_only": each.is_read_only,
                "sensitive": each.is_sensitive,
                "documentation": each.documentation,
            }
            for each in entries
        ],
    }
