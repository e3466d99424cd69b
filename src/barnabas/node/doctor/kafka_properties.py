"""The server.properties with which Apache Kafka opens a data folder: who the node is, and where it last was.

All of it is in the folder: the node's id and directories in `meta.properties`, its addresses and its roles in the
metadata log. What a folder does not know (keystores, passwords, sizes of pools) keeps Kafka's defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config.properties import format_properties
from barnabas.config.quorum import address_text
from barnabas.raft.consensus.voter_sets import VOTERS_IN_LOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.metadata.image import Endpoint
    from barnabas.node.doctor.report import MetadataSummary, Report
    from barnabas.raft.consensus.voter_sets import VoterEndpoint

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""By their numbers in the metadata."""
DEFAULT_CONTROLLER = ("CONTROLLER", "127.0.0.1", 9093)
DEFAULT_BROKER = ("PLAINTEXT", "127.0.0.1", 9092)
REPLICAS_MAX = 3


class NoPropertiesError(Exception):
    """The folder does not say enough for a server.properties; the message says what is missing."""


def kafka_properties(report: Report) -> str:
    """The file, with comments."""
    if report.node_id is None or report.metadata is None:
        raise NoPropertiesError(
            "there is no readable meta.properties, or no metadata log: give all folders of the node, with --data-dir "
            "for each"
        )
    lines = [
        f"# Apache Kafka 4.3 opens the folder of node {report.node_id} of cluster {report.cluster_id} with this file:",
        "#     bin/kafka-server-start.sh server.properties",
        "# Addresses are those that the node had when it ran last.",
        *(_line(name, value) for name, value in properties(report, report.metadata).items()),
    ]
    return "\n".join([*lines, *_remarks(report, report.metadata), ""])


def _line(name: str, value: str) -> str:
    """Colons need no backslashes before them, and addresses are easier to read without."""
    is_plain = value.isascii() and value.isprintable() and "\\" not in value and value == value.strip()
    return f"{name}={value}" if is_plain else format_properties({name: value}).rstrip("\n")


def properties(report: Report, metadata: MetadataSummary) -> dict[str, str]:
    node_id = report.node_id
    assert node_id is not None
    brokers = _broker_endpoints(report, metadata)
    controllers = _controller_endpoints(report, metadata)
    named = [(name, host, port) for name, host, port, _ in brokers] if "broker" in report.roles else []
    own = named + (controllers if "controller" in report.roles else [])
    controller_names = list(dict.fromkeys(name for name, _, _ in controllers)) or [DEFAULT_CONTROLLER[0]]
    found = {
        "process.roles": ",".join(report.roles),
        "node.id": str(node_id),
        "listeners": ",".join(f"{name}://{address_text(host, port)}" for name, host, port in own),
        "controller.listener.names": ",".join(controller_names),
        **_quorum(report, metadata, controllers),
        "listener.security.protocol.map": ",".join(
            [f"{name}:{PROTOCOLS[protocol]}" for name, _, _, protocol in brokers]
            + [f"{name}:PLAINTEXT" for name in controller_names if name not in {each[0] for each in brokers}]
        ),
        "log.dirs": ",".join(folder.path for folder in report.folders),
    }
    if "broker" in report.roles and "PLAINTEXT" not in {each[0] for each in brokers}:
        found["inter.broker.listener.name"] = brokers[0][0]
    metadata_dir = metadata.folder.rpartition("/")[0]
    if metadata_dir != report.folders[0].path:
        found["metadata.log.dir"] = metadata_dir
    return found | _replicas(len(metadata.image.brokers))


def _broker_endpoints(report: Report, metadata: MetadataSummary) -> list[tuple[str, str, int, int]]:
    registered = metadata.image.brokers.get(report.node_id if report.node_id is not None else -1)
    endpoints: Iterable[Endpoint] = () if registered is None else registered.endpoints
    found = [(each.name, each.host, each.port, each.security_protocol) for each in endpoints]
    return found or [(*DEFAULT_BROKER, 0)]


def _controller_endpoints(report: Report, metadata: MetadataSummary) -> list[tuple[str, str, int]]:
    """Of this node, or, if it is no controller, of one that it asks."""
    voters = [voter for voter in metadata.voters if voter.id == report.node_id] or list(metadata.voters)
    endpoints: Sequence[VoterEndpoint] = voters[0].endpoints if voters else ()
    if not endpoints and report.node_id is not None and report.node_id in metadata.image.controllers:
        registered = metadata.image.controllers[report.node_id]
        return [(each.name, each.host, each.port) for each in registered.end_points]
    return [(each.name, each.host, each.port) for each in endpoints] or [DEFAULT_CONTROLLER]


def _quorum(report: Report, metadata: MetadataSummary, own: list[tuple[str, str, int]]) -> dict[str, str]:
    if metadata.kraft_version >= VOTERS_IN_LOG or metadata.voters:
        servers = [
            address_text(each.endpoints[0].host, each.endpoints[0].port) for each in metadata.voters if each.endpoints
        ]
        return {"controller.quorum.bootstrap.servers": ",".join(servers or [address_text(*own[0][1:])])}
    voters = metadata.static_voter_ids or ((report.node_id,) if report.node_id is not None else ())
    known = {
        node_id: (record.end_points[0].host, record.end_points[0].port)
        for node_id, record in metadata.image.controllers.items()
        if record.end_points
    }
    addresses = {node_id: known.get(node_id, own[0][1:]) for node_id in voters}
    return {
        "controller.quorum.voters": ",".join(
            f"{node_id}@{address_text(*address)}" for node_id, address in addresses.items()
        )
    }


def _replicas(brokers: int) -> dict[str, str]:
    """Internal topics that are yet to be created must find as many brokers as they want replicas."""
    if brokers >= REPLICAS_MAX:
        return {}
    factor = str(max(brokers, 1))
    return {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": "1",
    }


def _remarks(report: Report, metadata: MetadataSummary) -> list[str]:
    secured = [name for name, _, _, protocol in _broker_endpoints(report, metadata) if protocol]
    if not secured:
        return []
    return [f"# {', '.join(secured)}: add the ssl.* and sasl.* settings of this node, which no folder has."]
