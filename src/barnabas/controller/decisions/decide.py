"""Dispatches each kind of request to the function that decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.controller.decisions import (
    broker_registrations,
    config_changes,
    feature_changes,
    quota_changes,
    reassignments,
    replica_changes,
    topic_changes,
)
from barnabas.controller.decisions.context import Context, Decision
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.controller.decisions.controller_state import ControllerState
    from barnabas.protocol.compiler.structs import Message

_DECISIONS: dict[str, Callable[[ControllerState, Any, Context], Decision]] = {
    "BrokerRegistrationRequest": broker_registrations.register_broker,
    "BrokerHeartbeatRequest": broker_registrations.heartbeat,
    "UnregisterBrokerRequest": broker_registrations.unregister_broker,
    "ControllerRegistrationRequest": broker_registrations.register_controller,
    "CreateTopicsRequest": topic_changes.create_topics,
    "DeleteTopicsRequest": topic_changes.delete_topics,
    "CreatePartitionsRequest": topic_changes.create_partitions,
    "AlterConfigsRequest": config_changes.alter_configs,
    "IncrementalAlterConfigsRequest": config_changes.incremental_alter_configs,
    "AllocateProducerIdsRequest": broker_registrations.allocate_producer_ids,
    "AlterPartitionRequest": replica_changes.alter_partition,
    "AssignReplicasToDirsRequest": replica_changes.assign_replicas_to_dirs,
    "ElectLeadersRequest": replica_changes.elect_leaders,
    "AlterPartitionReassignmentsRequest": reassignments.alter_partition_reassignments,
    "AlterClientQuotasRequest": quota_changes.alter_client_quotas,
    "UpdateFeaturesRequest": feature_changes.update_features,
}

DECIDABLE = frozenset(_DECISIONS)
"""The names of the requests that the controller handles."""


def decide(state: ControllerState, request: Message, context: Context) -> Decision:
    """The decision on one request. The state is not changed; an error is a decision without records."""
    decision = _DECISIONS.get(type(request).__name__)
    if decision is None:
        raise TypeError(f"the controller does not handle {type(request).__name__}")
    try:
        return decision(state, request, context)
    except KafkaError as error:
        return Decision(refusal(request, error))
