"""ListConfigResources: what has settings, or can be described. Groups and subscriptions to clients' metrics are listed
if they have any; topics, brokers and the loggers of brokers are listed always.

v0 lists subscriptions to clients' metrics only · v1 lists resources of the types that are asked for, or of all
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.environments import AdminEnvironment
from barnabas.broker.api.registry import handles
from barnabas.net.large_requests import ADDED_AT_ONCE, Breather
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.metadata.image import MetadataImage
    from barnabas.net.dispatch import Caller

FIRST_VERSION_WITH_TYPES = 1

_Resource = m.ListConfigResourcesResponse.ConfigResource


@handles(ApiKey.LIST_CONFIG_RESOURCES, AdminEnvironment, versions=(0, 1), long_answer="config_resources")
async def list_config_resources(
    environment: AdminEnvironment, request: m.ListConfigResourcesRequest, caller: Caller
) -> m.ListConfigResourcesResponse:
    types: Iterable[int] = frozenset(request.resource_types) or ResourceType
    if caller.api_version < FIRST_VERSION_WITH_TYPES:
        types = [ResourceType.CLIENT_METRICS]
    if not set(types) <= set(ResourceType):
        return m.ListConfigResourcesResponse(error_code=Error.UNSUPPORTED_VERSION)
    breather = Breather()
    found: list[m.ListConfigResourcesResponse.ConfigResource] = []
    for resource_type in types:
        for name in names_of(resource_type, environment.metadata.image, caller.listener.name):
            found.append(_Resource(resource_name=name, resource_type=resource_type))
            if len(found) % ADDED_AT_ONCE == 0:
                await breather.pause_if_due()
    return m.ListConfigResourcesResponse(config_resources=found)


def names_of(resource_type: int, image: MetadataImage, listener: str) -> Iterator[str]:
    match resource_type:
        case ResourceType.TOPIC:
            yield from image.topics.names
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            for broker in image.brokers.values():
                if not broker.fenced and broker.endpoint(listener) is not None:
                    yield str(broker.id)
        case _:
            yield from (resource.name for resource in image.configs.resources if resource.type == resource_type)
