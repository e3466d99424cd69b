"""The shell as one types into it: with history, and names completed by the tabulator."""

from __future__ import annotations

import readline
import shlex
import shutil
import sys
from typing import Final

from barnabas.cli.kafka.files.metadata_shell.commands import COMMANDS, ExitRequestedError, Shell, run_command
from barnabas.cli.kafka.files.metadata_shell.paths import resolved
from barnabas.cli.kafka.files.metadata_shell.tree import Folder

PROMPT: Final = ">> "


def run_at_terminal(shell: Shell) -> None:
    """Until `exit` or the end of the input."""
    print("[ Kafka Metadata Shell ]")
    readline.set_auto_history(True)
    readline.set_completer_delims(" \t")
    readline.set_completer(_Completer(shell).complete)
    readline.parse_and_bind("tab: complete")
    while True:
        shell.screen_width = shutil.get_terminal_size().columns
        try:
            line = input(PROMPT)
        except KeyboardInterrupt:
            print("^C")
            continue
        except EOFError:
            return
        if line.strip():
            shell.history.append(line.strip())
        try:
            for text in run_command(shell, _words(line)):
                print(text)
        except KeyboardInterrupt:
            print("^C")
        except ExitRequestedError:
            return
        sys.stdout.flush()


def _words(line: str) -> list[str]:
    """Quotes keep blanks together; one that is never closed is a character like others."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


class _Completer:
    """What readline asks when somebody presses the tabulator."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._found: list[str] = []

    def complete(self, text: str, number: int) -> str | None:
        if number == 0:
            self._found = self._completions(text)
        return self._found[number] if number < len(self._found) else None

    def _completions(self, text: str) -> list[str]:
        words = readline.get_line_buffer()[: readline.get_begidx()].split()
        if not words or words == ["man"]:
            return [f"{name} " for name in COMMANDS if name.startswith(text)]
        before, slash, beginning = text.rpartition("/")
        found: list[str] = []
        for place in resolved(self._shell.root, self._shell.working_folder, before + slash or "."):
            if isinstance(place.node, Folder):
                for name in place.node.names:
                    if name.startswith(beginning):
                        end = "/" if isinstance(place.node.child(name), Folder) else " "
                        found.append(f"{before}{slash}{name}{end}")
        return found
