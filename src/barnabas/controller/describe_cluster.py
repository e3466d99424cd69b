"""DescribeCluster on the CONTROLLER listener (KIP-919): the controllers, for tools that connect to them directly.

v1 says which endpoints are meant · v2 lists fenced brokers too, of which there are none here
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.net.dispatch import Caller

BROKERS = 1
CONTROLLERS = 2
"""The type of the endpoints that are served here."""


def describe_cluster(
    controller: QuorumController, request: m.DescribeClusterRequest, caller: Caller
) -> m.DescribeClusterResponse:
    response = m.DescribeClusterResponse
    image = controller.committed
    if request.endpoint_type == BROKERS:
        return response(
            # A client of v0 does not know the other error, which came with the field.
            error_code=Error.INVALID_REQUEST if caller.api_version < 1 else Error.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type CONTROLLER, but asks for brokers.",
        )
    if request.endpoint_type != CONTROLLERS:
        return response(
            error_code=Error.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    controllers = [
        response.DescribeClusterBroker(broker_id=controller_id, host=endpoint.host, port=endpoint.port)
        for controller_id, registered in sorted(image.controllers.items())
        for endpoint in registered.end_points
        if endpoint.name == caller.listener.name
    ]
    asks_for_operations = request.include_cluster_authorized_operations
    return response(
        endpoint_type=CONTROLLERS,
        cluster_id=image.cluster_id,
        controller_id=controller.quorum_client.leader.id,
        brokers=controllers,
        cluster_authorized_operations=CLUSTER_OPERATIONS if asks_for_operations else OPERATIONS_NOT_ASKED_FOR,
    )
