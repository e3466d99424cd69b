"""kafka-broker-api-versions: the APIs that each broker speaks, and in which versions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import check_names, properties_at, said_of
from barnabas.cli.kafka.cluster_access import cluster_at, is_unreachable
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags
from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version
from barnabas.client.admin.cluster_state import versions_of
from barnabas.client.admin.topics import list_brokers
from barnabas.net.frames import api_name
from barnabas.protocol.api import APIS
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.client.admin.topics import Broker
    from barnabas.client.cluster import Cluster
    from barnabas.net.frames import VersionRange

SUMMARY: Final = "This tool helps to retrieve broker version information."
PATIENCE_MS: Final = 5_000
"""The tool does not wait for a cluster that may come up."""
_FALSE_HASH: Final = 1_237
"""`Boolean.hashCode` of false."""
OF_BROKERS: Final = "broker"
"""The listeners at which clients find an API."""

FLAGS: Final = Flags(
    Flag(
        ("bootstrap-server",),
        "The brokers to connect to, as host:port. Required.",
        "server(s) to use for bootstrapping",
    ),
    Flag(("command-config",), "A file with properties for the admin client.", "command config property file"),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words, BROKER_LIST))
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    FLAGS.check_required(given, "bootstrap-server")
    patience = {"request.timeout.ms": str(PATIENCE_MS), "default.api.timeout.ms": str(PATIENCE_MS)}
    properties = patience | properties_at(given.text("command-config"))
    try:
        with cluster_at(given.required("bootstrap-server"), properties) as cluster:
            check_names(cluster.settings)
            print_versions(cluster)
    except ToolUsageError as failure:
        raise ToolError(failure.message) from None
    return EXIT_OK


def print_versions(cluster: Cluster) -> None:
    try:
        brokers = list_brokers(cluster)
    except KafkaError as failure:
        if not is_unreachable(failure):
            raise ToolError(failure.message) from None
        asked = ", ".join(
            f"{server} (id: {-number} rack: null isFenced: false)"
            for number, server in enumerate(cluster.settings.bootstrap_servers, start=1)
        )
        raise ToolError(f"Request METADATA failed on brokers [{asked}]", hint=failure.message) from None
    for broker_id in in_table_order(brokers):
        broker = brokers[broker_id]
        name = f"{broker.host}:{broker.port} (id: {broker_id} rack: {broker.rack or 'null'} isFenced: false)"
        try:
            offered = versions_of(cluster, broker_id)
        except KafkaError as failure:
            print(f"{name} -> ERROR: {said_of(failure, 'apiVersions').message}")
        else:
            lines = ",\n\t".join(described(offered))
            print(f"{name} -> (\n\t{lines}\n)")


def in_table_order(brokers: Mapping[int, Broker]) -> list[int]:
    """The ids of brokers as a HashMap has them that is by all that is known of each."""
    return in_hash_order(brokers, lambda each: _node_hash(each, brokers[each]))


def _node_hash(broker_id: int, broker: Broker) -> int:
    """`Node.hashCode`, without its sign, of a broker that is not fenced."""
    parts = (string_hash(broker.host), broker_id, broker.port, string_hash(broker.rack or ""), _FALSE_HASH)
    return functools.reduce(lambda value, part: 31 * value + part, parts, 1) & 0xFFFF_FFFF


def described(offered: Mapping[int, VersionRange]) -> Iterator[str]:
    """A text for each API that either side knows, in the order of their numbers."""
    for key in sorted({*offered, *(key for key, api in APIS.items() if OF_BROKERS in api.listeners)}):
        if key not in offered:
            yield f"{api_name(key)}({key}): UNSUPPORTED"
            continue
        lowest, highest = offered[key]
        versions = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
        if key not in APIS:
            yield f"UNKNOWN({key}): {versions}"
            continue
        ours = APIS[key]
        if ours.max_version < lowest:
            usable = "unusable: node too new"
        elif highest < ours.min_version:
            usable = "unusable: node too old"
        else:
            usable = f"usable: {min(ours.max_version, highest)}"
        yield f"{api_name(key)}({key}): {versions} [{usable}]"
