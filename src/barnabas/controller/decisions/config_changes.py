"""AlterConfigs and IncrementalAlterConfigs: dynamic settings of topics, brokers, the cluster and groups.

The resources of a request are independent of each other; for one resource, either all changes are made or none. The
older AlterConfigs replaces all settings of a resource, so those it does not name are deleted; the incremental one sets,
deletes, appends to or subtracts from individual settings. As with Kafka, a controller that is asked directly deletes
what is set to nothing, and does the last thing to a setting that is named twice; brokers let neither pass.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.controller.decisions.context import Decision
from barnabas.controller.decisions.elections import MIN_ISR
from barnabas.controller.decisions.topic_changes import check_record_count
from barnabas.metadata.image import ConfigOperation, ConfigResource, ResourceType, edited_list
from barnabas.metadata.topic_names import check_topic_name
from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from barnabas.controller.decisions.context import Context
    from barnabas.controller.decisions.controller_state import ControllerState

    Replacement: TypeAlias = m.AlterConfigsRequest.AlterConfigsResource
    Changes: TypeAlias = m.IncrementalAlterConfigsRequest.AlterConfigsResource
    Setting: TypeAlias = m.AlterConfigsRequest.AlterableConfig
    SettingChange: TypeAlias = m.IncrementalAlterConfigsRequest.AlterableConfig

R = TypeVar("R", "Replacement", "Changes")
C = TypeVar("C", "Setting", "SettingChange")
T = TypeVar("T")

VALUE_BYTES_MAX = 32_767
CHANGEABLE = {ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLIENT_METRICS, ResourceType.BROKER}


class Change(NamedTuple):
    """One setting of a resource. A value of None deletes it."""

    name: str
    value: str | None


def incremental_alter_configs(
    state: ControllerState, request: m.IncrementalAlterConfigsRequest, context: Context
) -> Decision:
    def change(resource: ConfigResource, given: Changes) -> list[VersionedRecord]:
        changes = [_changed(state, resource, config, context) for config in _last_of_each_name(given.configs)]
        return _altered(state, resource, changes, [], context)

    result = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    results, records = _alter_each(request.resources, change, result)
    response = m.IncrementalAlterConfigsResponse(responses=results)
    return Decision(response, [] if request.validate_only else _with_cleared_elrs(state, records))


def alter_configs(state: ControllerState, request: m.AlterConfigsRequest, context: Context) -> Decision:
    def replace(resource: ConfigResource, given: Replacement) -> list[VersionedRecord]:
        changes = [Change(config.name, config.value) for config in _last_of_each_name(given.configs)]
        kept = {change.name for change in changes}
        dropped = [Change(name, None) for name in state.metadata.configs.of(resource) if name not in kept]
        return _altered(state, resource, changes, dropped, context)

    results, records = _alter_each(request.resources, replace, m.AlterConfigsResponse.AlterConfigsResourceResponse)
    response = m.AlterConfigsResponse(responses=results)
    return Decision(response, [] if request.validate_only else _with_cleared_elrs(state, records))


def _alter_each(
    resources: Sequence[R], alter: Callable[[ConfigResource, R], list[VersionedRecord]], result: Callable[..., T]
) -> tuple[list[T], list[VersionedRecord]]:
    """The result for each resource, in the order of the request, and the records for those that succeeded."""
    repeated = _repeated((given.resource_type, given.resource_name) for given in resources)
    results: list[T] = []
    records: list[VersionedRecord] = []
    for given in resources:
        resource = ConfigResource(given.resource_type, given.resource_name)
        outcome = KafkaError(Error.NONE)
        try:
            _check_resource(resource, repeated)
            records += alter(resource, given)
        except KafkaError as error:
            outcome = error
        results.append(
            result(
                error_code=outcome.error,
                error_message=outcome.message or None,
                resource_type=resource.type,
                resource_name=resource.name,
            )
        )
    check_record_count(records)
    return results, records


def _last_of_each_name(configs: Iterable[C]) -> Iterable[C]:
    return {config.name: config for config in configs}.values()


def _repeated(resources: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    return {resource for resource, count in Counter(resources).items() if count > 1}


def _check_resource(resource: ConfigResource, repeated: set[tuple[int, str]]) -> None:
    if resource in repeated:
        raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
    if resource.type not in CHANGEABLE:
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {resource.type}")


def _check_name(resource: ConfigResource) -> None:
    """Kafka looks at operations before it looks at these names, and at values afterwards."""
    match resource.type:
        case ResourceType.TOPIC:
            if not resource.name:
                raise KafkaError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
            check_topic_name(resource.name)
        case ResourceType.GROUP:
            if not resource.name:
                raise KafkaError(Error.INVALID_REQUEST, "Default group resources are not allowed.")
        case ResourceType.CLIENT_METRICS:
            if not resource.name:
                raise KafkaError(Error.INVALID_REQUEST, "Subscription name can't be empty")
        case ResourceType.BROKER:
            if resource.name:
                _broker_id(resource.name)


def _broker_id(name: str) -> int:
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(Error.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if broker_id < 0:
        raise KafkaError(Error.INVALID_REQUEST, "Invalid negative broker ID.")
    return broker_id


def _changed(
    state: ControllerState,
    resource: ConfigResource,
    config: SettingChange,
    context: Context,
) -> Change:
    known = state.metadata.configs.of(resource).get(config.name)
    match config.config_operation:
        case ConfigOperation.SET:
            return Change(config.name, config.value)
        case ConfigOperation.DELETE:
            return Change(config.name, None)
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT as number:
            operation = ConfigOperation(number)
            if not context.rules.is_list(resource.type, config.name):
                raise KafkaError(
                    Error.INVALID_CONFIG,
                    f"Can't {operation.name} to key {config.name} because its type is not LIST.",
                )
            if config.value is None:
                raise KafkaError(Error.INVALID_REQUEST, f"Null value not supported for : {config.name}")
            text = context.rules.default_text(resource.type, config.name) if known is None else known
            return Change(config.name, edited_list(text or "", operation, config.value))
        case other:
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown operations type {other}")


def _altered(
    state: ControllerState,
    resource: ConfigResource,
    changes: Sequence[Change],
    dropped: Sequence[Change],
    context: Context,
) -> list[VersionedRecord]:
    known = state.metadata.configs.of(resource)
    altered = [
        change
        for change in changes
        # A broker reloads what its settings refer to, such as a key store, even if their values have not changed.
        if known.get(change.name) != change.value or resource.type == ResourceType.BROKER
    ]
    after = dict(known)
    for change in (*altered, *dropped):
        _check_min_isr(state, resource, change)
        if change.value is None:
            after.pop(change.name, None)
            continue
        if len(change.value.encode()) > VALUE_BYTES_MAX:
            raise KafkaError(
                Error.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{VALUE_BYTES_MAX} bytes.",
            )
        after[change.name] = change.value
    _check_name(resource)
    _check_settings(state, resource, after, context)
    _check_existence(state, resource)
    return [_record(resource, change) for change in (*altered, *dropped)]


def _check_settings(
    state: ControllerState, resource: ConfigResource, after: Mapping[str, str], context: Context
) -> None:
    layers = state.dynamic_layers(context.settings)
    match resource.type:
        case ResourceType.TOPIC:
            context.rules.check_topic(after, layers)
        case ResourceType.GROUP:
            context.rules.check_group(after, layers)
        case ResourceType.CLIENT_METRICS:
            context.rules.check_client_metrics(after)
        case ResourceType.BROKER if resource.name:
            context.rules.check_broker(after, layers)
        case _:
            context.rules.check_cluster(after, layers)


def _check_existence(state: ControllerState, resource: ConfigResource) -> None:
    if resource.type == ResourceType.TOPIC and state.topic(resource.name) is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    if resource.type == ResourceType.BROKER and resource.name:
        broker_id = int(resource.name)
        if broker_id not in state.brokers and broker_id not in state.metadata.controllers:
            raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, f"No node with id {broker_id} found.")


def _check_min_isr(state: ControllerState, resource: ConfigResource, change: Change) -> None:
    """ELR requires a single min.insync.replicas for the whole cluster."""
    if change.name != MIN_ISR or resource.type != ResourceType.BROKER or not state.features.is_elr_enabled:
        return
    if resource.name and change.value is not None:
        raise KafkaError(Error.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    if not resource.name and change.value is None:
        raise KafkaError(Error.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")


def _with_cleared_elrs(state: ControllerState, records: list[VersionedRecord]) -> list[VersionedRecord]:
    """Changing min.insync.replicas invalidates the eligible leader replicas."""
    if not state.features.is_elr_enabled:
        return records
    cleared = []
    for record in records:
        message = record.message
        if isinstance(message, m.ConfigRecord) and message.name == MIN_ISR:
            topic_name = message.resource_name if message.resource_type == ResourceType.TOPIC else ""
            cleared.append(VersionedRecord(m.ClearElrRecord(topic_name=topic_name), 0))
    return records + cleared


def _record(resource: ConfigResource, change: Change) -> VersionedRecord:
    record = m.ConfigRecord(
        resource_type=resource.type, resource_name=resource.name, name=change.name, value=change.value
    )
    return VersionedRecord(record, 0)
