"""DescribeConfigs as brokers and controllers answer it: each of its own configuration and of what the metadata log has.

v1 lists synonyms · v3 gives types and documentation · v4 is flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config import describe
from barnabas.config.broker_loggers import describe_loggers
from barnabas.config.client_metrics import describe_client_metrics
from barnabas.protocol import messages as m
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from barnabas.config.broker_config import BrokerConfig

    DescribeResource: TypeAlias = m.DescribeConfigsRequest.DescribeConfigsResource
    DescribeResult: TypeAlias = m.DescribeConfigsResponse.DescribeConfigsResult
    StoredConfigs: TypeAlias = Callable[[int, str], Mapping[str, str]]
    """Settings in the metadata log, by type and name of their resource."""

CLUSTER_DEFAULT = ""
"""What all brokers share is under this name."""

REQUEST_BYTES_MAX = 64
"""Describing the settings of a broker takes milliseconds, and those of a topic a third of one: so more than a few
resources are described in pieces."""


def describe_resources(
    request: m.DescribeConfigsRequest, config: BrokerConfig, stored: StoredConfigs
) -> m.DescribeConfigsResponse:
    """`config` is that of the node that answers, as it is in force."""
    return m.DescribeConfigsResponse(
        results=[describe_resource(resource, request, config, stored) for resource in request.resources]
    )


def describe_resource(
    resource: DescribeResource, request: m.DescribeConfigsRequest, config: BrokerConfig, stored: StoredConfigs
) -> DescribeResult:
    result = m.DescribeConfigsResponse.DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        entries = entries_of(resource.resource_type, resource.resource_name, config, stored)
    except KafkaError as refused:
        result.error_code = refused.error
        result.error_message = refused.message
        return result
    wanted = frozenset(resource.configuration_keys or ())
    result.configs = [describe_entry(entry, request) for entry in entries if not wanted or entry.name in wanted]
    return result


def entries_of(
    resource_type: int, name: str, config: BrokerConfig, stored: StoredConfigs
) -> Sequence[describe.ConfigEntry]:
    match resource_type:
        case ResourceType.TOPIC:
            return describe.describe_topic(stored(resource_type, name), config)
        case ResourceType.BROKER if name == CLUSTER_DEFAULT:
            return describe.describe_cluster_default(config)
        case ResourceType.BROKER:
            if node_id_of("Broker", name) != config.node_id:
                raise KafkaError(
                    Error.INVALID_REQUEST,
                    f"Unexpected broker id, expected {config.node_id} or empty string, but received {name}",
                )
            return describe.describe_broker(config)
        case ResourceType.BROKER_LOGGER:
            require_name("Broker id", name)
            if node_id_of("Broker", name) != config.node_id:
                raise KafkaError(
                    Error.INVALID_REQUEST, f"Unexpected broker id, expected {config.node_id} but received {name}"
                )
            return describe_loggers()
        case ResourceType.GROUP:
            require_name("Group name", name)
            return describe.describe_group(stored(resource_type, name), config)
        case ResourceType.CLIENT_METRICS:
            require_name("Client metrics subscription name", name)
            return describe_client_metrics(stored(resource_type, name))
        case _:
            raise KafkaError(Error.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def require_name(what: str, name: str) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, f"{what} must not be empty")


def node_id_of(what: str, name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise KafkaError(Error.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}") from None


def describe_entry(
    entry: describe.ConfigEntry, request: m.DescribeConfigsRequest
) -> m.DescribeConfigsResponse.DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return m.DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            m.DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
