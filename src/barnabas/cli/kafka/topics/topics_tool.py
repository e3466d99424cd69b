"""kafka-topics: create, alter, delete, list and describe topics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, asking, properties_at
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags, Given
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import EXIT_FAILED, ToolError, ToolUsageError, print_help, print_version, warn
from barnabas.cli.kafka.topics.include_list import INTERNAL_TOPICS, IncludeList
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.admin.topics import NewTopic
    from barnabas.client.cluster import Cluster

SUMMARY: Final = "This tool helps to create, delete, describe, or change a topic."
ACTIONS: Final = ("alter", "create", "describe", "list", "delete")
REPORTS: Final = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
_SHORT_MAX: Final = (1 << 15) - 1
_FOR_CONFIGS: Final = " (To alter topic configurations, the kafka-configs tool can be used.)"

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "server to connect to"),
    Flag(("command-config",), "A file with properties for the admin client.", "command config property file"),
    Flag(("list",), "List the topics."),
    Flag(("create",), "Create a topic."),
    Flag(("delete",), "Delete topics."),
    Flag(("alter",), "Let topics have more partitions. (Settings are a matter of kafka-configs.)"),
    Flag(("describe",), "Show what topics are made of."),
    Flag(("topic",), "The topic; but for --create also a regular expression, or several between commas.", "topic"),
    Flag(("topic-id",), "The id of the topic to describe.", "topic-id"),
    Flag(("config",), "A setting of the topic that is created; may be given several times.", "name=value"),
    Flag(("delete-config",), "Without effect since Kafka 4.0.", "name"),
    Flag(
        ("partitions",),
        "How many partitions the topic gets. Keys may go to other partitions than before where that becomes more.",
        "# of partitions",
    ),
    Flag(("replication-factor",), "How many replicas each partition of the new topic gets.", "replication factor"),
    Flag(
        ("replica-assignment",),
        "The brokers of each partition.",
        "broker_id_for_part1_replica1 : broker_id_for_part1_replica2 , broker_id_for_part2_replica1 : …",
    ),
    Flag(("under-replicated-partitions",), "Describe only partitions with replicas that are not in sync."),
    Flag(("unavailable-partitions",), "Describe only partitions without a leader."),
    Flag(("under-min-isr-partitions",), "Describe only partitions with fewer in-sync replicas than configured."),
    Flag(("at-min-isr-partitions",), "Describe only partitions with just as many in-sync replicas as configured."),
    Flag(("topics-with-overrides",), "Describe only topics with settings of their own, without partitions."),
    Flag(("if-exists",), "With --alter, --delete or --describe: a topic that does not exist is no failure."),
    Flag(("if-not-exists",), "With --create: a topic that exists already is no failure."),
    Flag(("exclude-internal",), "With --list or --describe: leave out Kafka's own topics."),
    Flag(
        ("partition-size-limit-per-response",),
        "How many partitions the cluster describes at a time.",
        "maximum number of partitions per response",
    ),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    if not words:
        return print_help("Create, delete, describe, or change a topic.", FLAGS.help_text())
    given = FLAGS.read(todays_words(words, BROKER_LIST))
    if given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    check(given)
    properties = properties_at(given.text("command-config"))
    with admin_at(given.required("bootstrap-server"), properties) as cluster:
        try:
            act(cluster, given)
        except ToolError as failure:
            raise ToolError(
                f"Error while executing topic command : {failure.message}",
                EXIT_FAILED,
                is_error_output=False,
                hint=failure.hint,
            ) from None
    return EXIT_OK


def check(given: Given) -> None:
    """ToolError for flags that do not go together."""
    if sum(map(given.has, ACTIONS)) != 1:
        raise ToolUsageError(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    if given.has("delete-config"):
        warn(
            "delete-config option is no longer supported and deprecated since version 4.0. "
            "The config will be fully removed in future releases."
        )
    if not given.has("bootstrap-server"):
        raise ToolUsageError("--bootstrap-server must be specified")
    if given.has("describe") and given.has("if-exists"):
        if not given.has_any("topic", "topic-id"):
            raise ToolUsageError("--topic or --topic-id is required to describe a topic")
        if given.has("topic") and given.has("topic-id"):
            print(
                "Only topic id will be used when both --topic and --topic-id are specified "
                "and topicId is not Uuid.ZERO_UUID"
            )
    if not given.has_any("list", "describe"):
        FLAGS.check_required(given, "topic")
    if given.has("alter"):
        if given.has("config"):
            raise ToolUsageError(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]"'
                + _FOR_CONFIGS
            )
        FLAGS.check_required(given, "partitions")
    _check_actions(given)


def _check_actions(given: Given) -> None:
    """ToolError for a flag that belongs to another action."""
    FLAGS.check_invalid(given, "config", *_all_but("alter", "create"))
    FLAGS.check_invalid(given, "partitions", *_all_but("alter", "create"))
    FLAGS.check_invalid(given, "replication-factor", *_all_but("create"))
    FLAGS.check_invalid(given, "replica-assignment", *_all_but("alter", "create"))
    if given.has("create"):
        FLAGS.check_invalid(given, "replica-assignment", "partitions", "replication-factor")
    for report in REPORTS:
        FLAGS.check_invalid(given, report, *_all_but("describe"), "topics-with-overrides")
    FLAGS.check_invalid(given, "topics-with-overrides", *_all_but("describe"), *REPORTS)
    FLAGS.check_invalid(given, "if-exists", *_all_but("alter", "delete", "describe"))
    FLAGS.check_invalid(given, "if-not-exists", *_all_but("create"))
    FLAGS.check_invalid(given, "exclude-internal", *_all_but("list", "describe"))


def _all_but(*actions: str) -> list[str]:
    return [action for action in ACTIONS if action not in actions]


def act(cluster: Cluster, given: Given) -> None:
    if given.has("create"):
        create(cluster, given)
    elif given.has("alter"):
        alter(cluster, given)
    elif given.has("list"):
        print("\n".join(topics_meant(cluster, given)))
    elif given.has("describe"):
        from barnabas.cli.kafka.topics import describing

        describing.describe(cluster, given, topics_meant)
    else:
        delete(cluster, given)


def create(cluster: Cluster, given: Given) -> None:
    from barnabas.client.admin.topics import create_topics

    topic = topic_to_create(given)
    if "." in topic.name or "_" in topic.name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both.",
            flush=True,
        )
    partitions, replicas = given.integer("partitions"), given.integer("replication-factor")
    if replicas is not None and not 1 <= replicas <= _SHORT_MAX:
        raise ToolError(f"The replication factor must be between 1 and {_SHORT_MAX} inclusive")
    if partitions is not None and partitions < 1:
        raise ToolError("The partitions must be greater than 0")
    with asking("createTopics"):
        failure = create_topics(cluster, [topic])[topic.name]
        if failure is None:
            print(f"Created topic {topic.name}.")
        elif failure.error is not Error.TOPIC_ALREADY_EXISTS or not given.has("if-not-exists"):
            raise failure


def topic_to_create(given: Given) -> NewTopic:
    from barnabas.client.admin.topics import THE_CLUSTERS, NewTopic

    name = given.required("topic")
    partitions, replicas = given.integer("partitions"), given.integer("replication-factor")
    assignment = read_assignment(given.text("replica-assignment") or "")
    return NewTopic(
        name,
        THE_CLUSTERS if partitions is None else partitions,
        THE_CLUSTERS if replicas is None else replicas,
        assignment,
        read_configs(given.texts("config")),
    )


def alter(cluster: Cluster, given: Given) -> None:
    from barnabas.client.admin.topics import create_partitions, describe_topics

    count = given.integer("partitions")
    assert count is not None, "checked before"
    assignment = read_assignment(given.text("replica-assignment") or "")
    names = topics_meant(cluster, given)
    check_found(names, given)
    if not names:
        return
    added = {}
    if assignment:
        with asking("describeTopicPartitions"):
            for name, state in describe_topics(cluster, names).items():
                if isinstance(state, KafkaError):
                    raise state
                added[name] = assignment[len(state.partitions) :]
    with asking("createPartitions"):
        create_partitions(cluster, dict.fromkeys(names, count), added)


def delete(cluster: Cluster, given: Given) -> None:
    from barnabas.client.admin.topics import delete_topics

    names = topics_meant(cluster, given)
    check_found(names, given)
    if names:
        with asking("deleteTopics"):
            delete_topics(cluster, names)


def topics_meant(cluster: Cluster, given: Given) -> list[str]:
    """The names that `--topic` matches, or all, in their order."""
    from barnabas.client.admin.topics import list_topics

    text = given.text("topic")
    excludes_internal = given.has("exclude-internal")
    with asking("listTopics"):
        listed = list_topics(cluster)
    names = sorted(topic.name for topic in listed if not (excludes_internal and topic.is_internal))
    if excludes_internal:
        names = [name for name in names if name not in INTERNAL_TOPICS]
    if text is None:
        return names
    meant = IncludeList(text)
    return [name for name in names if meant.allows(name)]


def check_found(names: list[str], given: Given) -> None:
    topic = given.text("topic")
    if topic and not names and not given.has("if-exists"):
        raise ToolError(f"Topic '{topic}' does not exist as expected")


def read_assignment(text: str) -> list[list[int]]:
    """`1:2,2:3` is two partitions with two replicas each."""
    partitions: list[list[int]] = []
    for number, part in enumerate(text.split(",") if text else ()):
        replicas = [_broker_id(each.strip()) for each in part.split(":")]
        repeated = list(dict.fromkeys(each for each in replicas if replicas.count(each) > 1))
        if repeated:
            raise ToolError(
                f"Partition replica lists may not contain duplicate entries: {','.join(map(str, repeated))}"
            )
        partitions.append(replicas)
        if len(replicas) != len(partitions[0]):
            raise ToolError(f"Partition {number} has different replication factor: {replicas}")
    return partitions


def _broker_id(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ToolError(f'For input string: "{text}"') from None


def read_configs(texts: Sequence[str]) -> dict[str, str]:
    """`name=value` of each `--config`, looked at before anything is sent: the last of several counts."""
    if not texts:
        return {}
    # What is empty at the end does not count: `name=` has no value, and `name=value=` has one.
    pairs = [re.split(r"\s*=\s*", re.sub(r"(\s*=\s*)+$", "", text)) for text in texts]
    if any(len(pair) != 2 for pair in pairs):
        raise ToolError(
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
        )
    configs = {name.strip(): value.strip() for name, value in pairs}
    _check_configs(configs)
    return configs


def _check_configs(configs: dict[str, str]) -> None:
    from barnabas.config.topic_config import validate_topic_overrides
    from barnabas.config.values import ConfigError

    # Whether topics may have remote storage is for the cluster to say.
    ours = {name: value for name, value in configs.items() if name != "remote.storage.enable"}
    try:
        validate_topic_overrides(ours)
    except ConfigError as error:
        message, _, advice = str(error).partition("; ")
        raise ToolError(message, hint=advice) from None
