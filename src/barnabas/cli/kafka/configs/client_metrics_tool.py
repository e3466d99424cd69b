"""kafka-client-metrics: say which metrics clients are to report of themselves, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, asking, properties_at
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags, Given, read_int
from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version
from barnabas.client.admin.configs import CLIENT_METRICS, Resource, alter_configs, entries_of, list_resources

if TYPE_CHECKING:
    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.cluster import Cluster

SUMMARY: Final = "This tool helps to manipulate and describe client metrics configurations."
ACTIONS: Final = ("alter", "delete", "describe", "list")
SETTINGS: Final = {"interval": "interval.ms", "metrics": "metrics", "match": "match"}
"""Flags, and the settings that they are."""

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port. Required.", "server to connect to"),
    Flag(("command-config",), "A file with properties for the admin client.", "command config property file"),
    Flag(("alter",), "Set what is to be reported under a name."),
    Flag(("delete",), "Forget it."),
    Flag(("describe",), "Show it."),
    Flag(("list",), "List the names."),
    Flag(("name",), "The name.", "name"),
    Flag(("generate-name",), "With --alter: make up a name."),
    Flag(("interval",), "Every how many milliseconds; empty for the default.", "push interval"),
    Flag(
        ("match",),
        "Which clients, by client_id, client_instance_id, client_software_name, client_software_version, "
        "client_source_address, client_source_port.",
        "k1=v1,k2=v2",
        separator=",",
    ),
    Flag(("metrics",), "The metrics whose names begin with one of these.", "m1,m2", separator=","),
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
    properties = properties_at(given.text("command-config"))
    try:
        with admin_at(given.required("bootstrap-server"), properties) as cluster:
            act(cluster, given)
    except ToolError as failure:
        raise ToolError(
            f"Error while executing client metrics command : {failure.message}",
            is_error_output=False,
            hint=failure.hint,
        ) from None
    return EXIT_OK


def check(given: Given) -> None:
    """ToolUsageError for flags that do not go together."""
    if sum(map(given.has, ACTIONS)) != 1:
        raise ToolUsageError("Command must include exactly one action: --alter, --delete, --describe or --list.")
    if not given.has("bootstrap-server"):
        raise ToolUsageError("--bootstrap-server must be specified.")
    of_alter = ("generate-name", "interval", "match", "metrics")
    FLAGS.check_invalid(given, "delete", *of_alter)
    FLAGS.check_invalid(given, "describe", *of_alter)
    FLAGS.check_invalid(given, "list", "name", *of_alter)
    if given.has("alter"):
        if given.has("name") == given.has("generate-name"):
            raise ToolUsageError("One of --name or --generate-name must be specified with --alter.")
        _check_interval(given.text("interval") or "")
    if given.has("delete") and not given.has("name"):
        raise ToolUsageError("A client metrics resource name must be specified with --delete.")


def _check_interval(text: str) -> None:
    try:
        if text:
            read_int(text)
    except ValueError:
        raise ToolUsageError("Invalid interval value. Enter an integer, or leave empty to reset.") from None


def act(cluster: Cluster, given: Given) -> None:
    if given.has("alter"):
        alter(cluster, given)
    elif given.has("describe"):
        describe(cluster, given.text("name"))
    elif given.has("delete"):
        delete(cluster, given.required("name"))
    else:
        print("\n".join(_names(cluster)))


def alter(cluster: Cluster, given: Given) -> None:
    name = _new_name() if given.has("generate-name") else given.required("name")
    values = {setting: ",".join(given.texts(flag)) for flag, setting in SETTINGS.items() if given.has(flag)}
    with asking("incrementalAlterConfigs"):
        alter_configs(cluster, Resource(CLIENT_METRICS, name), {key: value or None for key, value in values.items()})
    print(f"Altered client metrics config for {name}.")


def _new_name() -> str:
    import secrets

    from barnabas.protocol import uuids
    from barnabas.protocol.uuids import Uuid

    while (name := uuids.to_text(Uuid(secrets.token_bytes(16)))).startswith("-"):
        pass
    return name


def describe(cluster: Cluster, name: str | None) -> None:
    names = _names(cluster)
    if name is not None and name not in names:
        print(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
        return
    for each in names if name is None else [name]:
        print(f"Client metrics configs for {each} are:")
        entries = {entry.name: entry for entry in _entries(cluster, each)}
        for setting in in_hash_order(entries, string_hash):
            print(f"  {setting}={entries[setting].value}")


def delete(cluster: Cluster, name: str) -> None:
    entries = _entries(cluster, name)
    with asking("incrementalAlterConfigs"):
        alter_configs(cluster, Resource(CLIENT_METRICS, name), dict.fromkeys(entry.name for entry in entries))
    print(f"Deleted client metrics config for {name}.")


def _names(cluster: Cluster) -> list[str]:
    with asking("listConfigResources"):
        return list_resources(cluster, CLIENT_METRICS)


def _entries(cluster: Cluster, name: str) -> list[ConfigEntry]:
    with asking("describeConfigs"):
        return entries_of(cluster, Resource(CLIENT_METRICS, name))
