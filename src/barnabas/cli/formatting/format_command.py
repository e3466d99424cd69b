"""`barnabas format`: prepares the folders of one node of a cluster, with the options of Kafka's `kafka-storage format`.

A node that runs alone does not need it: `barnabas start` formats an empty folder by itself. A cluster of several nodes
is formatted once, node by node, with the same cluster id and the same initial controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.command_line import EXIT_OK, CommandError, Parser
from barnabas.cli.start_command import read_properties, system_error_text
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.initial_controllers import InitialController, parse_initial_controllers
from barnabas.config.settings import ConfigError
from barnabas.node.format_folders import FormatError, FormatRequest, format_folders, random_id
from barnabas.node.initial_features import FeatureError, initial_features
from barnabas.node.initial_scram import ScramError, initial_users
from barnabas.ports import SystemClock, SystemDisk, SystemRandom
from barnabas.protocol import uuids

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

AUTO = "auto"
FORMAT_ERRORS = (ConfigError, FeatureError, FormatError, ScramError)
EPILOG = """examples:
  barnabas format --cluster-id auto --config node.properties --standalone
  barnabas format --cluster-id "$ID" --config node1.properties \\
      --initial-controllers 1@host1:9093:JEXY6aqzQY-32P5TStzaFg,2@host2:9093:MvDxzVmcRsaTz33bUuRU6A
  barnabas format --cluster-id "$ID" --config broker4.properties

`barnabas random-uuid` makes an id, for a cluster or for the directory of a controller.
"""


class Quorum(NamedTuple):
    """Which of the three ways to begin was chosen; at most one."""

    standalone: bool = False
    no_initial_controllers: bool = False
    initial_controllers: str | None = None


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    cluster_id = uuids.to_text(random_id(SystemRandom())) if options.cluster_id == AUTO else options.cluster_id
    try:
        config = load_config(options.config)
        request = format_request(config, cluster_id, options)
        if options.cluster_id == AUTO:
            print(f"Cluster id {cluster_id}")
        version = request.features.version_name
        formatted = []
        for folder in format_folders(request, disk=SystemDisk(), clock=SystemClock(), random=SystemRandom()):
            print(f"Formatting {folder.kind.value} {folder.path} with metadata.version {version}.", flush=True)
            formatted.append(folder)
    except FORMAT_ERRORS as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(system_error_text(error)) from error
    if not formatted:
        print("All of the log directories are already formatted.")
    return EXIT_OK


def build_parser() -> Parser:
    parser = Parser("barnabas format", "Format the data folders of a node.", EPILOG)
    parser.add_argument(
        "--cluster-id",
        "-t",
        required=True,
        metavar="ID",
        help=f"the id of the cluster, the same on all of its nodes; {AUTO} makes one and prints it",
    )
    parser.add_argument("--config", "-c", required=True, metavar="FILE", help="the properties file of the node")
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", "-s", action="store_true", help="this controller is the only voter at first")
    quorum.add_argument(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY_ID,…",
        help="the voters of a new cluster; the same on all of its nodes",
    )
    quorum.add_argument(
        "--no-initial-controllers",
        "-N",
        action="store_true",
        help="this controller joins a cluster whose voters exist already",
    )
    parser.add_argument("--ignore-formatted", "-g", action="store_true", help="skip folders that are formatted already")
    parser.add_argument(
        "--feature",
        "-f",
        action="append",
        default=[],
        metavar="FEATURE=LEVEL",
        help="the level that a feature begins with; may be given several times",
    )
    parser.add_argument(
        "--release-version", "-r", metavar="VERSION", help="begin with the features of an older release of Kafka"
    )
    parser.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="MECHANISM=[name=USER,password=PASSWORD]",
        help="a user that the new cluster knows, by SCRAM-SHA-256 or SCRAM-SHA-512; may be given several times",
    )
    return parser


def load_config(path: str) -> BrokerConfig:
    return config_of(read_properties(path))


def config_of(properties: Mapping[str, str]) -> BrokerConfig:
    """The configuration of a node that says what its roles are."""
    if not properties.get("process.roles", "").strip():
        raise ConfigError("process.roles", 'Missing required configuration "process.roles" which has no default value.')
    return BrokerConfig.from_properties(properties)[0]


def format_request(config: BrokerConfig, cluster_id: str, options: argparse.Namespace) -> FormatRequest:
    voters = initial_voters(
        config, Quorum(options.standalone, options.no_initial_controllers, options.initial_controllers)
    )
    features = initial_features(options.release_version, options.feature, has_static_voters=bool(config.quorum_voters))
    return FormatRequest(
        cluster_id=cluster_id,
        node_id=config.node_id,
        folders=config.log_dirs,
        metadata_folder=config.metadata_log_dir,
        controller_listener_name=config.quorum_listener.name,
        initial_controllers=voters,
        features=features,
        users=initial_users(options.add_scram, features.metadata_version, SystemRandom()),
        ignore_formatted=options.ignore_formatted,
    )


def initial_voters(config: BrokerConfig, quorum: Quorum) -> tuple[InitialController, ...]:
    """The voters that a new cluster begins with; none where they are in the settings, or are still to be joined."""
    voters: tuple[InitialController, ...] = ()
    if quorum.initial_controllers is not None:
        try:
            voters = parse_initial_controllers(quorum.initial_controllers)
        except ValueError as error:
            raise FormatError(f"{error} (--initial-controllers {quorum.initial_controllers})") from None
    if quorum.standalone:
        voters = (own_voter(config),)
    if config.quorum_voters:
        if voters:
            raise FormatError(
                "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
                "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
                "controller.quorum.bootstrap.servers instead."
            )
    elif config.is_controller and not voters and not quorum.no_initial_controllers:
        raise FormatError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    return voters


def own_voter(config: BrokerConfig) -> InitialController:
    if not config.is_controller:
        raise FormatError("You can only use --standalone on a controller.")
    listener = config.advertised_controller_listeners[0]
    return InitialController(config.node_id, listener.host, listener.port, random_id(SystemRandom()))
