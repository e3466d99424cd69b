"""kafka-cluster: the id of a cluster, where its nodes listen, and how it forgets a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import AskError, admin_at, asking_by_name, properties_at
from barnabas.cli.kafka.java.java_order import in_hash_order, int_hash
from barnabas.cli.kafka.subcommands import ToolParser, java_int
from barnabas.cli.kafka.tool import EXIT_FAILED, ToolError
from barnabas.client.admin.cluster_state import describe_cluster, unregister_broker
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    import argparse

    from barnabas.client.admin.cluster_state import Endpoint
    from barnabas.client.cluster import Cluster

TOOL: Final = "kafka-cluster"
CONFIG_IS_OLD: Final = (
    "Option --config has been deprecated and will be removed in a future version. Use --command-config instead."
)
_HOST_WIDTH_IF_NONE: Final = 100
_RACK_WIDTH_IF_NONE: Final = 10


def run(words: list[str]) -> int:
    options = build_parser().parse(words)
    if options.config is not None:
        if options.command_config is not None:
            raise ToolError("--config and --command-config cannot be specified together.")
        print(CONFIG_IS_OLD, flush=True)
    properties = properties_at(options.config if options.command_config is None else options.command_config)
    at_controllers = options.bootstrap_controller is not None
    servers = options.bootstrap_controller if at_controllers else options.bootstrap_server
    with admin_at(servers, properties, at_controllers=at_controllers) as cluster:
        act(cluster, options)
    return EXIT_OK


def build_parser() -> ToolParser:
    parser = ToolParser(
        TOOL, description="The id of a cluster, and what is registered in it.", help_exit_code=EXIT_FAILED
    )
    actions = parser.add_actions()
    cluster_id = actions.add_parser("cluster-id", help="print the id of the cluster")
    unregister = actions.add_parser("unregister", help="let the cluster forget a broker")
    endpoints = actions.add_parser("list-endpoints", help="show where brokers or controllers listen")
    for each in (cluster_id, unregister, endpoints):
        each.add_servers(short=True)
        each.add_argument("--config", help="deprecated; the same as --command-config")
        each.add_argument("--command-config", "-c", help="a file with properties for the admin client")
    unregister.add_argument("--id", "-i", type=java_int, required=True, help="the number of the broker")
    endpoints.add_argument("--include-fenced-brokers", action="store_true", help="show brokers that are fenced too")
    return parser


def act(cluster: Cluster, options: argparse.Namespace) -> None:
    if options.command == "cluster-id":
        with asking_by_name("listNodes"):
            cluster.nodes()
            print(f"Cluster ID: {describe_cluster(cluster).cluster_id}")
    elif options.command == "unregister":
        unregister(cluster, options.id)
    else:
        list_endpoints(cluster, include_fenced=options.include_fenced_brokers)


def unregister(cluster: Cluster, broker_id: int) -> None:
    try:
        with asking_by_name("unregisterBroker"):
            unregister_broker(cluster, broker_id)
    except AskError as failure:
        if failure.error is not Error.UNSUPPORTED_VERSION:
            raise
        print("The target cluster does not support the broker unregistration API.")
    else:
        print(f"Broker {broker_id} is no longer registered.")


def list_endpoints(cluster: Cluster, *, include_fenced: bool) -> None:
    at_controllers = cluster.settings.at_controllers
    if at_controllers and include_fenced:
        raise ToolError("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    with asking_by_name("listNodes"):
        cluster.nodes()
        described = describe_cluster(cluster, include_fenced=include_fenced)
    by_id = {each.node_id: each for each in described.endpoints}
    endpoints = [by_id[node_id] for node_id in in_hash_order(by_id, int_hash)]
    host_width = max((len(each.host) for each in endpoints), default=_HOST_WIDTH_IF_NONE)
    rack_width = max((len(each.rack) for each in endpoints if each.rack is not None), default=_RACK_WIDTH_IF_NONE)
    widths = [10, host_width, 10, rack_width, *([] if at_controllers else [10]), 15]
    headings = ["ID", "HOST", "PORT", "RACK", *([] if at_controllers else ["STATE"]), "ENDPOINT_TYPE"]
    for cells in [headings, *(_cells(each, at_controllers=at_controllers) for each in endpoints)]:
        print(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)))


def _cells(endpoint: Endpoint, *, at_controllers: bool) -> list[str]:
    cells = [str(endpoint.node_id), endpoint.host, str(endpoint.port), endpoint.rack or "null"]
    if at_controllers:
        return [*cells, "controller"]
    return [*cells, "fenced" if endpoint.is_fenced else "unfenced", "broker"]
