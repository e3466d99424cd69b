"""`barnabas status`: the nodes that run on this machine, and whether they answer."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from barnabas.cli.command_line import DEFAULT_HOST, EXIT_FAILED, EXIT_OK, CommandError, Parser
from barnabas.cli.local.local_nodes import CLUSTER, LocalNode, holder_of, is_data_folder, node_at, running_nodes
from barnabas.cli.output import Column, comma_list, number, print_json, print_table
from barnabas.cli.times import duration_text
from barnabas.client.broker_connection import Connection
from barnabas.net.frames import WireError

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWER_TIMEOUT_S = 2.0
NOTHING = "-"
COLUMNS = (
    Column("folder"),
    number("node"),
    Column("software"),
    Column("state"),
    Column("listens at"),
    number("pid"),
    Column("up for"),
    number("memory"),
)
EPILOG = """examples:
  barnabas status                    # every node of this machine
  barnabas status barnabas-data      # the one that has this folder open

A node is found by the lock on its data folder, however it was started; Apache Kafka's are found as well. `barnabas
cluster status` asks a cluster about all its nodes, wherever they run.
exit codes: 0 all answer, 1 none runs here, or one of them does not answer or run, 2 the command line is wrong
"""


def run(arguments: Sequence[str]) -> int:
    parser = build_parser()
    options = parser.parse(arguments)
    if options.folders:
        for folder in options.folders:
            require_data_folder(folder)
        nodes = [node for folder in options.folders if (node := node_at(folder)) is not None]
        idle = [folder for folder in options.folders if holder_of(folder) is None]
    else:
        nodes, idle = running_nodes(), []
    answering = {node.pid: [port for port in node.ports if answers(port)] for node in nodes}
    if options.json:
        print_json([facts(node, answering[node.pid]) for node in nodes])
    elif nodes:
        print_table(COLUMNS, [row(node, answering[node.pid]) for node in nodes])
    for folder in idle:
        print(f"barnabas: no node runs in {folder} (`barnabas start --data-dir {folder}` starts one)", file=sys.stderr)
    if not nodes and not idle:
        print("barnabas: no node runs on this machine (`barnabas start` starts one)", file=sys.stderr)
    is_well = bool(nodes) and not idle and all(answering[node.pid] or node.kind == CLUSTER for node in nodes)
    return EXIT_OK if is_well else EXIT_FAILED


def build_parser() -> Parser:
    parser = Parser("barnabas status", "Show the nodes that run on this machine.", EPILOG)
    parser.add_argument("folders", metavar="DIR", nargs="*", help="a data folder of a node (default: all nodes)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def require_data_folder(folder: str) -> None:
    if not os.path.isdir(folder):
        raise CommandError(f"there is no folder {folder}")
    if not is_data_folder(folder):
        raise CommandError(f"{folder} is no data folder: it has neither meta.properties nor cluster.properties")


def answers(port: int) -> bool:
    """Whether somebody speaks Kafka's protocol there. Not all that a node listens at is for that."""
    try:
        with Connection(DEFAULT_HOST, port, client_id="barnabas-cli", timeout_s=ANSWER_TIMEOUT_S) as connection:
            connection.versions()
    except (WireError, OSError):
        return False
    return True


def row(node: LocalNode, answering: Sequence[int]) -> tuple[object, ...]:
    return (
        comma_list(node.folders),
        NOTHING if node.node_id is None else node.node_id,
        software(node),
        state(node, answering),
        comma_list(f"{DEFAULT_HOST}:{port}" for port in answering or node.ports) or NOTHING,
        node.pid,
        duration_text(node.up_s * 1000),
        f"{node.resident_bytes / 1e6:,.0f} MB",
    )


def software(node: LocalNode) -> str:
    if node.is_apache_kafka:
        return "Apache Kafka"
    return "Barnabas, all nodes" if node.kind == CLUSTER else "Barnabas"


def state(node: LocalNode, answering: Sequence[int]) -> str:
    if node.kind == CLUSTER:
        return "runs its nodes"
    return "serves" if answering else "does not answer"


def facts(node: LocalNode, answering: Sequence[int]) -> dict[str, object]:
    return {
        "pid": node.pid,
        "kind": node.kind,
        "folders": list(node.folders),
        "cluster_id": node.cluster_id,
        "node_id": node.node_id,
        "software": "kafka" if node.is_apache_kafka else "barnabas",
        "ports": list(node.ports),
        "answering": list(answering),
        "up_s": round(node.up_s, 1),
        "resident_bytes": node.resident_bytes,
    }
