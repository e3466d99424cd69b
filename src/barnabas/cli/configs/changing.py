"""`barnabas config set`, `unset`: the settings of one thing, all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.cluster_session import add_cluster_arguments, cluster_of
from barnabas.cli.command_line import EXIT_OK, CommandError, parse_pair
from barnabas.cli.configs.describing import default_text, known_text, value_text
from barnabas.cli.configs.things import add_kind, resource_named, shown
from barnabas.cli.configs.units import as_kafka_writes
from barnabas.cli.output import print_json
from barnabas.client.admin import configs
from barnabas.client.admin.configs import ConfigEntry, Resource, alter_configs, entries_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from barnabas.cli.command_line import Parser
    from barnabas.client.cluster import Cluster

EPILOG = """examples:
  barnabas config set topic orders retention.ms=7d cleanup.policy=compact,delete
  barnabas config set broker default log.retention.bytes=10GiB
  barnabas config set group report consumer.session.timeout.ms=60s

Settings of time (….ms) take ms, s, m, h, d and w; settings of size (….bytes) take KiB, MiB, GiB, KB, MB and GB.
exit codes: 0 it is done, 1 it was refused, 2 the command line is wrong
"""


def add_set_arguments(parser: Parser) -> None:
    add_kind(parser)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("settings", type=parse_pair, metavar="SETTING=VALUE", nargs="+")
    add_change_arguments(parser)


def add_unset_arguments(parser: Parser) -> None:
    add_kind(parser)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("settings", metavar="SETTING", nargs="+")
    add_change_arguments(parser)


def add_change_arguments(parser: Parser) -> None:
    parser.add_argument("--force", action="store_true", help="also what the cluster knows nothing of")
    add_cluster_arguments(parser)


def set_(options: argparse.Namespace) -> int:
    changes = {name: as_kafka_writes(name, value) for name, value in options.settings}
    return change(options, changes)


def unset(options: argparse.Namespace) -> int:
    return change(options, dict.fromkeys(options.settings))


def change(options: argparse.Namespace, changes: Mapping[str, str | None]) -> int:
    with cluster_of(options) as cluster:
        resource = resource_named(cluster, options.kind, options.name)
        before = {each.name: each for each in entries_of(cluster, resource, include_synonyms=True)}
        if not options.force:
            require_settings(options.kind, changes, known_settings(cluster, resource, before))
        alter_configs(cluster, resource, changes)
    if options.json:
        print_json(change_facts(resource, changes, before))
    else:
        for name, value in changes.items():
            print(f"{shown(resource)}: {change_text(name, value, before.get(name))}")
    return EXIT_OK


def known_settings(
    cluster: Cluster, resource: Resource, of_resource: Mapping[str, ConfigEntry]
) -> Mapping[str, ConfigEntry]:
    """All settings that there are. Of all brokers together only what is set is told, so one of them is asked."""
    if resource.type != configs.BROKER or resource.name:
        return of_resource
    some_broker = Resource(configs.BROKER, str(min(cluster.nodes())))
    return {each.name: each for each in entries_of(cluster, some_broker)}


def require_settings(kind: str, names: Iterable[str], known: Mapping[str, ConfigEntry]) -> None:
    for name in names:
        if name not in known and not name.startswith("listener.name."):
            raise CommandError(f"there is no setting {name!r} of a {kind} {known_text(name, list(known))}")
        if name in known and known[name].is_read_only:
            raise CommandError(
                f"{name} cannot be changed while a node runs: write it into its properties file, and start it again"
            )


def change_text(name: str, value: str | None, before: ConfigEntry | None) -> str:
    was = "" if before is None else f" (was {value_text(before)})"
    if value is not None:
        shown_value = value_text(before._replace(value=value)) if before is not None else value
        return f"{name} = {shown_value}{was}"
    falls_back_to = "" if before is None or len(before.synonyms) < 2 else f", back to {before.synonyms[1].value}"
    if not falls_back_to and before is not None and before.is_default:
        return f"{name} was not set: it is {default_text(before)} by default"
    return f"{name} is unset{falls_back_to}{was}"


def change_facts(
    resource: Resource, changes: Mapping[str, str | None], before: Mapping[str, ConfigEntry]
) -> dict[str, object]:
    kind, _, name = shown(resource).partition(" ")
    return {
        "kind": kind,
        "name": name,
        "changes": [
            {"name": each, "before": before[each].value if each in before else None, "after": value}
            for each, value in changes.items()
        ],
    }
