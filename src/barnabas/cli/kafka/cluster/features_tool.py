"""kafka-features: the levels of the features that a cluster runs with, and how they rise and sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, asking_by_name, properties_at, said_of
from barnabas.cli.kafka.cluster.feature_levels import (
    ALL_NAMES,
    IN_ORDER,
    LATEST_NAME,
    dependency_lines,
    is_level,
    level_at,
    level_to_run_with,
    mapping_lines,
)
from barnabas.cli.kafka.subcommands import ToolParser, java_int
from barnabas.cli.kafka.tool import ToolError, ToolUsageError
from barnabas.client.admin.cluster_state import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    describe_features,
    update_features,
)
from barnabas.metadata.versions import FEATURE_NAME
from barnabas.node.initial_features import FeatureError, parse_feature
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from barnabas.client.cluster import Cluster

TOOL: Final = "kafka-features"
COMPLAINT: Final = "Command line error: {message}. Type --help for help."
NO_SERVER: Final = "You must specify either --bootstrap-controller or --bootstrap-server."
_DONE: Final = {"upgrade": "upgraded to {}", "downgrade": "downgraded to {}", "disable": "disabled"}
_TO_DO: Final = {"upgrade": "upgrade {} to {}", "downgrade": "downgrade {} to {}", "disable": "disable {}"}


def run(words: list[str]) -> int:
    options = build_parser().parse(words)
    if options.command == "version-mapping":
        _print_lines(lambda: mapping_lines(options.release_version))
    elif options.command == "feature-dependencies":
        for text in options.feature:
            _print_lines(lambda text=text: dependencies_of(text))  # type: ignore[misc]
    else:
        ask(options)
    return EXIT_OK


def build_parser() -> ToolParser:
    parser = ToolParser(TOOL, description="The features of a cluster, and their levels.", complaint=COMPLAINT)
    servers = parser.add_mutually_exclusive_group()
    servers.add_argument("--bootstrap-server", help="the brokers to connect to, as host:port")
    servers.add_argument("--bootstrap-controller", help="the controllers to connect to instead")
    parser.add_argument("--command-config", help="a file with properties for the admin client")
    actions = parser.add_actions()
    describe = actions.add_parser("describe", help="show the levels")
    describe.add_argument("--node-id", type=java_int, help="the node to ask; any without this")
    upgrade = actions.add_parser("upgrade", help="let features rise to higher levels")
    downgrade = actions.add_parser("downgrade", help="let features sink to lower levels")
    disable = actions.add_parser("disable", help="let features sink to level 0")
    for each in (upgrade, downgrade):
        each.add_argument("--metadata", help="deprecated: the level of metadata.version by its name, as 3.3-IV3")
        each.add_argument("--release-version", help="the levels of a release (version-mapping shows them)")
        each.add_argument("--feature", action="append", help="a feature and its level, as metadata.version=5")
    disable.add_argument("--feature", action="append", help="a feature")
    for each in (downgrade, disable):
        each.add_argument("--unsafe", action="store_true", help="even if metadata is lost by it")
    for each in (upgrade, downgrade, disable):
        each.add_argument("--dry-run", action="store_true", help="only say whether it can be done")
    mapping = actions.add_parser("version-mapping", help="show the levels of a release")
    mapping.add_argument("--release-version", default=LATEST_NAME, help=f"(default {LATEST_NAME})")
    needs = actions.add_parser("feature-dependencies", help="show what levels of features need of others")
    needs.add_argument("--feature", action="append", required=True, help="a feature and its level: name=level")
    return parser


def dependencies_of(text: str) -> Iterable[str]:
    feature, level = parse_feature(text)
    if feature == FEATURE_NAME:
        if level not in ALL_NAMES:
            raise ToolError(f"Unknown metadata.version {level}")
    elif feature not in IN_ORDER:
        raise ToolError(f"Unknown feature: {feature}")
    elif not is_level(feature, level):
        raise ToolError(f"No feature:{feature} with feature level {level}")
    return dependency_lines(feature, level)


def ask(options: argparse.Namespace) -> None:
    at_controllers = options.bootstrap_controller is not None
    servers = options.bootstrap_controller if at_controllers else options.bootstrap_server
    properties = properties_at(options.command_config)
    if servers is None:
        raise ToolUsageError(COMPLAINT.format(message=NO_SERVER))
    with admin_at(servers, properties, at_controllers=at_controllers) as cluster:
        if options.command == "describe":
            describe(cluster, options.node_id)
        else:
            update(cluster, options)


def describe(cluster: Cluster, node_id: int | None) -> None:
    if node_id is not None and node_id < 0:
        raise ToolError(f"Invalid node id {node_id}: must be non-negative.")
    with asking_by_name("describeFeatures"):
        cluster.nodes()  # which fails where brokers are taken for controllers, or the other way round
        features = describe_features(cluster, node_id)
    epoch = "-" if features.epoch < 0 else features.epoch
    for name, (lowest, highest) in sorted(features.supported.items()):
        lowest_name, highest_name, level = (
            level_name(name, each) for each in (lowest, highest, features.finalized.get(name, 0))
        )
        print(
            f"Feature: {name:<40}  SupportedMinVersion: {lowest_name:<15}  SupportedMaxVersion: {highest_name:<15}  "
            f"FinalizedVersionLevel: {level:<15}  Epoch: {epoch}"
        )


def level_name(feature: str, level: int) -> str:
    if feature == FEATURE_NAME:
        return ALL_NAMES.get(level) or f"UNKNOWN [{level}]"
    return str(level)


def update(cluster: Cluster, options: argparse.Namespace) -> None:
    action: str = options.command
    kind = UPGRADE if action == "upgrade" else UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE
    try:
        levels = _disabled(options) if action == "disable" else levels_asked(options, kind)
    except FeatureError as error:
        raise ToolError(str(error)) from None
    if not levels:
        raise ToolError(f"You must specify at least one feature to {action}")
    try:
        outcomes = update_features(cluster, levels, kind, validate_only=options.dry_run)
    except KafkaError as failure:
        outcomes = dict.fromkeys(levels, failure)
    for name in sorted(outcomes):
        failed = outcomes[name]
        if failed is None:
            done = _DONE[action].format(levels[name])
            print(f"{name} {'can be' if options.dry_run else 'was'} {done}.")
        else:
            to_do = _TO_DO[action].format(name, levels[name])
            reason = said_of(failed, "updateFeatures").message
            print(f"{'Can' if options.dry_run else 'Could'} not {to_do}. {reason}")
    failures = sum(failed is not None for failed in outcomes.values())
    if failures:
        raise ToolError(f"{failures} out of {len(levels)} operation(s) failed.")


def levels_asked(options: argparse.Namespace, kind: int) -> dict[str, int]:
    if options.release_version is not None:
        if options.metadata is not None or options.feature is not None:
            raise ToolError("Can not specify `release-version` with other feature flags.")
        return levels_of_release(options.release_version, kind)
    levels: dict[str, int] = {}
    if options.metadata is not None:
        print(" `metadata` flag is deprecated and may be removed in a future release.", flush=True)
        levels[FEATURE_NAME] = level_to_run_with(options.metadata)
    for text in options.feature or ():
        name, level = parse_feature(text)
        if level < 0:
            raise ToolError("Cannot specify a negative version level.")
        if level == 0 and kind == UPGRADE:
            raise ToolError(
                "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE when the provided "
                f"maxVersionLevel:{level} is < 1."
            )
        _add(levels, name, level)
    return levels


def levels_of_release(release: str, kind: int) -> dict[str, int]:
    metadata_version = level_to_run_with(release)
    levels = {feature: level_at(feature, metadata_version) for feature in IN_ORDER}
    # No feature rises to level 0.
    return {FEATURE_NAME: metadata_version} | {
        feature: level for feature, level in levels.items() if level > 0 or kind != UPGRADE
    }


def _disabled(options: argparse.Namespace) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name in options.feature or ():
        _add(levels, name, 0)
    return levels


def _add(levels: dict[str, int], name: str, level: int) -> None:
    if name in levels:
        raise ToolError(f"Feature {name} was specified more than once.")
    levels[name] = level


def _print_lines(make: Callable[[], Iterable[str]]) -> None:
    try:
        for line in make():
            print(line)
    except FeatureError as error:
        raise ToolError(str(error)) from None
