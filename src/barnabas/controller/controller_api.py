"""What the CONTROLLER listener serves: every request that the controller decides, those of the metadata quorum
(`raft/wire/quorum_api`), what brokers hand on for clients (Envelope), and what tools ask of controllers: ApiVersions,
DescribeCluster, DescribeConfigs.

Requests come from other nodes and from tools that connect to controllers directly. The local broker bypasses the
listener: its channel submits the same messages to the controller's loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.config.describe_configs import REQUEST_BYTES_MAX
from barnabas.controller.decisions.decide import DECIDABLE
from barnabas.controller.describe_cluster import describe_cluster
from barnabas.controller.envelope import answer_envelope, answer_large_envelope
from barnabas.metadata.versions import SUPPORTED_FEATURES
from barnabas.net import api_versions
from barnabas.net.dispatch import Route
from barnabas.net.large_requests import ENCLOSING, Cut, as_a_whole
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from barnabas.protocol.refusals import CHANGES_MAX, elections_as, feature_updates_as, refuse_too_many
from barnabas.raft.wire.quorum_api import QUORUM_ROUTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.net.dispatch import Caller, Handler
    from barnabas.net.large_requests import LargeRequest
    from barnabas.net.parts import Part


async def decide(controller: QuorumController, request: Any, caller: Caller) -> Any:  # noqa: ARG001
    return (await controller.handle(request)).response


async def heartbeat(controller: QuorumController, request: m.BrokerHeartbeatRequest, caller: Caller) -> Any:
    if caller.connection is not None:
        controller.heard_over(request, caller.connection)
    return (await controller.handle(request)).response


async def elect_leaders(
    controller: QuorumController, request: m.ElectLeadersRequest, caller: Caller
) -> m.ElectLeadersResponse:
    return elections_as(await decide(controller, request, caller), caller.api_version)


async def update_features(
    controller: QuorumController, request: m.UpdateFeaturesRequest, caller: Caller
) -> m.UpdateFeaturesResponse:
    return feature_updates_as(await decide(controller, request, caller), caller.api_version)


def describe_versions(
    controller: QuorumController, request: m.ApiVersionsRequest, caller: Caller
) -> m.ApiVersionsResponse:
    if not api_versions.is_well_formed(request, caller.api_version):
        return m.ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
    image = controller.committed
    return api_versions.answer(
        CONTROLLER_ROUTES,
        caller.api_version,
        supported=SUPPORTED_FEATURES,
        finalized=image.features.levels(controller.kraft_version),
        finalized_epoch=image.offset,
    )


def describe_configs(
    controller: QuorumController,
    request: m.DescribeConfigsRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.DescribeConfigsResponse:
    return controller.describe_configs(request)


async def envelope(controller: QuorumController, request: m.EnvelopeRequest, caller: Caller) -> m.EnvelopeResponse:
    return await answer_envelope(controller, request, caller, CONTROLLER_ROUTES)


async def large_envelope(
    handler: Handler,  # noqa: ARG001 (every large handler takes the ordinary one)
    controller: QuorumController,
    request: LargeRequest,
    caller: Caller,
) -> list[Part]:
    return await answer_large_envelope(controller, request, caller, CONTROLLER_ROUTES)


CUTS: Mapping[int, Sequence[Cut]] = {
    ApiKey.CREATE_TOPICS: [Cut(("topics",), ("topics",))],
    ApiKey.DELETE_TOPICS: [
        Cut(("topic_names",), ("responses",), last_version=5),
        Cut(("topics",), ("responses",), first_version=6),
    ],
    ApiKey.CREATE_PARTITIONS: [Cut(("topics",), ("results",))],
    ApiKey.ALTER_CONFIGS: [Cut(("resources",), ("responses",))],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [Cut(("resources",), ("responses",))],
    ApiKey.ALTER_CLIENT_QUOTAS: [Cut(("entries",), ("entries",))],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [Cut(("topics", "partitions"), ("responses", "partitions"))],
    ApiKey.ELECT_LEADERS: [
        Cut(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),
    ],
}
"""Where users' requests are cut if they ask for too much. What brokers send is refused where it has too many elements
to be read in one go."""

HANDLERS = {ApiKey.ELECT_LEADERS: elect_leaders, ApiKey.UPDATE_FEATURES: update_features}
"""Those of requests whose response depends on its version."""

CONTROLLER_ROUTES: dict[int, Route] = {
    api.key: Route(
        api.key,
        (api.min_version, api.max_version),
        HANDLERS.get(api.key, decide),
        cuts=CUTS.get(api.key, ()),
        large_handler=as_a_whole(CHANGES_MAX, refuse_too_many),
    )
    for api in APIS.values()
    if api.request in DECIDABLE and "controller" in api.listeners
}
CONTROLLER_ROUTES |= QUORUM_ROUTES
CONTROLLER_ROUTES[ApiKey.BROKER_HEARTBEAT] = Route(
    ApiKey.BROKER_HEARTBEAT,
    (APIS[ApiKey.BROKER_HEARTBEAT].min_version, APIS[ApiKey.BROKER_HEARTBEAT].max_version),
    heartbeat,
    large_handler=as_a_whole(CHANGES_MAX, refuse_too_many),
)
CONTROLLER_ROUTES[ApiKey.DESCRIBE_CLUSTER] = Route(
    ApiKey.DESCRIBE_CLUSTER, (0, APIS[ApiKey.DESCRIBE_CLUSTER].max_version), describe_cluster
)
CONTROLLER_ROUTES[ApiKey.DESCRIBE_CONFIGS] = Route(
    ApiKey.DESCRIBE_CONFIGS,
    (APIS[ApiKey.DESCRIBE_CONFIGS].min_version, APIS[ApiKey.DESCRIBE_CONFIGS].max_version),
    describe_configs,
    cuts=[Cut(("resources",), ("results",))],
    whole_bytes_max=REQUEST_BYTES_MAX,
)
CONTROLLER_ROUTES[ApiKey.LIST_PARTITION_REASSIGNMENTS] = Route(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    (0, APIS[ApiKey.LIST_PARTITION_REASSIGNMENTS].max_version),
    decide,
    cuts=[Cut(("topics",), ("topics",))],
    large_handler=as_a_whole(CHANGES_MAX, refuse_too_many),
    long_answer="topics",
)
CONTROLLER_ROUTES[ApiKey.ENVELOPE] = Route(
    ApiKey.ENVELOPE, (0, APIS[ApiKey.ENVELOPE].max_version), envelope, cuts=[ENCLOSING], large_handler=large_envelope
)
CONTROLLER_ROUTES[ApiKey.API_VERSIONS] = Route(ApiKey.API_VERSIONS, api_versions.VERSIONS, describe_versions)


def routes_for(controller: QuorumController) -> dict[int, Route]:
    """The routes of a listener of this controller."""
    return {api_key: route.served_by(controller) for api_key, route in CONTROLLER_ROUTES.items()}
