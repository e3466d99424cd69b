"""The `barnabas` command line: finds the subcommand, imports only its module, and turns failures into exit codes.

Each subcommand is a module with `run(arguments) -> exit code` and an argument parser of its own. Only the one that runs
is imported, which keeps `barnabas start` quick: a node does not pay for the tables and clients of other commands.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.command_line import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandError,
    UsageError,
    drop_output,
    reopen_closed_streams,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Command(NamedTuple):
    module: str
    summary: str


COMMANDS = {
    "start": Command("barnabas.cli.start_command", "run a node in the foreground"),
    "status": Command("barnabas.cli.local.status_command", "show the nodes that run on this machine"),
    "stop": Command("barnabas.cli.local.stop_command", "stop nodes of this machine, by their data folders"),
    "format": Command("barnabas.cli.formatting.format_command", "prepare the folders of a node of a cluster"),
    "random-uuid": Command("barnabas.cli.formatting.random_uuid_command", "print an id for a cluster or a directory"),
    "doctor": Command("barnabas.cli.doctor_command", "inspect data folders without changing them"),
    "top": Command("barnabas.cli.top.top_command", "show live what nodes do, from their metrics"),
    "watch": Command("barnabas.cli.watch.watch_command", "measure from outside how well a cluster serves"),
    "cluster": Command("barnabas.cli.cluster_command", "show the nodes of a cluster and how far behind they are"),
    "topic": Command("barnabas.cli.topic_command", "list, create, describe, alter and delete topics"),
    "group": Command("barnabas.cli.groups.group_command", "show how far groups lag, and set where they go on"),
    "config": Command("barnabas.cli.configs.config_command", "show and change settings while the cluster runs"),
    "transactions": Command(
        "barnabas.cli.transactions.transactions_command", "show open transactions, and end those that hang"
    ),
    "produce": Command("barnabas.cli.data.produce_command", "send lines, JSON or CSV to a topic"),
    "consume": Command("barnabas.cli.data.consume_command", "print the records of a topic, or search it"),
    "kafka": Command("barnabas.cli.kafka.kafka_command", "run any of Kafka's own command-line tools"),
    "test-broker": Command("barnabas.cli.test_kit.test_broker_command", "run a broker for tests in any language"),
    "simulate": Command("barnabas.cli.simulate_command", "check simulated clusters for violated guarantees"),
    "bench": Command("barnabas.cli.bench.bench_command", "put a load on a cluster, and draw how it goes"),
    "completion": Command("barnabas.cli.completion.completion_command", "complete commands in bash, zsh and fish"),
    "demo": Command("barnabas.cli.demo_command", "start a node and move a million records through it"),
    "version": Command("barnabas.cli.version_command", "print the version"),
}
HELP_WORDS = ("-h", "--help", "help")
VERSION_FLAGS = ("-V", "--version")


def main(argv: Sequence[str] | None = None) -> int:
    reopen_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    return exit_code_of(lambda: run_command(words))


def exit_code_of(command: Callable[[], int]) -> int:
    """Runs a command. What fails becomes one line, and an exit code."""
    try:
        code = command()
        sys.stdout.flush()
    except CommandError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) has seen enough.
        drop_output()
        return EXIT_OK
    return code


def run_command(arguments: list[str]) -> int:
    if not arguments:
        print(overview(), file=sys.stderr)
        return EXIT_USAGE
    name, *rest = arguments
    if name in HELP_WORDS:
        if not rest:
            print(overview())
            return EXIT_OK
        name, rest = rest[0], ["--help"]
    if name in VERSION_FLAGS:
        name = "version"
    command = COMMANDS.get(name)
    if command is None:
        from barnabas.cli.command_line import nearest

        raise UsageError(f"unknown command {name!r}; {nearest(name, COMMANDS)}")
    code: int = import_module(command.module).run(rest)
    return code


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: barnabas COMMAND [OPTIONS]",
            "",
            "Apache Kafka's protocol and file formats, in Python.",
            "",
            *lines,
            "",
            "`barnabas COMMAND --help` explains one command.",
        ]
    )
