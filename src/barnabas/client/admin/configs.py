"""Settings of topics, brokers, loggers, groups and client metrics: what they are, where from, and how to change them.

    place = Resource(TOPIC, "orders")
    entries = describe_configs(cluster, [place])[place]
    alter_configs(cluster, place, {"retention.ms": "1000", "segment.ms": None})

What a broker is started with only that broker knows, so those questions go there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.admin.outcomes import passing, raise_first, refusal
from barnabas.client.cluster import Call
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.cluster import Cluster
    from barnabas.protocol.messages import Message

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
"""Types of what has settings."""

SOURCES: Final = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Where values come from, under Kafka's names."""
DEFAULT: Final = "DEFAULT_CONFIG"

_SET: Final = 0
_DELETE: Final = 1


class Resource(NamedTuple):
    """Something that has settings. Brokers without a name are all of them."""

    type: int
    name: str


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    """None for what is not to be seen."""
    source: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: list[Synonym]
    """Where the value would come from, the place that decides first."""
    documentation: str | None = None
    """What it is for; None unless it was asked for."""

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT


def describe_configs(
    cluster: Cluster,
    resources: Iterable[Resource],
    *,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> dict[Resource, list[ConfigEntry] | KafkaError]:
    """The settings of each, or why they cannot be told."""
    found: dict[Resource, list[ConfigEntry] | KafkaError] = {}
    for broker_id, asked in _by_broker(resources).items():
        request = m.DescribeConfigsRequest(
            resources=[
                m.DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=each.type, resource_name=each.name, configuration_keys=None
                )
                for each in asked
            ],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        response = _ask(cluster, broker_id, ApiKey.DESCRIBE_CONFIGS, request)
        for result in response.results:
            failure = refusal(result.error_code, result.error_message)
            resource = Resource(result.resource_type, result.resource_name)
            found[resource] = failure or [_entry(each) for each in result.configs]
    return found


def entries_of(cluster: Cluster, resource: Resource, *, include_synonyms: bool = False) -> list[ConfigEntry]:
    """The settings of one thing."""
    found = describe_configs(cluster, [resource], include_synonyms=include_synonyms)[resource]
    if isinstance(found, KafkaError):
        raise found
    return found


def alter_configs(cluster: Cluster, resource: Resource, changes: Mapping[str, str | None]) -> None:
    """Set settings, or take them back where the value is None. The others stay as they are."""
    alter_all_configs(cluster, {resource: changes})


def alter_all_configs(cluster: Cluster, changes: Mapping[Resource, Mapping[str, str | None]]) -> None:
    """The same for several things."""
    struct = m.IncrementalAlterConfigsRequest
    for broker_id, altered in _by_broker(changes).items():
        resources = [
            struct.AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    struct.AlterableConfig(
                        name=name,
                        config_operation=_DELETE if value is None else _SET,
                        value="" if value is None else value,
                    )
                    for name, value in changes[resource].items()
                ],
            )
            for resource in altered
        ]
        response = _ask(cluster, broker_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, struct(resources=resources))
        raise_first({each.resource_name: refusal(each.error_code, each.error_message) for each in response.responses})


def list_resources(cluster: Cluster, resource_type: int) -> list[str]:
    """The names of what has settings of its own, of one type."""
    request = m.ListConfigResourcesRequest(resource_types=[resource_type])
    call = Call(ApiKey.LIST_CONFIG_RESOURCES, lambda _: request, lambda answer: passing(answer.error_code))
    response: m.ListConfigResourcesResponse = cluster.ask_any(call)
    failure = refusal(response.error_code)
    if failure is not None:
        raise failure
    return [each.resource_name for each in response.config_resources]


def _by_broker(resources: Iterable[Resource]) -> dict[int | None, list[Resource]]:
    """Whom to ask: the broker that it is about, or any."""
    asked: dict[int | None, list[Resource]] = {}
    for each in resources:
        is_of_one = each.type in (BROKER, BROKER_LOGGER) and each.name
        asked.setdefault(int(each.name) if is_of_one else None, []).append(each)
    return asked


def _ask(cluster: Cluster, broker_id: int | None, api_key: ApiKey, request: Message) -> Any:
    call = Call(api_key, lambda _: request, lambda _: Error.NONE)
    return cluster.ask_any(call) if broker_id is None else cluster.ask_broker(broker_id, call)


def _entry(each: m.DescribeConfigsResponse.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        each.name,
        each.value,
        SOURCES.get(each.config_source, SOURCES[0]),
        each.is_sensitive,
        each.read_only,
        [Synonym(one.name, one.value, SOURCES.get(one.source, SOURCES[0])) for one in each.synonyms],
        each.documentation,
    )
