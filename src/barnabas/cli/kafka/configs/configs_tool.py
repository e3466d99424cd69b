"""kafka-configs: describe and alter settings of topics, brokers, loggers, groups, client metrics; quotas; passwords."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import AskError, admin_at, patient_for, properties_at
from barnabas.cli.kafka.configs.entities import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENTS,
    DEFAULT_FLAGS,
    IPS,
    NAME_FLAGS,
    TYPES,
    USERS,
    WITH_DEFAULTS,
    Entities,
    entities_in,
)
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags, Given, read_int
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster

SUMMARY: Final = (
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics "
    "or group"
)
TIMEOUT_MS_MAX: Final = 30_000
"""How long a question may take, whatever else is said."""

FLAGS: Final = Flags(
    Flag(("bootstrap-server",), "The brokers to connect to, as host:port.", "server to connect to"),
    Flag(("bootstrap-controller",), "The controllers to connect to instead.", "controller to connect to"),
    Flag(("command-config",), "A file with properties for the admin client.", "command config property file"),
    Flag(("alter",), "Change settings."),
    Flag(("describe",), "Show settings that differ from what is built in."),
    Flag(("all",), "With --describe: all settings."),
    Flag(("entity-type",), f"What it is about: {', '.join(TYPES)}.", "String"),
    Flag(("entity-name",), "Its name.", "String"),
    Flag(("entity-default",), "The default of all clients, users, brokers or addresses."),
    Flag(
        ("add-config",),
        "Settings to change, as k1=v1,k2=[v1,v2]: brackets hold a value together that has commas.",
        "String",
    ),
    Flag(("add-config-file",), "A file of properties with settings to change.", "String"),
    Flag(("delete-config",), "Settings to take back, as k1,k2.", "String", separator=","),
    Flag(("topic",), "The topic's name.", "String"),
    Flag(("client",), "The client's id.", "String"),
    Flag(("client-defaults",), "The defaults of all clients."),
    Flag(("user",), "The user's name.", "String"),
    Flag(("user-defaults",), "The defaults of all users."),
    Flag(("broker",), "The broker's id.", "String"),
    Flag(("broker-defaults",), "The defaults of all brokers."),
    Flag(("broker-logger",), "The id of the broker whose loggers are meant.", "String"),
    Flag(("ip-defaults",), "The defaults of all addresses."),
    Flag(("ip",), "The address.", "String"),
    Flag(("group",), "The group's id.", "String"),
    Flag(("client-metrics",), "The name of a set of client metrics.", "String"),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    words = todays_words(words, BROKER_LIST)
    given = FLAGS.read(words)
    if given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    if not words:
        return print_help(SUMMARY, FLAGS.help_text())
    entities = check(given)
    try:
        _run(given, entities)
    except ToolUsageError:
        raise
    except ToolError as failure:
        reason = failure.message
        if isinstance(failure, AskError):
            reason = f"java.util.concurrent.ExecutionException: {failure.with_name}"
        raise ToolError(
            f"Error while executing config command with args '{' '.join(words)}'\n{reason}", hint=failure.hint
        ) from None
    return EXIT_OK


def _run(given: Given, entities: Entities) -> None:
    properties = _properties(given)
    limit_ms = properties.get("default.api.timeout.ms", "")
    if not limit_ms.isdecimal() or int(limit_ms) > TIMEOUT_MS_MAX:
        properties = patient_for(TIMEOUT_MS_MAX, properties)
    at_controllers = given.has("bootstrap-controller")
    bootstrap = given.required("bootstrap-controller" if at_controllers else "bootstrap-server")
    with admin_at(bootstrap, properties, at_controllers=at_controllers) as cluster:
        act(cluster, given, entities)


def _properties(given: Given) -> dict[str, str]:
    try:
        return properties_at(given.text("command-config"))
    except ToolError as failure:
        raise ToolError(f"java.nio.file.NoSuchFileException: {failure.message}", hint=failure.hint) from None


def act(cluster: Cluster, given: Given, entities: Entities) -> None:
    if given.has("alter"):
        from barnabas.cli.kafka.configs.altering import alter

        if len(entities.types) != len(entities.names):
            raise ToolUsageError("An entity name must be specified for every entity type")
        alter(cluster, given, entities)
    else:
        from barnabas.cli.kafka.configs.describing import describe

        describe(cluster, entities, shows_all=given.has("all"))


def check(given: Given) -> Entities:
    """What is meant; ToolUsageError for flags that do not go together."""
    if given.has("alter") == given.has("describe"):
        raise ToolUsageError("Command must include exactly one action: --describe, --alter")
    FLAGS.check_invalid(given, "describe", "add-config", "delete-config")
    entities = entities_in(given)
    types = entities.types
    repeated = [kind for at, kind in enumerate(types) if kind in types[:at]]
    if repeated:
        raise ToolUsageError(f"Duplicate entity type(s) specified: {','.join(repeated)}")
    if not given.has_any("bootstrap-server", "bootstrap-controller"):
        raise ToolUsageError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    for kind in types:
        if kind not in TYPES:
            raise ToolUsageError(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)} with a "
                "--bootstrap-server or --bootstrap-controller argument"
            )
    if not types:
        raise ToolUsageError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise ToolUsageError("Only 'users' and 'clients' entity types may be specified together")
    if given.has_any("entity-name", "entity-type", "entity-default") and given.has_any(*NAME_FLAGS, *DEFAULT_FLAGS):
        raise ToolUsageError(
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags"
        )
    if given.has("bootstrap-server") and given.has("bootstrap-controller"):
        raise ToolUsageError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    _check_names(given, entities)
    if given.has("describe"):
        _check_describe(given, entities)
    else:
        _check_alter(given, entities)
    return entities


def _check_names(given: Given, entities: Entities) -> None:
    kinds = ",".join(entities.types)
    if entities.has_name and {BROKERS, BROKER_LOGGERS} & set(entities.types):
        for text in _named(given, "entity-name", "broker", "broker-logger"):
            try:
                read_int(text)
            except ValueError:
                raise ToolUsageError(
                    f"The entity name for {kinds} must be a valid integer broker id, but it is: {text}"
                ) from None
    if entities.has_name and IPS in entities.types:
        for text in _named(given, "entity-name", "ip"):
            if not _is_address(text):
                raise ToolUsageError(
                    f"The entity name for {kinds} must be a valid IP or resolvable host, but it is: {text}"
                )


def _named(given: Given, *flags: str) -> list[str]:
    return [given.required(flag) for flag in flags if given.has(flag)]


def _is_address(text: str) -> bool:
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError):
        return False
    return True


def _check_describe(given: Given, entities: Entities) -> None:
    kinds = ",".join(entities.types)
    if not set(entities.types) & set(WITH_DEFAULTS) and given.has("entity-default"):
        raise ToolUsageError(f"--entity-default must not be specified with --describe of {kinds}")
    if BROKER_LOGGERS in entities.types and not entities.has_name:
        raise ToolUsageError(f"An entity name must be specified with --describe of {kinds}")


def _check_alter(given: Given, entities: Entities) -> None:
    if set(entities.types) & set(WITH_DEFAULTS):
        if not entities.has_name and not entities.has_default:
            raise ToolUsageError(
                "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
            )
    elif not entities.has_name:
        raise ToolUsageError(f"An entity name must be specified with --alter of {','.join(entities.types)}")
    if given.has("add-config") and given.has("add-config-file"):
        raise ToolUsageError("Only one of --add-config or --add-config-file must be specified")
    if not given.has_any("add-config", "add-config-file", "delete-config"):
        raise ToolUsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
