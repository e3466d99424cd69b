"""What the last word of a command line may become: commands, actions, options, their values, and what a cluster has."""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.actions import action_parser
from barnabas.cli.command_line import DEFAULT_BOOTSTRAP_SERVER, CommandError
from barnabas.cli.main import COMMANDS
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.cli.command_line import Parser
    from barnabas.client.cluster import Cluster

FILES: Final = ":files"
"""Stands for whatever files there are, which shells know better."""
FILE_NAMES: Final = ("FILE", "DIR")
SERVER: Final = "--bootstrap-server"
PATIENCE_MS: Final = 2_000


class Candidate(NamedTuple):
    word: str
    summary: str = ""


def candidates(words: Sequence[str]) -> list[Candidate]:
    """What the last of these words may become; the others are those before it, without `barnabas`."""
    if not words:
        return []
    *before, partial = words
    return [each for each in _all(before, partial) if each.word.startswith(partial) or each.word == FILES]


def _all(before: Sequence[str], partial: str) -> Iterable[Candidate]:
    if not before:
        return [Candidate(name, command.summary) for name, command in COMMANDS.items()]
    command = before[0]
    if command == "kafka":
        return _kafka_words(before[1:])
    if command not in COMMANDS:
        return []
    module = import_module(COMMANDS[command].module)
    actions = getattr(module, "ACTIONS", None)
    if actions is None:
        build = getattr(module, "build_parser", None)
        return [] if build is None else _of_parser(build(), before[1:], partial)
    if len(before) == 1:
        return [Candidate(name, action.summary) for name, action in actions.items()]
    if before[1] not in actions:
        return []
    return _of_parser(action_parser(command, before[1], actions[before[1]]), before[2:], partial)


def _kafka_words(before: Sequence[str]) -> Iterable[Candidate]:
    from barnabas.cli.kafka.catalogue import TOOLS, canonical_name

    if not before:
        return [Candidate(name, tool.summary) for name, tool in TOOLS.items()]
    tool = TOOLS.get(canonical_name(before[0]))
    if tool is None:
        return []
    flags = getattr(import_module(f"barnabas.cli.kafka.{tool.module.partition(':')[0]}"), "FLAGS", None)
    shown = () if flags is None else (flag for flag in flags.all if not flag.is_hidden)
    return [Candidate(f"--{flag.name}", flag.help) for flag in shown]


def _of_parser(parser: Parser, before: Sequence[str], partial: str) -> Iterable[Candidate]:
    # argparse has no other way to ask for its options.
    options = {name: action for action in parser._actions for name in action.option_strings}  # noqa: SLF001
    arguments = [action for action in parser._actions if not action.option_strings]  # noqa: SLF001
    given, last = _arguments_given(before, options)
    if last is not None:
        return _values(last, given, before)
    if partial.startswith("-"):
        return [
            Candidate(name, (action.help or "").partition(";")[0])
            for name, action in options.items()
            if name.startswith("--")
        ]
    if not arguments:
        return []
    return _values(arguments[min(len(given), len(arguments) - 1)], given, before)


def _arguments_given(
    before: Sequence[str], options: dict[str, argparse.Action]
) -> tuple[list[str], argparse.Action | None]:
    """The words that belong to no option, and the option that the next word is the value of."""
    given = []
    waiting: argparse.Action | None = None
    for word in before:
        if waiting is not None:
            waiting = None
        elif word.startswith("-"):
            option = options.get(word)
            waiting = option if option is not None and option.nargs is None else None
        else:
            given.append(word)
    return given, waiting


def _values(action: argparse.Action, given: Sequence[str], before: Sequence[str]) -> Iterable[Candidate]:
    if action.choices is not None:
        return [Candidate(str(choice)) for choice in action.choices]
    name = str(action.metavar or "")
    if name.startswith(FILE_NAMES):
        return [Candidate(FILES)]
    look = {
        "TOPIC": _topics,
        "TOPIC[:N,…]": _topics,
        "GROUP": _groups,
        "TRANSACTIONAL-ID": _transactional_ids,
        "NAME": lambda cluster: _names(cluster, given[0]),
        "SETTING": lambda cluster: _settings(cluster, given),
        "SETTING=VALUE": lambda cluster: [f"{each}=" for each in _settings(cluster, given)],
    }.get(name)
    return [] if look is None else _from_cluster(look, before)


def _from_cluster(look: Callable[[Cluster], Iterable[str]], before: Sequence[str]) -> Iterator[Candidate]:
    """What the cluster has; nothing where it does not answer at once."""
    from barnabas.client.client_settings import ClientSettings, SettingsError
    from barnabas.client.cluster import Cluster

    server = DEFAULT_BOOTSTRAP_SERVER
    for option, value in itertools.pairwise(before):
        if option == SERVER:
            server = value
    options = {"bootstrap.servers": server, "default.api.timeout.ms": str(PATIENCE_MS)}
    options["socket.connection.setup.timeout.ms"] = str(PATIENCE_MS)
    try:
        with Cluster.connect(ClientSettings.from_options(options)) as cluster:
            found = sorted(look(cluster))
    except (SettingsError, KafkaError, CommandError):
        return
    yield from map(Candidate, found)


def _topics(cluster: Cluster) -> list[str]:
    from barnabas.client.admin.topics import list_topics

    return [each.name for each in list_topics(cluster)]


def _groups(cluster: Cluster) -> list[str]:
    from barnabas.client.admin.groups import list_groups

    return [each.group for each in list_groups(cluster)]


def _transactional_ids(cluster: Cluster) -> list[str]:
    from barnabas.client.admin.transactions import list_transactions

    return [each.transactional_id for each in list_transactions(cluster)]


def _names(cluster: Cluster, kind: str) -> list[str]:
    from barnabas.cli.configs.things import all_resources, shown

    return [shown(each).partition(" ")[2] for each in all_resources(cluster, kind)]


def _settings(cluster: Cluster, given: Sequence[str]) -> list[str]:
    from barnabas.cli.configs.things import resource_named
    from barnabas.client.admin.configs import entries_of

    return [each.name for each in entries_of(cluster, resource_named(cluster, given[0], given[1]))]
