"""Asking before something is changed that cannot be changed back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from barnabas.cli.command_line import CommandError, UsageError

if TYPE_CHECKING:
    import argparse

    from barnabas.cli.command_line import Parser

YES = ("y", "yes")


class DeclinedError(CommandError):
    """Somebody was asked, and said no."""


def add_confirmation(parser: Parser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do it without asking")


def check_confirmation(options: argparse.Namespace) -> None:
    """UsageError where nobody could be asked, before anything is printed that is for programs."""
    if options.json and not options.yes and not getattr(options, "dry_run", False):
        raise UsageError("with --json nobody is asked: add --yes")


def confirm(question: str, options: argparse.Namespace) -> None:
    """Returns if the answer is yes, or was given with --yes; fails otherwise."""
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("nothing was changed: there is no terminal to ask at, and no --yes")
    sys.stdout.flush()
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise
    if not answer:
        print(file=sys.stderr)
    if answer.strip().lower() not in YES:
        raise DeclinedError("nothing was changed")
