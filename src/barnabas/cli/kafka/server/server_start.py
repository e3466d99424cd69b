"""kafka-server-start: runs a node with a file of settings, in the foreground or, with `-daemon`, behind the shell."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.cluster_access import parse_pairs
from barnabas.cli.kafka.flags import VERSION, Flag, Flags
from barnabas.cli.kafka.tool import ToolError, ToolUsageError, print_help, print_version

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE: Final = "USAGE: kafka-server-start [-daemon] server.properties [--override property=value]*"
DAEMON: Final = "-daemon"
OUTPUT_FILE: Final = "kafkaServer.out"
"""In `LOG_DIR`: what a node in the background prints."""

FLAGS: Final = Flags(
    Flag(("override",), "A setting that goes before the file's; may be given several times.", "property=value"),
    VERSION,
)


def run(words: list[str]) -> int:
    if not words:
        raise ToolUsageError(USAGE, is_error_output=False)
    in_background = words[0] == DAEMON
    file, *others = words[1:] if in_background else words
    if "--help" in words:
        return print_help(USAGE, FLAGS.help_text())
    if "--version" in words:
        return print_version()
    given = FLAGS.read(others)
    if given.others:
        raise ToolUsageError(f"Found non argument parameters: {','.join(given.others)}")
    overrides = [f"{name}={value}" for name, value in parse_pairs(given.texts("override")).items()]
    if in_background:
        return start_in_background(file, overrides)
    from barnabas.cli import start_command

    return start_command.run(["--config", file, *(word for each in overrides for word in ("--set", each))])


def start_in_background(file: str, overrides: Sequence[str]) -> int:
    """Start the node in a session of its own, which goes on when the shell ends."""
    folder = os.environ.get("LOG_DIR") or "logs"
    path = f"{folder}/{OUTPUT_FILE}"
    command = [sys.executable, "-P", "-m", "barnabas", "kafka", "kafka-server-start", file]
    command += [word for each in overrides for word in ("--override", each)]
    try:
        os.makedirs(folder, exist_ok=True)
        with open(path, "wb") as output:
            subprocess.Popen(  # noqa: S603 - this same program
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
    except OSError as error:
        raise ToolError(f"{error.filename or path}: {error.strerror}") from None
    print(f"(its log is {path})", file=sys.stderr)
    return EXIT_OK
