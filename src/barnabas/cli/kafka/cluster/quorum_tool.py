"""kafka-metadata-quorum: who leads the metadata quorum, how far others are, and how controllers join and leave it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, asking_by_name
from barnabas.cli.kafka.cluster_access import read_properties_file
from barnabas.cli.kafka.java.java_ids import IdError, read_id
from barnabas.cli.kafka.java.java_tables import print_table
from barnabas.cli.kafka.subcommands import ToolParser, java_int
from barnabas.cli.kafka.tool import ToolError
from barnabas.client.admin.cluster_state import add_voter, describe_cluster, describe_quorum, remove_voter
from barnabas.protocol import uuids
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from barnabas.client.admin.cluster_state import Quorum, QuorumListener, QuorumReplica
    from barnabas.client.cluster import Cluster

TOOL: Final = "kafka-metadata-quorum"
HEADINGS: Final = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


def run(words: list[str]) -> int:
    options = build_parser().parse(words)
    properties = _properties_at(options.command_config)
    at_controllers = options.bootstrap_controller is not None
    servers = options.bootstrap_controller if at_controllers else options.bootstrap_server
    with admin_at(servers, properties, at_controllers=at_controllers) as cluster:
        act(cluster, options, properties)
    return EXIT_OK


def build_parser() -> ToolParser:
    parser = ToolParser(TOOL, description="The quorum of controllers that keeps the metadata of a cluster.")
    parser.add_servers()
    parser.add_argument(
        "--command-config", help="a file with properties for the admin client; for add-controller, of the controller"
    )
    actions = parser.add_actions()
    describe = actions.add_parser("describe", help="show the quorum")
    describe.add_argument("--status", action="store_true", help="who leads and who votes")
    describe.add_argument("--replication", action="store_true", help="how far each replica is")
    describe.add_argument("--human-readable", action="store_true", help="times as so long ago")
    add = actions.add_parser("add-controller", help="let the controller of --command-config vote")
    remove = actions.add_parser("remove-controller", help="let a controller vote no more")
    remove.add_argument("--controller-id", "-i", type=java_int, required=True, help="the number of the controller")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="the id of its directory")
    for each in (add, remove):
        each.add_argument("--dry-run", action="store_true", help="only say what would be done")
    return parser


def _properties_at(path: str | None) -> dict[str, str]:
    import os

    if path is None:
        return {}
    if not os.path.exists(path):
        raise ToolError(f"Properties file {path} does not exists!")
    return read_properties_file(path)


def act(cluster: Cluster, options: argparse.Namespace, properties: dict[str, str]) -> None:
    if options.command == "describe":
        describe(cluster, options)
    elif options.command == "add-controller":
        if options.command_config is None:
            raise ToolError(
                "You must supply the configuration file of the controller you are adding when using add-controller."
            )
        add_controller(cluster, properties, dry_run=options.dry_run)
    else:
        remove_controller(cluster, options)


def describe(cluster: Cluster, options: argparse.Namespace) -> None:
    if options.status and options.replication:
        raise ToolError("Only one of --status or --replication should be specified with describe sub-command")
    if not options.status and not options.replication:
        raise ToolError("One of --status or --replication must be specified with describe sub-command")
    if options.replication:
        print_replication(_quorum(cluster), shows_ages=options.human_readable)
        return
    if options.human_readable:
        raise ToolError("The option --human-readable is only supported along with --replication")
    with asking_by_name("listNodes"):
        cluster.nodes()
        cluster_id = describe_cluster(cluster).cluster_id
    print_status(_quorum(cluster), cluster_id)


def print_replication(quorum: Quorum, *, shows_ages: bool) -> None:
    leader = _leader(quorum)
    followers = [each for each in quorum.voters if each is not leader]
    by_status = {"Leader": [leader], "Follower": followers, "Observer": quorum.observers}
    rows = [
        (
            each.node_id,
            uuids.to_text(each.directory_id),
            each.log_end_offset,
            leader.log_end_offset - each.log_end_offset,
            _moment(each.last_fetch_timestamp, "last fetch", shows_ages=shows_ages),
            _moment(each.last_caught_up_timestamp, "last caught up", shows_ages=shows_ages),
            status,
        )
        for status, replicas in by_status.items()
        for each in replicas
    ]
    print_table(HEADINGS, rows)


def print_status(quorum: Quorum, cluster_id: str) -> None:
    leader = _leader(quorum)
    last = min(quorum.voters, key=lambda each: each.log_end_offset)
    shown = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - last.log_end_offset,
        "MaxFollowerLagTimeMs": _lag_ms(leader, last),
        "CurrentVoters": _shown_replicas(quorum, quorum.voters),
        "CurrentObservers": _shown_replicas(quorum, quorum.observers),
    }
    for name, value in shown.items():
        print(f"{name + ':':<24}{value}")


def _quorum(cluster: Cluster) -> Quorum:
    with asking_by_name("describeMetadataQuorum"):
        cluster.nodes()
        return describe_quorum(cluster)


def _leader(quorum: Quorum) -> QuorumReplica:
    for each in quorum.voters:
        if each.node_id == quorum.leader_id:
            return each
    raise ToolError("No value present", hint=f"the leader, {quorum.leader_id}, is none of the voters")


def _lag_ms(leader: QuorumReplica, last: QuorumReplica) -> int:
    if leader is last:
        return 0
    if leader.last_caught_up_timestamp < 0 or last.last_caught_up_timestamp < 0:
        return -1
    return leader.last_caught_up_timestamp - last.last_caught_up_timestamp


def _moment(timestamp_ms: int, what: str, *, shows_ages: bool) -> str:
    if timestamp_ms < 0:
        return "-1"
    if not shows_ages:
        return str(timestamp_ms)
    now_ms = time.time_ns() // 1_000_000
    if not 0 < timestamp_ms <= now_ms:
        raise ToolError(
            "Error while computing relative time, possible drift in system clock.\n"
            f"Current timestamp is {now_ms}, {what} timestamp is {timestamp_ms}"
        )
    return f"{now_ms - timestamp_ms} ms ago"


def _shown_replicas(quorum: Quorum, replicas: Sequence[QuorumReplica]) -> str:
    return f"[{', '.join(_shown_replica(each, quorum.listeners.get(each.node_id, [])) for each in replicas)}]"


def _shown_replica(replica: QuorumReplica, listeners: Sequence[QuorumListener]) -> str:
    directory = "null" if replica.directory_id == ZERO_UUID else f'"{uuids.to_text(replica.directory_id)}"'
    shown = f'{{"id": {replica.node_id}, "directoryId": {directory}'
    if listeners:
        endpoints = ", ".join(f'"{_endpoint(each)}"' for each in listeners)
        shown += f', "endpoints": [{endpoints}]'
    return shown + "}"


def _endpoint(listener: QuorumListener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"


def add_controller(cluster: Cluster, properties: dict[str, str], *, dry_run: bool) -> None:
    from barnabas.cli.kafka.cluster.controller_properties import controller_of

    controller = controller_of(properties)
    if not dry_run:
        with asking_by_name("addRaftVoter"):
            add_voter(cluster, controller.node_id, controller.directory_id, controller.listeners)
    print(
        f"{'DRY RUN of adding' if dry_run else 'Added'} controller {controller.node_id} with directory id "
        f"{uuids.to_text(controller.directory_id)} and endpoints: {', '.join(map(_endpoint, controller.listeners))}"
    )


def remove_controller(cluster: Cluster, options: argparse.Namespace) -> None:
    if options.controller_id < 0:
        raise ToolError(f"Invalid negative --controller-id: {options.controller_id}")
    try:
        directory_id = read_id(options.controller_directory_id)
    except IdError as error:
        raise ToolError(f"Failed to parse --controller-directory-id: {error}") from None
    if not options.dry_run:
        with asking_by_name("removeRaftVoter"):
            remove_voter(cluster, options.controller_id, directory_id)
    # The two blanks are Kafka's.
    print(
        f"{'DRY RUN of removing ' if options.dry_run else 'Removed '} KRaft controller {options.controller_id} "
        f"with directory id {uuids.to_text(directory_id)}"
    )
