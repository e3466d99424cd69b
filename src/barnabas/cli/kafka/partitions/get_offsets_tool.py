"""kafka-get-offsets: where partitions begin or end, or had come at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, asking_by_name, properties_at, said_of
from barnabas.cli.kafka.cluster_access import check_servers
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, FlagError, Flags, Given, read_long
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.partitions.partition_patterns import PartitionRule, read_partitions, read_rules
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version, warn
from barnabas.cli.kafka.topics.include_list import EVERY_TOPIC, IncludeList
from barnabas.client.offset_queries import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.cluster import Cluster, TopicPartition

SUMMARY: Final = "An interactive shell for getting topic-partition offsets."
CLIENT_ID: Final = "GetOffsetShell"
TIMES: Final = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}
"""Places that `--time` has names for."""
_NO_OFFSET: Final = -1
_SHOWN_TIMES: Final = " / ".join(f"{number} or {name}" for name, number in TIMES.items())

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "HOST1:PORT1,...,HOST3:PORT3"),
    Flag(("command-config",), "A file with properties for the admin client.", "config file"),
    Flag(
        ("topic-partitions",),
        "Which partitions of which topics. A topic is a regular expression and may be missing; after a colon come one "
        "partition, or the first and the one after the last.",
        "topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
    ),
    Flag(("topic",), "The topics, as a regular expression or several between commas; all without this.", "topic"),
    Flag(("partitions",), "The partitions of each topic; all without this.", "partition ids"),
    Flag(
        ("time",),
        "Where to look: at a time in milliseconds since 1970, for the first record that is not older, or at one of "
        "these places. A partition without such a record is left out. (default: latest)",
        f"<timestamp> / {_SHOWN_TIMES}",
        default="latest",
    ),
    Flag(("exclude-internal-topics",), "Leave out Kafka's own topics."),
    Flag(("offsets",), "Without effect: there is one offset for each place.", "count", is_hidden=True),
    Flag(("max-wait-ms",), "Without effect: settings say how long to wait.", "ms", is_hidden=True),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    if not words:
        return print_help(SUMMARY, FLAGS.help_text())
    try:
        given = FLAGS.read(todays_words(words, BROKER_LIST))
        if given.has("help"):
            return print_help(SUMMARY, FLAGS.help_text())
        if given.has("version"):
            return print_version()
        FLAGS.check_required(given, "bootstrap-server")
        check_servers(given.required("bootstrap-server"))
        print_offsets(given)
    except ToolError as failure:
        if isinstance(failure, ToolUsageError) and not isinstance(failure, FlagError):
            raise
        raise ToolError(f"Error occurred: {failure.message}", hint=failure.hint) from None
    return EXIT_OK


def print_offsets(given: Given) -> None:
    if given.has("topic-partitions") and given.has_any("topic", "partitions"):
        raise ToolError("--topic-partitions cannot be used with --topic or --partitions")
    time_ms = read_time(given.required("time"))
    rules = rules_of(given)
    properties = properties_at(given.text("command-config")) | {"client.id": CLIENT_ID}
    with admin_at(given.required("bootstrap-server"), properties) as cluster:
        partitions = partitions_meant(cluster, rules, excludes_internal=given.has("exclude-internal-topics"))
        if not partitions:
            raise ToolError("Could not match any topic-partitions with the specified filters")
        offsets = offsets_of(cluster, partitions, time_ms)
    for (topic, partition), offset in sorted(offsets.items(), key=lambda item: "{}-{}".format(*item[0])):
        print(f"{topic}:{partition}:{offset}")


def read_time(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    try:
        return read_long(text)
    except ValueError:
        raise ToolError(
            f"Malformed time argument {text}. Please use {_SHOWN_TIMES}, or a specified long format timestamp"
        ) from None


def rules_of(given: Given) -> list[PartitionRule]:
    together = given.text("topic-partitions")
    if together is not None:
        return read_rules(together)
    topic = given.text("topic")
    topics = IncludeList(EVERY_TOPIC if topic is None else topic)
    return [PartitionRule(topics, read_partitions(given.text("partitions") or ""))]


def partitions_meant(
    cluster: Cluster, rules: Sequence[PartitionRule], *, excludes_internal: bool
) -> list[TopicPartition]:
    from barnabas.client.admin.topics import describe_topics, list_topics

    with asking_by_name("listTopics"):
        listed = list_topics(cluster)
    names = [topic.name for topic in listed if not (excludes_internal and topic.is_internal)]
    names = [name for name in names if any(rule.topics.allows(name) for rule in rules)]
    with asking_by_name("describeTopics"):
        described = describe_topics(cluster, names)
        for state in described.values():
            if isinstance(state, KafkaError):
                raise state
    return [
        (state.name, each.partition)
        for state in described.values()
        if not isinstance(state, KafkaError)
        for each in state.partitions
        if any(rule.allows(state.name, each.partition) for rule in rules)
    ]


def offsets_of(cluster: Cluster, partitions: list[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
    """The offsets that there are, after a word about partitions that could not be asked."""
    from barnabas.client.admin.records import find_offsets

    found: dict[TopicPartition, int] = {}
    for (topic, partition), offset in find_offsets(cluster, partitions, time_ms).items():
        if isinstance(offset, KafkaError):
            reason = said_of(offset, "listOffsets").with_name
            warn(f"Skip getting offsets for topic-partition {topic}-{partition} due to error: {reason}")
        elif offset != _NO_OFFSET:
            found[topic, partition] = offset
    return found
