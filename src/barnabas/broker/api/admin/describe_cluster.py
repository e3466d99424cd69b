"""DescribeCluster: the cluster's id, its brokers, and where to send requests for the controller.

v1 says whether brokers or controllers are meant · v2 lists fenced brokers too, when asked
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.admin.cluster_view import ClusterView, Node
from barnabas.broker.api.environments import AdminEnvironment
from barnabas.broker.api.registry import handles
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller

BROKERS = 1
CONTROLLERS = 2


@handles(ApiKey.DESCRIBE_CLUSTER, AdminEnvironment, versions=(0, 2))
def describe_cluster(
    environment: AdminEnvironment, request: m.DescribeClusterRequest, caller: Caller
) -> m.DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return m.DescribeClusterResponse(
            error_code=Error.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return m.DescribeClusterResponse(
            error_code=Error.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    view = ClusterView(environment.metadata.image.brokers, caller.listener.name)
    nodes = view.nodes if request.include_fenced_brokers else view.alive
    asks_for_operations = request.include_cluster_authorized_operations
    return m.DescribeClusterResponse(
        cluster_id=environment.cluster_id,
        controller_id=view.controller_id(environment.node_id),
        brokers=[describe_node(node) for node in nodes],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asks_for_operations else OPERATIONS_NOT_ASKED_FOR,
    )


def describe_node(node: Node) -> m.DescribeClusterResponse.DescribeClusterBroker:
    return m.DescribeClusterResponse.DescribeClusterBroker(
        broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.is_fenced
    )
