"""From a request to a decision, whatever the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.metadata.controller import brokers, configs, producer_ids, replicas, topics
from barnabas.metadata.controller.context import Context, Decision
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.controller.state import ControllerState
    from barnabas.protocol.structs import Message

_DECISIONS: dict[str, Callable[[ControllerState, Any, Context], Decision]] = {
    "BrokerRegistrationRequest": brokers.register_broker,
    "BrokerHeartbeatRequest": brokers.heartbeat,
    "UnregisterBrokerRequest": brokers.unregister_broker,
    "ControllerRegistrationRequest": brokers.register_controller,
    "CreateTopicsRequest": topics.create_topics,
    "DeleteTopicsRequest": topics.delete_topics,
    "CreatePartitionsRequest": topics.create_partitions,
    "AlterConfigsRequest": configs.alter_configs,
    "IncrementalAlterConfigsRequest": configs.incremental_alter_configs,
    "AllocateProducerIdsRequest": producer_ids.allocate_producer_ids,
    "AlterPartitionRequest": replicas.alter_partition,
    "AssignReplicasToDirsRequest": replicas.assign_replicas_to_dirs,
    "ElectLeadersRequest": replicas.elect_leaders,
}

DECIDABLE = frozenset(_DECISIONS)
"""The names of the requests that the controller answers."""


def decide(state: ControllerState, request: Message, context: Context) -> Decision:
    """The decision on one request. The state stays as it is; an error is a decision without records."""
    decision = _DECISIONS.get(type(request).__name__)
    if decision is None:
        raise TypeError(f"the controller does not answer a {type(request).__name__}")
    try:
        return decision(state, request, context)
    except KafkaError as error:
        return Decision(refusal(request, error))


def refusal(request: Message, error: KafkaError) -> Message:
    """The response that gives the same error for everything that the request asks for."""
    code, message = error.error, error.message or None
    match request:
        case m.CreateTopicsRequest():
            topic = m.CreateTopicsResponse.CreatableTopicResult
            return m.CreateTopicsResponse(
                topics=[topic(name=t.name, error_code=code, error_message=message) for t in request.topics]
            )
        case m.DeleteTopicsRequest():
            deleted = m.DeleteTopicsResponse.DeletableTopicResult
            by_name = [deleted(name=name, error_code=code, error_message=message) for name in request.topic_names]
            by_state = [
                deleted(name=t.name, topic_id=t.topic_id, error_code=code, error_message=message)
                for t in request.topics
            ]
            return m.DeleteTopicsResponse(responses=by_name + by_state)
        case m.CreatePartitionsRequest():
            grown = m.CreatePartitionsResponse.CreatePartitionsTopicResult
            return m.CreatePartitionsResponse(
                results=[grown(name=t.name, error_code=code, error_message=message) for t in request.topics]
            )
        case m.AlterConfigsRequest():
            altered = m.AlterConfigsResponse.AlterConfigsResourceResponse
            return m.AlterConfigsResponse(
                responses=[
                    altered(
                        error_code=code,
                        error_message=message,
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                    for resource in request.resources
                ]
            )
        case m.IncrementalAlterConfigsRequest():
            incremental = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
            return m.IncrementalAlterConfigsResponse(
                responses=[
                    incremental(
                        error_code=code,
                        error_message=message,
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                    for resource in request.resources
                ]
            )
        case m.UnregisterBrokerRequest():
            return m.UnregisterBrokerResponse(error_code=code, error_message=message)
        case m.ControllerRegistrationRequest():
            return m.ControllerRegistrationResponse(error_code=code, error_message=message)
        case _:
            return _plain_refusal(request, code)


def _plain_refusal(request: Message, code: Error) -> Message:
    """Of requests whose responses have one error code and no message."""
    responses: dict[str, type[Any]] = {
        "BrokerRegistrationRequest": m.BrokerRegistrationResponse,
        "BrokerHeartbeatRequest": m.BrokerHeartbeatResponse,
        "AllocateProducerIdsRequest": m.AllocateProducerIdsResponse,
        "AlterPartitionRequest": m.AlterPartitionResponse,
        "AssignReplicasToDirsRequest": m.AssignReplicasToDirsResponse,
        "ElectLeadersRequest": m.ElectLeadersResponse,
    }
    response: Message = responses[type(request).__name__](error_code=code)
    return response
