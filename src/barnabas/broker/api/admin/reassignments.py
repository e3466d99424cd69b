"""AlterPartitionReassignments, ListPartitionReassignments: replicas on other brokers. The controller decides.

AlterPartitionReassignments: v1 can forbid a change of the replication factor
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.admin.forwarding import DECIDED_AS_A_WHOLE, forward, forward_within
from barnabas.broker.api.environments import AdminEnvironment
from barnabas.broker.api.registry import handles
from barnabas.net.large_requests import Cut
from barnabas.protocol.api import ApiKey

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller
    from barnabas.protocol import messages as m


@handles(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    AdminEnvironment,
    versions=(0, 1),
    cuts=[Cut(("topics", "partitions"), ("responses", "partitions"))],
    large_handler=DECIDED_AS_A_WHOLE,
)
async def alter_partition_reassignments(
    environment: AdminEnvironment, request: m.AlterPartitionReassignmentsRequest, caller: Caller
) -> m.AlterPartitionReassignmentsResponse:
    response: m.AlterPartitionReassignmentsResponse = await forward_within(
        environment, request, caller, request.timeout_ms
    )
    return response


@handles(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    AdminEnvironment,
    versions=(0, 0),
    cuts=[Cut(("topics",), ("topics",))],
    large_handler=DECIDED_AS_A_WHOLE,
    long_answer="topics",
)
async def list_partition_reassignments(
    environment: AdminEnvironment, request: m.ListPartitionReassignmentsRequest, caller: Caller
) -> m.ListPartitionReassignmentsResponse:
    response: m.ListPartitionReassignmentsResponse = await forward(environment, request, caller)
    return response
