"""kafka-leader-election: elect the preferred leaders of partitions, or any leaders where all who may lead are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, properties_at
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, FlagError, Flags, Given
from barnabas.cli.kafka.moves.elections import PREFERRED, TIMEOUTS, UNCLEAN, elect, named, read_partitions, shown
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version

if TYPE_CHECKING:
    from barnabas.cli.kafka.moves.elections import Elections
    from barnabas.client.cluster import TopicPartition

SUMMARY: Final = "This tool attempts to elect a new leader for a set of topic partitions: the preferred one, or any."
TYPES: Final = {"PREFERRED": PREFERRED, "UNCLEAN": UNCLEAN}
SCOPES: Final = ("topic", "all-topic-partitions", "path-to-json-file")

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "host:port"),
    Flag(("command-config",), "A file with properties for the admin client.", "config file"),
    Flag(("admin.config",), "The same under its older name.", "config file"),
    Flag(
        ("election-type",),
        "PREFERRED lets the first of the replicas lead that should; UNCLEAN lets any replica lead where none that "
        "has all records is left, and what the others had alone is lost. Required.",
        "PREFERRED or UNCLEAN",
    ),
    Flag(("all-topic-partitions",), "Elect for every partition that needs it."),
    Flag(("topic",), "Elect for one partition of this topic.", "topic name"),
    Flag(("partition",), "The number of the partition. Required with --topic.", "partition id"),
    Flag(
        ("path-to-json-file",),
        'Elect for the partitions in a file: {"partitions": [{"topic": "foo", "partition": 1}]}.',
        "path to JSON file",
    ),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words, BROKER_LIST))
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    check(given)
    election_type = _type(given)
    partitions = _partitions(given)
    config = given.text("command-config")
    if given.has("admin.config"):
        print(
            "Option --admin.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
        config = given.text("admin.config")
    properties = TIMEOUTS | properties_at(config)
    with admin_at(given.required("bootstrap-server"), properties) as cluster:
        _print(elect(cluster, election_type, partitions), _name(election_type))
    return EXIT_OK


def check(given: Given) -> None:
    """ToolUsageError for flags that do not go together."""
    FLAGS.check_invalid(given, "admin.config", "command-config")
    missing = [name for name in ("bootstrap-server", "election-type") if not given.has(name)]
    if missing:
        raise ToolUsageError(f"Missing required option(s): {', '.join(missing)}")
    if sum(map(given.has, SCOPES)) != 1:
        raise ToolUsageError(f"One and only one of the following options is required: {', '.join(SCOPES)}")
    if given.has("topic") and not given.has("partition"):
        raise ToolUsageError("Missing required option(s): partition")
    if given.has("partition") and not given.has("topic"):
        raise ToolUsageError("Option partition is only allowed if topic is used")


def _type(given: Given) -> int:
    text = given.required("election-type")
    if text.upper() not in TYPES:
        raise FlagError(f"Cannot parse argument '{text}' of option election-type")
    return TYPES[text.upper()]


def _name(election_type: int) -> str:
    return next(name for name, each in TYPES.items() if each == election_type)


def _partitions(given: Given) -> list[TopicPartition] | None:
    path = given.text("path-to-json-file")
    if path is not None:
        return read_partitions(path, "Replica election")
    topic, partition = given.text("topic"), given.integer("partition")
    return None if topic is None or partition is None else [(topic, partition)]


def _print(elections: Elections, type_name: str) -> None:
    if elections.succeeded:
        print(f"Successfully completed leader election ({type_name}) for partitions {shown(elections.succeeded)}")
    if elections.not_needed:
        print(f"Valid replica already elected for partitions {shown(elections.not_needed)}")
    for place, failure in elections.failed.items():
        print(f"Error completing leader election ({type_name}) for partition: {shown([place])}: {named(failure)}")
    if elections.failed:
        raise ToolError(f"{len(elections.failed)} replica(s) could not be elected")
