"""`kafka-configs --describe`: settings with where they come from, quotas, and who has passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.admin_access import asking
from barnabas.cli.kafka.configs.entities import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENT_METRICS,
    CLIENTS,
    GROUPS,
    IPS,
    THE_DEFAULT,
    TOPICS,
    USERS,
    Entities,
    singular,
)
from barnabas.cli.kafka.java.java_order import in_hash_order, in_scala_set_order, string_hash
from barnabas.cli.kafka.java.java_values import double_text
from barnabas.cli.kafka.tool import ToolUsageError
from barnabas.client.admin import configs, quotas
from barnabas.client.admin.configs import ConfigEntry, Resource, entries_of, list_resources
from barnabas.client.admin.groups import list_groups
from barnabas.client.admin.scram import describe_credentials
from barnabas.client.admin.topics import list_topics
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.cluster import Cluster

RESOURCE_TYPES: Final = {
    TOPICS: configs.TOPIC,
    CLIENT_METRICS: configs.CLIENT_METRICS,
    BROKERS: configs.BROKER,
    GROUPS: configs.GROUP,
}
_DYNAMIC: Final = {
    TOPICS: "DYNAMIC_TOPIC_CONFIG",
    CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    GROUPS: "DYNAMIC_GROUP_CONFIG",
}
"""The source of what is set for the thing itself."""
_QUOTA_TYPES: Final = {USERS: quotas.USER, CLIENTS: quotas.CLIENT, IPS: quotas.ADDRESS}
_SHOWN_QUOTA_TYPES: Final = {quotas.USER: "user-principal", quotas.CLIENT: "client-id", quotas.ADDRESS: "ip"}
_UNASKABLE: Final = (Error.UNSUPPORTED_VERSION, Error.CLUSTER_AUTHORIZATION_FAILED)
_NAME_LENGTH_MAX: Final = 249


def describe(cluster: Cluster, entities: Entities, *, shows_all: bool) -> None:
    if entities.type in _QUOTA_TYPES:
        _print_quotas(quotas_of(cluster, entities))
        if entities.type != IPS and CLIENTS not in entities.types and THE_DEFAULT not in entities.names:
            _print_credentials(cluster, entities.names)
        return
    kind, name = entities.type, entities.name
    if name is None:
        names = _names(cluster, kind)
    elif shows_all or name == THE_DEFAULT or name in _names(cluster, kind):
        names = [name]
    else:
        print(f"The {singular(kind)} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    for each in names:
        _print_resource(cluster, kind, each, shows_all=shows_all)


def resource_entries(cluster: Cluster, resource: Resource) -> list[ConfigEntry]:
    with asking("describeConfigs"):
        return entries_of(cluster, resource, include_synonyms=True)


def quotas_of(cluster: Cluster, entities: Entities) -> list[quotas.Quotas]:
    """The quotas of what is named exactly, or of everything of the types."""
    if len(entities.names) > len(entities.types):
        raise ToolUsageError("More entity names specified than entity types")
    components = []
    for at, kind in enumerate(entities.types):
        name = entities.names[at] if at < len(entities.names) else None
        if name is None:
            components.append(quotas.Component(_QUOTA_TYPES[kind], quotas.ANY))
        elif name == THE_DEFAULT:
            components.append(quotas.Component(_QUOTA_TYPES[kind], quotas.THE_DEFAULT))
        else:
            components.append(quotas.Component(_QUOTA_TYPES[kind], quotas.EXACTLY, name))
    with asking("describeClientQuotas"):
        found = quotas.describe_quotas(cluster, components)
    by_entity = {tuple(sorted(each.entity.items())): each for each in found}
    return [by_entity[each] for each in in_hash_order(by_entity, _entity_hash, len(by_entity))]


def _names(cluster: Cluster, kind: str) -> list[str]:
    """What there is of a type, in the order in which the tool goes through it."""
    if kind == TOPICS:
        with asking("listTopics"):
            return in_hash_order((topic.name for topic in list_topics(cluster)), string_hash)
    if kind == CLIENT_METRICS:
        with asking("listConfigResources"):
            return list_resources(cluster, configs.CLIENT_METRICS)
    if kind == GROUPS:
        with asking("listGroups"):
            listed = [group.group for group in list_groups(cluster)]
        return in_scala_set_order([*listed, *_groups_with_configs(cluster)])
    with asking("listNodes"):
        return [*map(str, cluster.nodes()), *([THE_DEFAULT] if kind == BROKERS else [])]


def _groups_with_configs(cluster: Cluster) -> list[str]:
    try:
        return list_resources(cluster, configs.GROUP)
    except KafkaError as failure:
        if failure.error in _UNASKABLE:
            return []
        raise


def _print_resource(cluster: Cluster, kind: str, name: str, *, shows_all: bool) -> None:
    if name == THE_DEFAULT:
        print(f"Default configs for {kind} in the cluster are:", flush=True)
    else:
        which = "All" if shows_all else "Dynamic"
        print(f"{which} configs for {singular(kind)} {name} are:", flush=True)
    if kind == TOPICS:
        _check_topic_name(name)
    source = None if shows_all else _DYNAMIC.get(kind)
    if kind == BROKERS and not shows_all:
        source = "DYNAMIC_DEFAULT_BROKER_CONFIG" if name == THE_DEFAULT else "DYNAMIC_BROKER_CONFIG"
    resource = Resource(configs.BROKER_LOGGER if kind == BROKER_LOGGERS else RESOURCE_TYPES[kind], name)
    for entry in sorted(resource_entries(cluster, resource), key=lambda each: each.name):
        if source is None or entry.source == source:
            print(_entry_line(entry))


def _entry_line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{each.source}:{each.name}={_value(each.value)}" for each in entry.synonyms)
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_value(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _value(value: str | None) -> str:
    return "null" if value is None else value


def _check_topic_name(name: str) -> None:
    if name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > _NAME_LENGTH_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length {_NAME_LENGTH_MAX}"
    elif not all(each.isascii() and (each.isalnum() or each in "._-") for each in name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise ToolUsageError(f"Topic name is invalid: {problem}")


def _print_quotas(found: Iterable[quotas.Quotas]) -> None:
    for each in found:
        parts = [
            f"the default {shown}" if each.entity[kind] is None else f"{shown} '{each.entity[kind]}'"
            for kind, shown in _SHOWN_QUOTA_TYPES.items()
            if kind in each.entity
        ]
        values = [
            f"{key}={double_text(each.values[key])}"
            for key in in_hash_order(each.values, string_hash, len(each.values))
        ]
        print(f"Quota configs for {', '.join(parts)} are {', '.join(values)}")


def _print_credentials(cluster: Cluster, users: list[str]) -> None:
    with asking("describeUserScramCredentials"):
        found = describe_credentials(cluster, users)
    for user, credentials in found.items():
        shown = ", ".join(f"{each.mechanism}=iterations={each.iterations}" for each in credentials)
        print(f"SCRAM credential configs for user-principal '{user}' are {shown}")


def _entity_hash(entity: tuple[tuple[str, str | None], ...]) -> int:
    """`ClientQuotaEntity.hashCode`: of the only thing in it, which is a map."""
    return 31 + sum(string_hash(kind) ^ (0 if name is None else string_hash(name)) for kind, name in entity)
