"""Responses that reject everything their request asks for: the controller cannot be reached, or is asked for too much
at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message

CHANGES_MAX = 10_000
"""Records that a user's request may have the controller write, and so the topics or resources that it may name."""
ELECTIONS_WITH_ONE_ERROR = 1
"""The version of ElectLeaders from which on a response has an error besides those of partitions."""
QUORUM_WITH_NODES = 2
"""The version of DescribeQuorum from which on a response has the endpoints of voters, and directories."""
UPDATES_WITHOUT_RESULTS = 2
"""The version of UpdateFeatures from which on a response does not list what succeeded."""
TOO_MANY_CHANGES = "Unable to perform excessively large batch operation."


_RESULTS = ("topics", "responses", "results", "entries")
"""What responses call the results of the single things that were asked for."""


def says(response: Any, error: Error) -> bool:
    """Whether a response has this error, for the whole request or for anything in it."""
    if getattr(response, "error_code", Error.NONE) == error:
        return True
    results = (result for name in _RESULTS for result in getattr(response, name, None) or ())
    return any(getattr(result, "error_code", Error.NONE) == error for result in results)


def refuse_too_many(request: Message) -> Message:
    return refusal(request, KafkaError(Error.POLICY_VIOLATION, TOO_MANY_CHANGES))


def refusal(request: Message, error: KafkaError) -> Message:
    """The response that carries the same error for everything that the request asks for."""
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
        case m.ElectLeadersRequest():
            return _refused_elections(request, code, message)
        case m.UnregisterBrokerRequest():
            return m.UnregisterBrokerResponse(error_code=code, error_message=message)
        case m.AlterClientQuotasRequest():
            limited = m.AlterClientQuotasResponse
            return limited(
                entries=[
                    limited.EntryData(
                        error_code=code,
                        error_message=message,
                        entity=[
                            limited.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                            for each in entry.entity
                        ],
                    )
                    for entry in request.entries
                ]
            )
        case m.AlterPartitionReassignmentsRequest():
            moved = m.AlterPartitionReassignmentsResponse
            return moved(
                error_code=code,
                error_message=message,
                allow_replication_factor_change=request.allow_replication_factor_change,
                responses=[
                    moved.ReassignableTopicResponse(
                        name=topic.name,
                        partitions=[
                            moved.ReassignablePartitionResponse(
                                partition_index=each.partition_index, error_code=code, error_message=message
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ],
            )
        case m.ListPartitionReassignmentsRequest():
            return m.ListPartitionReassignmentsResponse(error_code=code, error_message=message)
        case m.UpdateFeaturesRequest():
            return m.UpdateFeaturesResponse(error_code=code, error_message=message)
        case m.ControllerRegistrationRequest():
            return m.ControllerRegistrationResponse(error_code=code, error_message=message)
        case _:
            return _plain_refusal(request, code)


def _refused_elections(request: m.ElectLeadersRequest, code: Error, message: str | None) -> m.ElectLeadersResponse:
    """Both the request and each partition have the error: version 0 tells only those of partitions."""
    result, of_topic = m.ElectLeadersResponse.PartitionResult, m.ElectLeadersResponse.ReplicaElectionResult
    return m.ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            of_topic(
                topic=topic.topic,
                partition_result=[
                    result(partition_id=partition, error_code=code, error_message=message)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def elections_as(response: m.ElectLeadersResponse, version: int) -> m.ElectLeadersResponse:
    """The response in a version of the API, of which the first has no error for the whole request."""
    if version < ELECTIONS_WITH_ONE_ERROR:
        response.error_code = Error.NONE
    return response


def quorum_as(response: m.DescribeQuorumResponse, version: int) -> m.DescribeQuorumResponse:
    """The response in a version of the API, of which the first ones know neither endpoints nor directories."""
    if version < QUORUM_WITH_NODES:
        response.nodes = []
        for partition in (each for topic in response.topics for each in topic.partitions):
            for replica in (*partition.current_voters, *partition.observers):
                replica.replica_directory_id = ZERO_UUID
    return response


def feature_updates_as(response: m.UpdateFeaturesResponse, version: int) -> m.UpdateFeaturesResponse:
    """The response in a version of the API, of which the first ones name each feature again."""
    if version >= UPDATES_WITHOUT_RESULTS:
        response.results = []
    return response


def _plain_refusal(request: Message, code: Error) -> Message:
    """For requests whose responses have a single error code and no message."""
    responses: dict[str, type[Any]] = {
        "BrokerRegistrationRequest": m.BrokerRegistrationResponse,
        "BrokerHeartbeatRequest": m.BrokerHeartbeatResponse,
        "AllocateProducerIdsRequest": m.AllocateProducerIdsResponse,
        "AlterPartitionRequest": m.AlterPartitionResponse,
        "AssignReplicasToDirsRequest": m.AssignReplicasToDirsResponse,
        "DescribeQuorumRequest": m.DescribeQuorumResponse,
    }
    response: Message = responses[type(request).__name__](error_code=code)
    return response
