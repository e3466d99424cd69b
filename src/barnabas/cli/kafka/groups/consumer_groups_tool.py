"""kafka-consumer-groups: list, describe and delete groups of consumers, and set how far they have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, patient_for, properties_at
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, FlagError, Flags, Given
from barnabas.cli.kafka.groups.failures import failed
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version, warn

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster

SUMMARY: Final = (
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, "
    "or reset consumer group offsets."
)
ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCENARIOS: Final = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
TIMEOUT: Final = "30000"
INT32_MAX: Final = (1 << 31) - 1

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "server to connect to"),
    Flag(("command-config",), "A file with properties for the admin client.", "command config property file"),
    Flag(("list",), "List the groups."),
    Flag(("describe",), "Show how far groups have come and what they have still to read."),
    Flag(("delete",), "Delete groups that have no members."),
    Flag(("reset-offsets",), "Set how far groups without members have come. Needs one of the --to-… and a scope."),
    Flag(("delete-offsets",), "Forget how far a group has come in topics that it does not read."),
    Flag(("validate-regex",), "Whether an expression is one of RE2.", "regex"),
    Flag(("group",), "The group; may be given several times.", "consumer group"),
    Flag(("all-groups",), "All groups."),
    Flag(("topic",), "The topic, or some of its partitions as topic:0,1; may be given several times.", "topic"),
    Flag(("all-topics",), "All topics that the group has committed offsets for."),
    Flag(("members",), "With --describe: the members instead of the partitions."),
    Flag(("offsets",), "With --describe: the partitions, which is what is shown without this as well."),
    Flag(
        ("state",),
        "With --describe: the state instead of the partitions. With --list: the states too, or only groups in these.",
        "String",
        is_optional=True,
    ),
    Flag(
        ("type",), "With --list: the types too, or only groups of these: classic, consumer.", "String", is_optional=True
    ),
    Flag(("verbose",), "With --describe: more columns."),
    Flag(("timeout",), f"How long to wait for the cluster, {TIMEOUT} by default.", "timeout (ms)", default=TIMEOUT),
    Flag(("dry-run",), "With --reset-offsets: only show what would be set."),
    Flag(("execute",), "With --reset-offsets: do it."),
    Flag(("export",), "With --reset-offsets: show it as CSV, as --from-file reads it."),
    Flag(("to-offset",), "To this offset.", "offset"),
    Flag(("to-earliest",), "To the first record."),
    Flag(("to-latest",), "To the end."),
    Flag(("to-current",), "To where the group is; to the end where it is nowhere."),
    Flag(("to-datetime",), "To a time: YYYY-MM-DDTHH:mm:SS.sss, in UTC unless it says otherwise.", "datetime"),
    Flag(("by-duration",), "To so long ago: PnDTnHnMnS.", "duration"),
    Flag(("shift-by",), "So many further; back if it is negative.", "number-of-offsets"),
    Flag(("from-file",), "To the offsets in a CSV file.", "path to CSV file"),
    Flag(("new-consumer",), "Without effect: there is no other kind of consumer.", is_hidden=True),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words, BROKER_LIST))
    _check_available(given)
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    check(given)
    if given.has("validate-regex"):
        from barnabas.cli.kafka.groups.regex_check import validate_regex

        validate_regex(given.required("validate-regex"))
        return EXIT_OK
    try:
        properties = properties_at(given.text("command-config"))
    except ToolError as failure:
        raise failed(f"java.nio.file.NoSuchFileException: {failure.message}", failure.hint) from None
    try:
        patience = patient_for(int(_timeout(given)), properties)
        with admin_at(given.required("bootstrap-server"), patience) as cluster:
            act(cluster, given)
    except ToolError as failure:
        # What no check has found before is a failure of the command, and a number that is none is such.
        if failure.exit_code == EXIT_OK or (isinstance(failure, ToolUsageError) and not isinstance(failure, FlagError)):
            raise
        raise failed(failure.message, failure.hint) from None
    return EXIT_OK


def _timeout(given: Given) -> str:
    timeout_ms = given.long("timeout")
    assert timeout_ms is not None, "it has a default"
    return str(min(max(timeout_ms, 1), INT32_MAX))


def _check_available(given: Given) -> None:
    """ToolUsageError for flags that mean something only beside others, which are not there."""
    needed = {
        "members": ("describe",),
        "verbose": ("describe",),
        "offsets": ("describe",),
        "state": ("describe", "list"),
        "type": ("list",),
    }
    lonely = [name for name, others in needed.items() if given.has(name) and not given.has_any(*others)]
    if lonely and not given.has("help"):
        shown = ", ".join(lonely)
        raise ToolUsageError(f"Option(s) [{shown}] are unavailable given other options on the command line")


def check(given: Given) -> None:
    """ToolUsageError for flags that do not go together."""
    if not given.has("validate-regex"):
        FLAGS.check_required(given, "bootstrap-server")
    if given.has("describe"):
        _check_scope(given, "describe")
        views = [name for name in ("members", "offsets", "state") if given.has(name)]
        if len(views) > 1:
            raise ToolUsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if given.has_argument("state"):
            raise ToolUsageError("Option [describe] does not take a value for [state]")
    if given.has("delete"):
        _check_scope(given, "delete")
        if given.has("topic"):
            raise ToolUsageError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if given.has("delete-offsets") and not (given.has("group") and given.has("topic")):
        raise ToolUsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if given.has("reset-offsets"):
        _check_reset(given)
    FLAGS.check_invalid(given, "group", "all-groups", "list")
    FLAGS.check_invalid(given, "topic", "list", "describe")
    if sum(map(given.has, ACTIONS)) != 1:
        actions = ", ".join(f"--{name}" for name in ACTIONS)
        raise ToolUsageError(f"Command must include exactly one action: {actions}")


def _check_scope(given: Given, action: str) -> None:
    if not given.has_any("group", "all-groups"):
        raise ToolUsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")


def _check_reset(given: Given) -> None:
    if given.has("dry-run") and given.has("execute"):
        raise ToolUsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not given.has_any("dry-run", "execute"):
        warn(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will "
            "require either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if "
            "you are scripting this command and want to keep the current default behavior without prompting."
        )
    _check_scope(given, "reset-offsets")
    for scenario in SCENARIOS:
        FLAGS.check_invalid(given, scenario, *(other for other in SCENARIOS if other != scenario))


def act(cluster: Cluster, given: Given) -> None:
    if given.has("list"):
        from barnabas.cli.kafka.groups.listing import print_list

        print_list(cluster, given)
    elif given.has("describe"):
        from barnabas.cli.kafka.groups.describing import describe

        describe(cluster, given)
    elif given.has("delete"):
        from barnabas.cli.kafka.groups.deleting import delete

        delete(cluster, given)
    elif given.has("reset-offsets"):
        from barnabas.cli.kafka.groups.resetting import reset

        reset(cluster, given)
    else:
        from barnabas.cli.kafka.groups.deleting import delete_offsets

        delete_offsets(cluster, given)
