"""What has settings, as people name it: `topic orders`, `broker 1`, `broker default`, `group report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import CommandError, nearest
from barnabas.client.admin import configs
from barnabas.client.admin.configs import Resource
from barnabas.client.admin.groups import list_groups
from barnabas.client.admin.topics import list_topics
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.cli.command_line import Parser
    from barnabas.client.cluster import Cluster

KINDS: Final = {
    "topic": configs.TOPIC,
    "broker": configs.BROKER,
    "group": configs.GROUP,
    "client-metrics": configs.CLIENT_METRICS,
}
ALL_BROKERS: Final = "default"
"""In place of a broker's id: what holds for each that has no setting of its own."""
_UNASKABLE: Final = (Error.UNSUPPORTED_VERSION, Error.CLUSTER_AUTHORIZATION_FAILED)


def add_kind(parser: Parser) -> None:
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=f"one of {', '.join(KINDS)}")


def resource_named(cluster: Cluster, kind: str, name: str) -> Resource:
    """CommandError for a topic or a broker that is not there. Groups and client metrics come with their settings."""
    if kind == "topic":
        require(kind, name, [each.name for each in list_topics(cluster)])
    elif kind == "broker":
        require(kind, name, [*map(str, sorted(cluster.nodes())), ALL_BROKERS])
        name = "" if name == ALL_BROKERS else name
    return Resource(KINDS[kind], name)


def require(kind: str, name: str, names: list[str]) -> None:
    if name not in names:
        raise CommandError(f"{kind} {name!r} does not exist ({nearest(name, names)})")


def all_resources(cluster: Cluster, kind: str) -> list[Resource]:
    """Everything of a kind that may have settings."""
    if kind == "topic":
        names = [each.name for each in list_topics(cluster)]
    elif kind == "broker":
        names = ["", *map(str, sorted(cluster.nodes()))]
        return [Resource(KINDS[kind], name) for name in names]
    elif kind == "group":
        names = [*(each.group for each in list_groups(cluster)), *_with_settings(cluster, configs.GROUP)]
    else:
        names = _with_settings(cluster, configs.CLIENT_METRICS)
    return [Resource(KINDS[kind], name) for name in sorted(set(names))]


def shown(resource: Resource) -> str:
    kind = next(name for name, number in KINDS.items() if number == resource.type)
    return f"{kind} {resource.name or ALL_BROKERS}"


def _with_settings(cluster: Cluster, resource_type: int) -> list[str]:
    """An older cluster, or one that does not let everybody know, has none to tell."""
    try:
        return configs.list_resources(cluster, resource_type)
    except KafkaError as failure:
        if failure.error in _UNASKABLE:
            return []
        raise
