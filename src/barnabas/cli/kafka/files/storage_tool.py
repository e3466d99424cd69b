"""kafka-storage: formats the folders of a node, and tells what they are."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.formatting.format_command import FORMAT_ERRORS, config_of, format_request
from barnabas.cli.kafka.cluster.feature_levels import (
    ALL_NAMES,
    IN_ORDER,
    LATEST_NAME,
    dependency_lines,
    is_level,
    mapping_lines,
)
from barnabas.cli.kafka.cluster_access import read_properties_file
from barnabas.cli.kafka.subcommands import ToolParser
from barnabas.cli.kafka.tool import EXIT_FAILED, ToolError
from barnabas.log.folder.meta_properties import META_PROPERTIES
from barnabas.metadata.versions import FEATURE_NAME
from barnabas.node.format_folders import bootstrap_records, format_folders, random_id
from barnabas.node.initial_features import FeatureError
from barnabas.ports import SystemClock, SystemDisk, SystemRandom
from barnabas.protocol import uuids
from barnabas.protocol.json_form import line_form

if TYPE_CHECKING:
    import argparse

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.node.format_folders import FormatRequest

TOOL: Final = "kafka-storage"
_SHORT: Final = range(-(1 << 15), 1 << 15)


def run(words: list[str]) -> int:
    options = build_parser().parse(words)
    if options.command == "random-uuid":
        print(uuids.to_text(random_id(SystemRandom())))
    elif options.command == "version-mapping":
        _print_mapping(options.release_version)
    elif options.command == "feature-dependencies":
        for text in options.feature:
            _print_dependencies(text)
    elif options.command == "info":
        return tell(_config(options.config))
    else:
        format_all(_config(options.config), options)
    return EXIT_OK


def build_parser() -> ToolParser:
    parser = ToolParser(TOOL, description="Format the folders of a node, and tell what they are.")
    actions = parser.add_actions()
    info = actions.add_parser("info", help="tell what the folders of a node are")
    formatting = actions.add_parser("format", help="format the folders of a node")
    for each in (info, formatting):
        each.add_argument("--config", "-c", required=True, help="the properties file of the node")
    formatting.add_argument("--cluster-id", "-t", required=True, help="the id of the cluster")
    formatting.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        help="a user that the new cluster knows: SCRAM-SHA-256=[name=alice,password=alice-secret]",
    )
    formatting.add_argument("--ignore-formatted", "-g", action="store_true", help="skip folders that are formatted")
    formatting.add_argument("--release-version", "-r", help=f"the release to begin with (default {LATEST_NAME})")
    formatting.add_argument(
        "--feature", "-f", action="append", default=[], help="the level of a feature, as kraft.version=1"
    )
    quorum = formatting.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", "-s", action="store_true", help="this controller is the only voter at first")
    quorum.add_argument(
        "--no-initial-controllers", "-N", action="store_true", help="this node joins a cluster whose voters exist"
    )
    quorum.add_argument(
        "--initial-controllers", "-I", help="the voters of a new cluster: id@host:port:directory,…, the same everywhere"
    )
    mapping = actions.add_parser("version-mapping", help="the features of a release")
    mapping.add_argument("--release-version", "-r", default=LATEST_NAME, help=f"(default {LATEST_NAME})")
    needs = actions.add_parser("feature-dependencies", help="what levels of features need of others")
    needs.add_argument("--feature", "-f", action="append", required=True, help="a feature and its level: name=level")
    actions.add_parser("random-uuid", help="print an id for a cluster or a directory")
    return parser


def _config(path: str) -> BrokerConfig:
    properties = read_properties_file(path)
    try:
        return config_of(properties)
    except FORMAT_ERRORS as error:
        raise ToolError(str(error)) from None


def format_all(config: BrokerConfig, options: argparse.Namespace) -> None:
    try:
        request = format_request(config, options.cluster_id, options)
        folders = format_folders(request, disk=SystemDisk(), clock=SystemClock(), random=SystemRandom())
        first = next(folders, None)
        if first is None:
            print("All of the log directories are already formatted.")
            return
        print(_bootstrap_line(request))
        for folder in itertools.chain([first], folders):
            print(
                f"Formatting {folder.kind.value} {folder.path} with metadata.version {request.features.version_name}."
            )
    except FORMAT_ERRORS as error:
        raise ToolError(_kafka_words(str(error))) from None
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}") from None


def _bootstrap_line(request: FormatRequest) -> str:
    records = ", ".join(
        f"ApiMessageAndVersion({line_form(each.message)} at version {each.version})"
        for each in bootstrap_records(request)
    )
    return (
        f"Bootstrap metadata: BootstrapMetadata(records=[{records}], "
        f"metadataVersionLevel={request.features.metadata_version}, source=format command)"
    )


def _kafka_words(message: str) -> str:
    """Without what ours says more."""
    return message.partition(" (--initial-controllers ")[0]


def tell(config: BrokerConfig) -> int:
    """Print what the folders are, and what is wrong with them."""
    found: list[str] = []
    problems: list[str] = []
    identity: dict[str, str] = {}
    for folder in sorted({*config.log_dirs, config.metadata_log_dir}):
        if not os.path.isdir(folder):
            problems.append(f"{folder} {'is not a directory' if os.path.exists(folder) else 'does not exist'}")
            continue
        found.append(folder)
        if not os.path.exists(f"{folder}/{META_PROPERTIES}"):
            problems.append(f"{folder} is not formatted.")
            continue
        identity = _compared(identity, read_properties_file(f"{folder}/{META_PROPERTIES}"), problems)
    _print_block("Found log director", "y:", "ies:", found)
    if identity:
        shown = ", ".join(f"{name}={value}" for name, value in sorted(identity.items()))
        print(f"Found metadata: {{{shown}}}\n")
    _print_block("Found problem", ":", "s:", problems)
    return EXIT_FAILED if problems else EXIT_OK


def _compared(first: dict[str, str], other: dict[str, str], problems: list[str]) -> dict[str, str]:
    """The identity of the first folder, after a look at another's."""
    if not first:
        return other
    if first.get("cluster.id") != other.get("cluster.id"):
        problems.append("Mismatched cluster IDs between storage directories.")
    elif first.get("node.id") != other.get("node.id"):
        problems.append("Mismatched node IDs between storage directories.")
    return first


def _print_block(heading: str, one: str, several: str, lines: list[str]) -> None:
    if lines:
        print(heading + (one if len(lines) == 1 else several))
        for line in lines:
            print(f"  {line}")
        print()


def _print_mapping(release: str) -> None:
    try:
        for line in mapping_lines(release):
            print(line)
    except FeatureError as error:
        raise ToolError(str(error)) from None


def _print_dependencies(text: str) -> None:
    feature, equals, level_text = text.partition("=")
    if not equals:
        raise ToolError(f"Invalid feature format: {text}. Expected format: 'feature=version' (e.g. 'group.version=1')")
    try:
        level = int(level_text)
    except ValueError:
        level = _SHORT.stop
    if level not in _SHORT:
        raise ToolError(f"Invalid version format: {level_text} for feature {feature}")
    if feature == FEATURE_NAME:
        if level not in ALL_NAMES:
            raise ToolError(f"Unknown metadata.version {level}")
    elif feature not in IN_ORDER:
        raise ToolError(f"Unknown feature: {feature}")
    elif not is_level(feature, level):
        raise ToolError(f"Feature level {level} is not supported for feature {feature}")
    for line in dependency_lines(feature, level):
        print(line)
