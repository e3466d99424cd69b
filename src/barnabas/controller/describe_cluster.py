"""DescribeCluster on the CONTROLLER listener (KIP-919): the controllers, for tools that connect to them directly.

v1 says which endpoints are meant · v2 lists fenced brokers too, of which there are none here
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.net.dispatch import Caller

CONTROLLERS = 2
"""The type of the endpoints that are served here."""


def describe_cluster(
    controller: QuorumController, request: m.DescribeClusterRequest, caller: Caller
) -> m.DescribeClusterResponse:
    response = m.DescribeClusterResponse
    image = controller.committed
    if caller.api_version < 1 or request.endpoint_type != CONTROLLERS:
        return response(
            error_code=Error.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type CONTROLLER, but asks for brokers.",
            endpoint_type=CONTROLLERS,
        )
    controllers = [
        response.DescribeClusterBroker(broker_id=controller_id, host=endpoint.host, port=endpoint.port)
        for controller_id, registered in sorted(image.controllers.items())
        for endpoint in registered.end_points
        if endpoint.name == caller.listener.name
    ]
    return response(
        endpoint_type=CONTROLLERS,
        cluster_id=image.cluster_id,
        controller_id=controller.quorum_client.leader.id,
        brokers=controllers,
    )
