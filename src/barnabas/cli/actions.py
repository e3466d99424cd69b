"""Commands that have actions, such as `barnabas group list`: which there are, how one is found, and its help."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.command_line import EXIT_OK, EXIT_USAGE, Parser, UsageError, nearest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

HELP_FLAGS = ("-h", "--help")


class Action(NamedTuple):
    summary: str
    add_arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int]
    epilog: str | None = None


def run_action(command: str, actions: Mapping[str, Action], arguments: Sequence[str]) -> int:
    """Run the action that the first word names: its exit code."""
    if not arguments or arguments[0] in HELP_FLAGS:
        print(overview(command, actions), file=sys.stdout if arguments else sys.stderr)
        return EXIT_OK if arguments else EXIT_USAGE
    name, *rest = arguments
    if name not in actions:
        raise UsageError(f"unknown action {name!r} of `barnabas {command}`; {nearest(name, actions)}")
    return actions[name].run(action_parser(command, name, actions[name]).parse(rest))


def action_parser(command: str, name: str, action: Action) -> Parser:
    description = action.summary[0].upper() + action.summary[1:] + "."
    parser = Parser(f"barnabas {command} {name}", description, action.epilog)
    action.add_arguments(parser)
    return parser


def overview(command: str, actions: Mapping[str, Action]) -> str:
    width = max(map(len, actions))
    lines = [f"  {name:<{width}}  {action.summary}" for name, action in actions.items()]
    usage = f"usage: barnabas {command} ACTION [OPTIONS]"
    return "\n".join([usage, "", *lines, "", f"`barnabas {command} ACTION --help` explains one action."])


def add_no_arguments(_parser: Parser) -> None:
    """For an action that has no arguments of its own."""
