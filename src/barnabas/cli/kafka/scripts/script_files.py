"""The scripts by which a shell finds the tools under Kafka's names.

Each is three lines of shell that start this Python on one tool. What imports would cost is left out: a tool starts as
quickly as `barnabas` itself does.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.catalogue import ABSENT, SCRIPT_SUFFIX, TOOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

MARK: Final = "# One of Kafka's tools, as Barnabas has it"
"""By which a script is known to be ours. It is in the second line."""
MODE: Final = 0o755
_MARK_WITHIN_BYTES: Final = 256
_START: Final = "import sys; from barnabas.cli.main import main; sys.exit(main())"


def tool_names() -> list[str]:
    """All tools, those that are not there yet as well: their scripts say so."""
    return sorted({*TOOLS, *ABSENT})


def script_text(name: str, environment: Mapping[str, str] | None = None) -> str:
    """The script of one tool. `environment` has values for variables that are not set."""
    exports = "".join(
        f': "${{{variable}:={_quoted(value)}}}"; export {variable}\n' for variable, value in (environment or {}).items()
    )
    # -P: what lies in the current folder is not imported, whatever its name.
    command = [sys.executable, "-P", "-c", _START, "kafka", name]
    return f'#!/bin/sh\n{MARK}: `barnabas kafka {name}`.\n{exports}exec {shlex.join(command)} "$@"\n'


def _quoted(value: str) -> str:
    """As it has to stand between double quotes."""
    return re.sub(r'(["$`\\])', r"\\\1", value)


def is_ours(path: str) -> bool:
    """Whether a file is one of these scripts."""
    try:
        with open(path, "rb") as file:
            return MARK.encode() in file.read(_MARK_WITHIN_BYTES)
    except OSError:
        return False


def write_script(path: str, text: str) -> None:
    """Write it so that nobody ever runs half of it."""
    new = f"{path}.new-{os.getpid()}"
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(new, MODE)
    os.replace(new, path)


def script_names(name: str) -> tuple[str, str]:
    """What a tool's scripts are called: as packages of Kafka have them, and as its archive does."""
    return name, name + SCRIPT_SUFFIX
