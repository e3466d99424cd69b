"""kafka-reassign-partitions: move partitions to other brokers, and to other folders of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, properties_at
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, FlagError, Flags, Given
from barnabas.cli.kafka.moves.elections import read_text
from barnabas.cli.kafka.moves.failures import failed
from barnabas.cli.kafka.older_flags import todays_words
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster

SUMMARY: Final = "This tool helps to move topic partitions between replicas."
ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
PLAN: Final = "reassignment-json-file"
REQUIRED: Final = {
    "verify": (PLAN,),
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": (PLAN,),
    "cancel": (PLAN,),
    "list": (),
}
PERMITTED: Final = {
    "verify": ("bootstrap-server", "command-config", "preserve-throttles"),
    "generate": ("bootstrap-server", "broker-list", "command-config", "disable-rack-aware"),
    "execute": (
        "additional",
        "bootstrap-server",
        "command-config",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
    ),
    "cancel": ("bootstrap-server", "bootstrap-controller", "command-config", "preserve-throttles", "timeout"),
    "list": ("bootstrap-server", "bootstrap-controller", "command-config"),
}
NO_LIMIT: Final = "-1"
CLIENT_ID: Final = "reassign-partitions-tool"

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port.", "server to connect to", is_optional=True),
    Flag(
        ("bootstrap-controller",),
        "The controllers to connect to instead; for --cancel and --list.",
        "controller to connect to",
        is_optional=True,
    ),
    Flag(("command-config",), "A file with properties for the admin client.", "command config property file"),
    Flag(("generate",), "Make a plan, without carrying it out."),
    Flag(("execute",), "Carry out a plan."),
    Flag(("verify",), "Show how far a plan has come, and take back its throttles when it is done."),
    Flag(("cancel",), "Send back what is on its way."),
    Flag(("list",), "List all partitions that are on their way."),
    Flag(
        (PLAN,),
        'The file with the plan: {"version": 1, "partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2], '
        '"log_dirs": ["any", "/data/kafka"]}]}. log_dirs may be left out.',
        "path of the plan",
    ),
    Flag(
        ("topics-to-move-json-file",),
        'With --generate: the file with the topics: {"version": 1, "topics": [{"topic": "foo"}]}.',
        "path of the topics",
    ),
    Flag(("broker-list",), "With --generate: the ids of the brokers that the topics go to, as 0,1,2.", "broker list"),
    Flag(("disable-rack-aware",), "With --generate: pay no attention to the racks of brokers."),
    Flag(
        ("throttle",),
        "With --execute: how many bytes per second go from broker to broker at most. With --additional it changes for "
        "what is on its way.",
        "bytes/sec",
        default=NO_LIMIT,
    ),
    Flag(
        ("replica-alter-log-dirs-throttle",),
        "With --execute: how many bytes per second go from folder to folder of a broker at most.",
        "bytes/sec",
        default=NO_LIMIT,
    ),
    Flag(
        ("timeout",),
        "How many ms to wait until replicas are there that are to go to a folder, 10000 by default.",
        "ms",
        default="10000",
    ),
    Flag(("additional",), "With --execute: although other partitions are on their way."),
    Flag(("preserve-throttles",), "With --verify or --cancel: leave throttles as they are."),
    Flag(
        ("disallow-replication-factor-change",),
        "With --execute: refuse a plan that gives a partition more or fewer replicas than it has.",
    ),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words))
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    action = check(given)
    try:
        _run(given, action)
    except FlagError as failure:
        raise failed(failure.message) from None
    except ToolError as failure:
        if not failure.is_error_output:
            raise
        raise failed(failure.message, failure.hint) from None
    return EXIT_OK


def _run(given: Given, action: str) -> None:
    at_controllers = given.has("bootstrap-controller")
    bootstrap = given.text("bootstrap-controller" if at_controllers else "bootstrap-server")
    properties = {"client.id": CLIENT_ID} | properties_at(given.text("command-config"))
    if bootstrap is None:
        raise failed("null", hint="--bootstrap-server needs the addresses of brokers, as host:port")
    with admin_at(bootstrap, properties, at_controllers=at_controllers) as cluster:
        act(cluster, given, action)


def act(cluster: Cluster, given: Given, action: str) -> None:
    if action == "generate":
        from barnabas.cli.kafka.moves.generating import generate

        topics = read_text(given.required("topics-to-move-json-file"))
        generate(cluster, topics, given.required("broker-list"), minds_racks=not given.has("disable-rack-aware"))
    elif action == "execute":
        from barnabas.cli.kafka.moves.executing import Conditions, execute

        plan = read_text(given.required(PLAN))
        conditions = Conditions(
            broker_limit=_number(given, "throttle"),
            folder_limit=_number(given, "replica-alter-log-dirs-throttle"),
            timeout_ms=_number(given, "timeout"),
            is_additional=given.has("additional"),
            keeps_replication_factor=given.has("disallow-replication-factor-change"),
        )
        execute(cluster, plan, conditions)
    elif action == "verify":
        from barnabas.cli.kafka.moves.verifying import verify

        verify(cluster, read_text(given.required(PLAN)), keeps_limits=given.has("preserve-throttles"))
    elif action == "cancel":
        from barnabas.cli.kafka.moves.executing import cancel

        plan = read_text(given.required(PLAN))
        cancel(cluster, plan, timeout_ms=_number(given, "timeout"), keeps_limits=given.has("preserve-throttles"))
    else:
        from barnabas.cli.kafka.moves.executing import print_list

        print_list(cluster)


def check(given: Given) -> str:
    """What is to be done; ToolUsageError for flags that do not go together."""
    actions = [name for name in ACTIONS if given.has(name)]
    if len(actions) != 1:
        raise ToolUsageError(f"Command must include exactly one action: {', '.join(f'--{name}' for name in ACTIONS)}")
    (action,) = actions
    if given.has("bootstrap-server") and given.has("bootstrap-controller"):
        raise ToolUsageError("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not given.has_any("bootstrap-server", "bootstrap-controller"):
        raise ToolUsageError("Please specify either --bootstrap-server or --bootstrap-controller")
    FLAGS.check_required(given, *REQUIRED[action])
    for name in given.order:
        if name not in (action, *REQUIRED[action], *PERMITTED[action]):
            raise ToolUsageError(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


def _number(given: Given, name: str) -> int:
    number = given.long(name)
    assert number is not None, "it has a default"
    return number
