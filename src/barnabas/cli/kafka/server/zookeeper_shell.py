"""zookeeper-shell: what people look up in ZooKeeper, answered by the cluster itself.

    zookeeper-shell localhost:2181 ls /brokers/ids

The address is that of a ZooKeeper. Nodes whose files name it as `zookeeper.connect` have their quorum there, which
knows who belongs to it; where nobody answers, the node of this machine is asked.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, asking
from barnabas.cli.kafka.cluster_access import LOCAL_NODE
from barnabas.cli.kafka.tool import ToolError, ToolUsageError
from barnabas.client.admin.cluster_state import describe_cluster, describe_quorum
from barnabas.client.admin.topics import describe_topics, list_topics
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.cluster import Cluster

_HURRY: Final = {"default.api.timeout.ms": "3000", "request.timeout.ms": "3000"}
_QUIT: Final = ("quit", "close", "exit")
_TLS_FLAG: Final = "-zk-tls-config-file"
_ROOTS: Final = {"/": ["brokers", "controller"], "/brokers": ["ids", "topics"]}


def run(words: list[str]) -> int:
    if _TLS_FLAG in words:
        at = words.index(_TLS_FLAG)
        del words[at : at + 2]
    words = [word for word in words if word != "-server"]
    if not words:
        raise ToolUsageError(
            "USAGE: zookeeper-shell zookeeper_host:port[/path] [-zk-tls-config-file file] [args...]",
            is_error_output=False,
        )
    address, *command = words
    print(f"Connecting to {address}")
    bootstrap, has_quorum = _place(address.partition("/")[0])
    with admin_at(bootstrap, _HURRY, at_controllers=has_quorum) as cluster:
        if command:
            _answer(cluster, command)
            return EXIT_OK
        print("Welcome to ZooKeeper!" if sys.stdin.isatty() else "", flush=True)
        for line in sys.stdin:
            typed = line.split()
            if typed and typed[0] in _QUIT:
                break
            if typed:
                _answer(cluster, typed)
    return EXIT_OK


def _place(address: str) -> tuple[str, bool]:
    """Where to ask instead, and whether a quorum is there: at that address, or else the node of this machine."""
    import socket

    host, _, port = address.split(",")[0].rpartition(":")
    try:
        socket.create_connection((host or "localhost", int(port or "2181")), timeout=1).close()
    except (OSError, ValueError):
        return LOCAL_NODE, False
    return f"{host or 'localhost'}:{port}", True


def _answer(cluster: Cluster, command: list[str]) -> None:
    name, *arguments = command
    path = next((word for word in arguments if not word.startswith("-")), "/")
    try:
        with asking("describeCluster"):
            print(_COMMANDS[name](cluster, path.rstrip("/") or "/"), flush=True)
    except KeyError:
        raise ToolError(
            f"Command not found: Command not found {name}", hint=f"there are {', '.join(_COMMANDS)}"
        ) from None


def _ls(cluster: Cluster, path: str) -> str:
    if path in _ROOTS:
        return _listed(_ROOTS[path])
    if path == "/brokers/ids":
        return _listed(_broker_ids(cluster))
    if path == "/brokers/topics":
        return _listed(topic.name for topic in list_topics(_brokers_only(cluster, path)))
    raise _no_node(path)


def _get(cluster: Cluster, path: str) -> str:
    if path == "/controller":
        controller = describe_quorum(cluster).leader_id
        return json.dumps({"version": 1, "brokerid": controller}, separators=(",", ":"))
    parent, _, name = path.rpartition("/")
    shown: dict[str, Any] | None = None
    if parent == "/brokers/ids" and name.isdecimal():
        shown = _broker(_brokers_only(cluster, path), int(name))
    elif parent == "/brokers/topics":
        shown = _topic(_brokers_only(cluster, path), name)
    if shown is None:
        raise _no_node(path)
    return json.dumps(shown, separators=(",", ":"))


_COMMANDS: Final[dict[str, Callable[[Cluster, str], str]]] = {"ls": _ls, "get": _get}


def _broker_ids(cluster: Cluster) -> list[int]:
    if not cluster.settings.at_controllers:
        return sorted(each.node_id for each in describe_cluster(cluster).endpoints)
    quorum = describe_quorum(cluster)
    return sorted({each.node_id for each in (*quorum.voters, *quorum.observers)})


def _broker(cluster: Cluster, broker_id: int) -> dict[str, Any] | None:
    for each in describe_cluster(cluster).endpoints:
        if each.node_id == broker_id:
            return {"endpoints": [f"PLAINTEXT://{each.host}:{each.port}"], "host": each.host, "port": each.port}
    return None


def _topic(cluster: Cluster, name: str) -> dict[str, Any] | None:
    state = describe_topics(cluster, [name])[name]
    if isinstance(state, KafkaError):
        return None
    return {"version": 2, "partitions": {str(each.partition): each.replicas for each in state.partitions}}


def _brokers_only(cluster: Cluster, path: str) -> Cluster:
    """ToolError for what controllers do not tell."""
    if cluster.settings.at_controllers:
        raise ToolError(f"{path}: the quorum that is there does not tell; kafka-topics and kafka-cluster do")
    return cluster


def _no_node(path: str) -> ToolError:
    return ToolError(f"Node does not exist: {path}")


def _listed(names: Any) -> str:
    return f"[{', '.join(map(str, names))}]"
