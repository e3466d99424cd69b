"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: settings of topics, brokers and groups.

What is described comes from this node's own image and configuration. Changes go to the controller, except that a broker
checks first what only it can know: whether a change of broker settings is meant for it, and whether it could apply it.
The levels of its loggers concern no other node.

DescribeConfigs: see `config/describe_configs`
AlterConfigs replaces all settings of a resource: v2 is flexible
IncrementalAlterConfigs sets, deletes, appends to and subtracts from single settings: v1 is flexible
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.broker.api.admin.forwarding import DECIDED_AS_A_WHOLE, forward
from barnabas.broker.api.environments import AdminEnvironment
from barnabas.broker.api.registry import handles
from barnabas.config.broker_config import ConfigSource
from barnabas.config.broker_loggers import check_level, check_removal, set_levels
from barnabas.config.describe_configs import CLUSTER_DEFAULT, REQUEST_BYTES_MAX, describe_resources, node_id_of
from barnabas.config.dynamic import validate_broker_overrides
from barnabas.config.settings import BROKER, ConfigType
from barnabas.config.values import ConfigError, format_value
from barnabas.metadata.image import ConfigOperation, ConfigResource, ResourceType, edited_list
from barnabas.metadata.stored_configs import stored_configs
from barnabas.net.large_requests import Breather, Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from barnabas.net.dispatch import Caller

    Replacement: TypeAlias = m.AlterConfigsRequest.AlterConfigsResource
    Changes: TypeAlias = m.IncrementalAlterConfigsRequest.AlterConfigsResource
    AlterRequest: TypeAlias = m.AlterConfigsRequest | m.IncrementalAlterConfigsRequest


class HasResource(Protocol):
    """What alterations and their results have in common."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=HasResource)
T = TypeVar("T")


# ── describing ───────────────────────────────────────────────────────────────────────────────────────────────────


@handles(
    ApiKey.DESCRIBE_CONFIGS,
    AdminEnvironment,
    versions=(1, 4),
    cuts=[Cut(("resources",), ("results",))],
    whole_bytes_max=REQUEST_BYTES_MAX,
)
def describe_configs(
    environment: AdminEnvironment,
    request: m.DescribeConfigsRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.DescribeConfigsResponse:
    stored = partial(stored_configs, environment.metadata.image)
    return describe_resources(request, environment.settings.config, stored)


# ── altering ─────────────────────────────────────────────────────────────────────────────────────────────────────


@handles(
    ApiKey.ALTER_CONFIGS,
    AdminEnvironment,
    versions=(0, 2),
    cuts=[Cut(("resources",), ("responses",))],
    large_handler=DECIDED_AS_A_WHOLE,
)
async def alter_configs(
    environment: AdminEnvironment,
    request: m.AlterConfigsRequest,
    caller: Caller,
) -> m.AlterConfigsResponse:
    def forwarded(accepted: list[Replacement]) -> m.AlterConfigsRequest:
        return m.AlterConfigsRequest(resources=accepted, validate_only=request.validate_only)

    kind = m.AlterConfigsResponse.AlterConfigsResourceResponse
    responses = await alter(environment, caller, request.resources, refuse_replacing, forwarded, lambda _: False, kind)
    return m.AlterConfigsResponse(responses=responses)


@handles(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    AdminEnvironment,
    versions=(0, 1),
    cuts=[Cut(("resources",), ("responses",))],
    large_handler=DECIDED_AS_A_WHOLE,
)
async def incremental_alter_configs(
    environment: AdminEnvironment,
    request: m.IncrementalAlterConfigsRequest,
    caller: Caller,
) -> m.IncrementalAlterConfigsResponse:
    def forwarded(accepted: list[Changes]) -> m.IncrementalAlterConfigsRequest:
        return m.IncrementalAlterConfigsRequest(resources=accepted, validate_only=request.validate_only)

    def settled_here(accepted: Changes) -> bool:
        if accepted.resource_type != ResourceType.BROKER_LOGGER:
            return False
        if not request.validate_only:
            set_levels({each.name: level_of(each) for each in accepted.configs})
        return True

    kind = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    responses = await alter(environment, caller, request.resources, refuse_changing, forwarded, settled_here, kind)
    return m.IncrementalAlterConfigsResponse(responses=responses)


async def alter(
    environment: AdminEnvironment,
    caller: Caller,
    resources: Sequence[R],
    refuse: Callable[[AdminEnvironment, R], None],
    forwarded: Callable[[list[R]], AlterRequest],
    settled_here: Callable[[R], bool],
    kind: Callable[..., T],
) -> list[T]:
    """The outcome of each resource: it is refused here, `settled_here`, or decided by the controller. There may be very
    many, so others get their turn between them."""
    breather = Breather()
    refused = await refuse_duplicates(resources, breather)
    decided: dict[ConfigResource, KafkaError] = {}
    accepted: list[R] = []
    for number, resource in enumerate(resources):
        await breather.pause_if_due()
        if number not in refused:
            try:
                refuse(environment, resource)
            except KafkaError as error:
                refused[number] = error
                continue
            accepted.append(resource)
    to_forward: list[R] = []
    for resource in accepted:
        await breather.pause_if_due()
        if settled_here(resource):
            decided[key_of(resource)] = KafkaError(Error.NONE)
        else:
            to_forward.append(resource)
    if to_forward:
        response = await forward(environment, forwarded(to_forward), caller)
        for result in response.responses:
            await breather.pause_if_due()
            decided[key_of(result)] = KafkaError(Error(result.error_code), result.error_message or "")
    responses: list[T] = []
    for number, resource in enumerate(resources):
        await breather.pause_if_due()
        outcome = refused.get(number) or decided.get(key_of(resource)) or KafkaError(Error.UNKNOWN_SERVER_ERROR)
        responses.append(
            kind(
                error_code=outcome.error,
                error_message=outcome.message or None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return responses


def key_of(resource: HasResource) -> ConfigResource:
    return ConfigResource(resource.resource_type, resource.resource_name)


async def refuse_duplicates(resources: Sequence[HasResource], breather: Breather) -> dict[int, KafkaError]:
    """The resources that occur more than once, by their position in the request."""
    times: Counter[ConfigResource] = Counter()
    for resource in resources:
        await breather.pause_if_due()
        times[key_of(resource)] += 1
    if len(times) == len(resources):
        return {}
    refused: dict[int, KafkaError] = {}
    for number, resource in enumerate(resources):
        await breather.pause_if_due()
        if times[key_of(resource)] > 1:
            refused[number] = KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
    return refused


def refuse_replacing(environment: AdminEnvironment, resource: Replacement) -> None:
    """Raises KafkaError if this broker cannot accept these as the new settings of a resource."""
    require_single_keys(entry.name for entry in resource.configs)
    require_values(entry.name for entry in resource.configs if entry.value is None)
    require_known_type(resource.resource_type)
    if resource.resource_type == ResourceType.BROKER:
        settings = {entry.name: entry.value for entry in resource.configs if entry.value is not None}
        check_broker_settings(environment, resource.resource_name, settings)


def refuse_changing(environment: AdminEnvironment, resource: Changes) -> None:
    """Raises KafkaError if this broker cannot accept these changes to a resource's settings."""
    require_single_keys(entry.name for entry in resource.configs)
    require_values(
        entry.name
        for entry in resource.configs
        if entry.value is None and entry.config_operation != ConfigOperation.DELETE
    )
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        check_loggers(environment, resource)
        return
    require_known_type(resource.resource_type)
    if resource.resource_type == ResourceType.BROKER:
        require_this_broker(environment, resource.resource_name)
        settings = dict(environment.metadata.image.configs.of_broker(resource.resource_name))
        for entry in resource.configs:
            apply_operation(settings, entry)
        check_broker_settings(environment, resource.resource_name, settings)


def check_loggers(environment: AdminEnvironment, resource: Changes) -> None:
    """Raises KafkaError if these are no levels of this node's loggers. Nothing is set if one is bad."""
    if node_id_of("Node", resource.resource_name) != environment.node_id:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"Unexpected node id. Expected {environment.node_id}, but received {resource.resource_name}",
        )
    for entry in resource.configs:
        match entry.config_operation:
            case ConfigOperation.SET:
                check_level(entry.name, entry.value or "")
            case ConfigOperation.DELETE:
                check_removal(entry.name)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT as number:
                raise KafkaError(
                    Error.INVALID_REQUEST,
                    f"{ConfigOperation(number).name} operation is not allowed for the BROKER_LOGGER resource",
                )
            case unknown:
                raise KafkaError(Error.INVALID_REQUEST, f"Unknown operations type {unknown}")


def level_of(entry: m.IncrementalAlterConfigsRequest.AlterableConfig) -> str | None:
    return entry.value if entry.config_operation == ConfigOperation.SET else None


def require_single_keys(names: Iterable[str]) -> None:
    if any(times > 1 for times in Counter(names).values()):
        raise KafkaError(Error.INVALID_REQUEST, "Error due to duplicate config keys")


def require_values(names_without: Iterable[str]) -> None:
    if names := [*names_without]:
        raise KafkaError(Error.INVALID_REQUEST, f"Null value not supported for : {', '.join(names)}")


def require_known_type(resource_type: int) -> None:
    known = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP)
    if resource_type not in known:
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def apply_operation(settings: dict[str, str], entry: m.IncrementalAlterConfigsRequest.AlterableConfig) -> None:
    """Makes one change to broker settings as the controller will, so that the result can be checked."""
    name, value = entry.name, entry.value or ""
    match entry.config_operation:
        case ConfigOperation.SET:
            settings[name] = value
        case ConfigOperation.DELETE:
            settings.pop(name, None)
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT as number:
            operation = ConfigOperation(number)
            settings[name] = edited_list(current_list(settings, name, operation), operation, value)
        case unknown:
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown operations type {unknown}")


def current_list(settings: dict[str, str], name: str, operation: ConfigOperation) -> str:
    setting = BROKER.get(name)
    if setting is None:
        raise KafkaError(Error.INVALID_CONFIG, f"Unknown config name: {name}")
    if setting.type is not ConfigType.LIST:
        verb = operation.name.lower()
        raise KafkaError(Error.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {name}")
    return settings.get(name, format_value(setting.default)) or ""


def require_this_broker(environment: AdminEnvironment, name: str) -> None:
    if name != CLUSTER_DEFAULT and node_id_of("Node", name) != environment.node_id:
        raise KafkaError(
            Error.INVALID_REQUEST, f"Unexpected broker id, expected {environment.node_id}, but received {name}"
        )


def check_broker_settings(environment: AdminEnvironment, name: str, settings: dict[str, str]) -> None:
    """Refuses settings that are meant for another broker, or that this one could not apply."""
    scope = ConfigSource.DYNAMIC_DEFAULT_BROKER
    require_this_broker(environment, name)
    if name != CLUSTER_DEFAULT:
        scope = ConfigSource.DYNAMIC_BROKER
    try:
        validate_broker_overrides(settings, scope, environment.settings.config)
    except ConfigError as error:
        raise KafkaError(Error.INVALID_REQUEST, error.message) from error
