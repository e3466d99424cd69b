"""kafka-preferred-replica-election: what `kafka-leader-election --election-type preferred` does today.

Kafka removed it in 3.0. It is here as Kafka 2.8 had it, for tutorials that show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, properties_at
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags
from barnabas.cli.kafka.moves.elections import PREFERRED, elect, named, read_partitions, shown
from barnabas.cli.kafka.older_flags import todays_words
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version, warn

if TYPE_CHECKING:
    from barnabas.cli.kafka.moves.elections import Elections

SUMMARY: Final = "This tool lets the preferred replica of each partition lead it again, which balances the brokers."

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "host:port"),
    Flag(("admin.config",), "A file with properties for the admin client.", "config file"),
    Flag(
        ("path-to-json-file",),
        'Only the partitions in a file: {"partitions": [{"topic": "foo", "partition": 1}]}. All, without it.',
        "list of partitions",
    ),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words))
    if given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    if not given.has("bootstrap-server"):
        raise ToolUsageError("Exactly one of '[bootstrap-server]' or '[zookeeper]' must be provided")
    warn("This tool is deprecated. Please use kafka-leader-election tool. Tracking issue: KAFKA-8405")
    path = given.text("path-to-json-file")
    partitions = None if path is None else read_partitions(path, "Preferred replica election")
    with admin_at(given.required("bootstrap-server"), properties_at(given.text("admin.config"))) as cluster:
        _print(elect(cluster, PREFERRED, partitions))
    return EXIT_OK


def _print(elections: Elections) -> None:
    if elections.succeeded:
        print(f"Successfully completed preferred leader election for partitions {shown(elections.succeeded)}")
    if elections.not_needed:
        print(f"Preferred replica already elected for partitions {shown(elections.not_needed)}")
    for place, failure in elections.failed.items():
        print(f"Error completing preferred leader election for partition: {shown([place])}: {named(failure)}")
    if elections.failed:
        raise ToolError(f"{len(elections.failed)} preferred replica(s) could not be elected")
