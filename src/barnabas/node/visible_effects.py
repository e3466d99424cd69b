"""Whether an image already shows what a controller in another process has decided.

A client that has created a topic through a broker asks the same broker for it on the next line. The answer of a remote
controller does not say at which offset its records are, so the broker looks for the effect itself, where that is cheap;
for anything else it does not wait, as Kafka's brokers never do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.metadata.image import ConfigOperation, ConfigResource
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metadata.image import MetadataImage, QuotaEntity
    from barnabas.protocol.compiler.structs import Message


def is_visible(request: Message, response: Any, image: MetadataImage) -> bool:
    """Whether everything in the response that succeeded is in the image. True for what is not looked for."""
    match request:
        case m.BrokerRegistrationRequest() if response.error_code == Error.NONE:
            broker = image.brokers.get(request.broker_id)
            return broker is not None and broker.epoch >= response.broker_epoch
        case m.BrokerHeartbeatRequest() if response.error_code == Error.NONE:
            broker = image.brokers.get(request.broker_id)
            return broker is not None and (response.is_fenced or not broker.fenced)
        case m.CreateTopicsRequest(validate_only=False):
            return all(topic.name in image.topics for topic in _succeeded(response.topics))
        case m.DeleteTopicsRequest():
            return all(_is_gone(topic, image) for topic in _succeeded(response.responses))
        case m.CreatePartitionsRequest(validate_only=False):
            counts = {topic.name: topic.count for topic in request.topics}
            return all(_has_grown(grown.name, counts[grown.name], image) for grown in _succeeded(response.results))
        case m.AlterConfigsRequest(validate_only=False) | m.IncrementalAlterConfigsRequest(validate_only=False):
            wanted = {ConfigResource(each.resource_type, each.resource_name): each for each in request.resources}
            altered = (
                ConfigResource(each.resource_type, each.resource_name) for each in _succeeded(response.responses)
            )
            return all(_is_configured(resource, wanted[resource], image) for resource in altered if resource in wanted)
        case m.AlterClientQuotasRequest(validate_only=False):
            limited = {_entity(entry) for entry in _succeeded(response.entries)}
            return all(_is_limited(entry, image) for entry in request.entries if _entity(entry) in limited)
    return True


def _entity(entry: Any) -> QuotaEntity:
    return tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))


def _is_limited(entry: m.AlterClientQuotasRequest.EntryData, image: MetadataImage) -> bool:
    quotas = image.client_quotas.get(_entity(entry), {})
    return all((each.key not in quotas) if each.remove else quotas.get(each.key) == each.value for each in entry.ops)


def _succeeded(results: Sequence[Any]) -> list[Any]:
    return [result for result in results if result.error_code == Error.NONE]


def _is_gone(deleted: Any, image: MetadataImage) -> bool:
    topic = image.topics.get(deleted.name) if deleted.name is not None else None
    # A topic of the same name may have been created since.
    return topic is None or (bool(any(deleted.topic_id)) and topic.topic_id != deleted.topic_id)


def _has_grown(name: str, count: int, image: MetadataImage) -> bool:
    topic = image.topics.get(name)
    return topic is None or len(topic.partitions) >= count


def _is_configured(resource: ConfigResource, wanted: Any, image: MetadataImage) -> bool:
    configs = image.configs.of(resource)
    if isinstance(wanted, m.AlterConfigsRequest.AlterConfigsResource):
        return {each.name: each.value for each in wanted.configs if each.value is not None} == dict(configs)
    for change in wanted.configs:
        if change.config_operation == ConfigOperation.SET and configs.get(change.name) != change.value:
            return False
        if change.config_operation == ConfigOperation.DELETE and change.name in configs:
            return False
    return True
