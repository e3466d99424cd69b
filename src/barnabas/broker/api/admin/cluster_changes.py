"""DescribeQuorum, ElectLeaders, UnregisterBroker, UpdateFeatures: about the cluster as a whole, and so answered by the
controller.

DescribeQuorum: v1 says when replicas last fetched · v2 has directory ids and the voters' endpoints
ElectLeaders: v1 has unclean elections · v2 is flexible
UpdateFeatures: v1 says how a level may be lowered, and can only validate · v2 does not name what succeeded
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.admin.forwarding import DECIDED_AS_A_WHOLE, forward, forward_within
from barnabas.broker.api.environments import AdminEnvironment
from barnabas.broker.api.registry import handles
from barnabas.net.large_requests import Cut
from barnabas.protocol.api import ApiKey
from barnabas.protocol.refusals import elections_as, feature_updates_as, quorum_as

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller
    from barnabas.protocol import messages as m


@handles(ApiKey.DESCRIBE_QUORUM, AdminEnvironment, versions=(0, 2))
async def describe_quorum(
    environment: AdminEnvironment, request: m.DescribeQuorumRequest, caller: Caller
) -> m.DescribeQuorumResponse:
    response: m.DescribeQuorumResponse = await forward(environment, request, caller)
    return quorum_as(response, caller.api_version)


@handles(
    ApiKey.ELECT_LEADERS,
    AdminEnvironment,
    versions=(0, 2),
    cuts=[Cut(("topic_partitions", "partitions"), ("replica_election_results", "partition_result"))],
    large_handler=DECIDED_AS_A_WHOLE,
)
async def elect_leaders(
    environment: AdminEnvironment, request: m.ElectLeadersRequest, caller: Caller
) -> m.ElectLeadersResponse:
    response: m.ElectLeadersResponse = await forward_within(environment, request, caller, request.timeout_ms)
    return elections_as(response, caller.api_version)


@handles(ApiKey.UNREGISTER_BROKER, AdminEnvironment, versions=(0, 0))
async def unregister_broker(
    environment: AdminEnvironment, request: m.UnregisterBrokerRequest, caller: Caller
) -> m.UnregisterBrokerResponse:
    response: m.UnregisterBrokerResponse = await forward(environment, request, caller)
    return response


@handles(ApiKey.UPDATE_FEATURES, AdminEnvironment, versions=(0, 2))
async def update_features(
    environment: AdminEnvironment, request: m.UpdateFeaturesRequest, caller: Caller
) -> m.UpdateFeaturesResponse:
    response: m.UpdateFeaturesResponse = await forward(environment, request, caller)
    return feature_updates_as(response, caller.api_version)
