"""kafka-groups: list the groups of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import AskError, admin_at, asking, properties_at
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags, Given
from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version
from barnabas.client.admin.groups import CLASSIC, CONSUMER, CONSUMER_PROTOCOL, GroupListing, list_groups
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster

SUMMARY: Final = "This tool helps to list groups of all types."
SHARE: Final = "Share"
STREAMS: Final = "Streams"
TYPES: Final = {name.lower(): name for name in (CONSUMER, CLASSIC, SHARE, STREAMS)}
HEADINGS: Final = ("GROUP", "TYPE", "PROTOCOL")
WIDTH_MIN: Final = 20
TIMEOUT_MS: Final = 30_000
"""How long the tool waits for a cluster, if its settings do not end the waiting before that."""

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "server to connect to"),
    Flag(("command-config",), "A file with properties for the admin client.", "command config property file"),
    Flag(("list",), "List the groups."),
    Flag(("group-type",), "Only groups of a type: classic, consumer, share or streams.", "type"),
    Flag(("protocol",), "Only groups of a protocol type.", "protocol"),
    Flag(
        ("consumer",),
        "Only groups of consumers: those of type consumer, and those of type classic whose protocol type is consumer "
        "or empty.",
    ),
    Flag(("share",), "Only share groups."),
    Flag(("streams",), "Only streams groups."),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words, BROKER_LIST))
    if given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    check(given)
    properties = properties_at(given.text("command-config"))
    try:
        with admin_at(given.required("bootstrap-server"), properties) as cluster:
            print_groups([each for each in listed(cluster) if is_meant(each, given)])
    except ToolError as failure:
        raise ToolError(
            f"Error while executing groups command : {failure.message}", is_error_output=False, hint=failure.hint
        ) from None
    return EXIT_OK


def check(given: Given) -> None:
    """ToolError for flags that are missing, or do not go together."""
    if not given.has("bootstrap-server"):
        raise ToolUsageError("Missing required option(s) [bootstrap-server]")
    if not given.has("list"):
        raise ToolUsageError("Command must include exactly one action: --list.")
    if given.has("group-type") and given.required("group-type").lower() not in TYPES:
        raise ToolError("--group-type must be a valid group type.")
    filters = ("consumer", "share", "streams")
    others = {"consumer": ("group-type", "protocol", "share", "streams")}
    for each in filters:
        rest = ("consumer", "group-type", "protocol", *(other for other in filters[1:] if other != each))
        FLAGS.check_invalid(given, each, *others.get(each, rest))


def listed(cluster: Cluster) -> list[GroupListing]:
    patience_ms = cluster.settings.default_api_timeout_ms
    try:
        with asking("listGroups"):
            found = list_groups(cluster, timeout_ms=min(TIMEOUT_MS, patience_ms))
    except AskError as failure:
        if failure.error is not Error.REQUEST_TIMED_OUT:
            raise
        # Whose patience ends first decides what is said: the tool's own ends without a word.
        words = "Failed to find brokers to send ListGroups" if patience_ms < TIMEOUT_MS else "null"
        raise ToolError(words, hint=failure.hint) from None
    by_name = {each.group: each for each in found}
    return [by_name[name] for name in in_hash_order(by_name, string_hash)]


def is_meant(listing: GroupListing, given: Given) -> bool:
    kind = TYPES.get(listing.type.lower())
    protocol = given.text("protocol")
    if given.has("group-type"):
        return kind == TYPES[given.required("group-type").lower()] and protocol in (None, listing.protocol_type)
    if protocol is not None:
        return listing.protocol_type == protocol
    if given.has("consumer"):
        return listing.protocol_type in (CONSUMER_PROTOCOL, "") or kind == CONSUMER
    if given.has("share"):
        return kind == SHARE
    return not given.has("streams") or kind == STREAMS


def print_groups(groups: list[GroupListing]) -> None:
    rows = [(each.group, TYPES.get(each.type.lower(), each.type), each.protocol_type) for each in groups]
    width = max([WIDTH_MIN, *(len(cell) for row in rows for cell in row)])
    print(" ".join(f"{heading:<{width}}" for heading in HEADINGS))
    for row in rows:
        print("".join(f"{cell:<{width}} " for cell in row))
