"""`barnabas kafka install`: puts Kafka's tools on the PATH, under Kafka's names with and without `.sh`."""

from __future__ import annotations

import os
import shutil
import sysconfig
from typing import TYPE_CHECKING

from barnabas.cli.command_line import EXIT_OK, CommandError, Parser
from barnabas.cli.kafka.scripts.script_files import is_ours, script_names, script_text, tool_names, write_script

if TYPE_CHECKING:
    from collections.abc import Sequence

EPILOG = """examples:
  barnabas kafka install               beside `barnabas` itself
  barnabas kafka install ~/.local/bin
  barnabas kafka install --remove

Where Apache Kafka's own tools are on the PATH, nothing is written unless --hide-kafka is given.
"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser("barnabas kafka install", "Write Kafka's tools into a folder, under Kafka's names.", EPILOG)
    parser.add_argument("folder", nargs="?", metavar="DIR", help="(default: where `barnabas` is)")
    parser.add_argument("--hide-kafka", action="store_true", help="write them even if Apache Kafka's are on the PATH")
    parser.add_argument("--remove", action="store_true", help="remove what was written there before")
    options = parser.parse(arguments)
    folder = os.path.abspath(os.path.expanduser(options.folder or sysconfig.get_path("scripts")))
    try:
        if options.remove:
            print(f"{remove(folder)} scripts removed from {folder}")
            return EXIT_OK
        if not options.hide_kafka:
            refuse_to_hide(folder)
        count = install(folder)
    except OSError as error:
        raise CommandError(f"{error.filename or folder}: {error.strerror}") from None
    print(f"{count} tools are in {folder}, each with and without .sh{advice(folder)}")
    return EXIT_OK


def refuse_to_hide(folder: str) -> None:
    """CommandError if the PATH leads to tools of that name that are not ours."""
    for name in tool_names():
        for script in script_names(name):
            found = shutil.which(script)
            if found is not None and os.path.dirname(os.path.abspath(found)) != folder and not is_ours(found):
                raise CommandError(
                    f"{found} is another {script}, which ours could hide: --hide-kafka writes them all the same, "
                    "`barnabas kafka NAME` runs them without"
                )


def install(folder: str) -> int:
    """Write all scripts; how many tools they are for. A file that is somebody else's stays, and is a CommandError."""
    os.makedirs(folder, exist_ok=True)
    names = tool_names()
    texts = {script: script_text(name) for name in names for script in script_names(name)}
    for script in texts:
        path = f"{folder}/{script}"
        if os.path.lexists(path) and not is_ours(path):
            raise CommandError(f"{path} is not from here, so it is left alone: use another folder, or remove it")
    for script, text in texts.items():
        write_script(f"{folder}/{script}", text)
    return len(names)


def remove(folder: str) -> int:
    """Remove what is ours; how many files that were."""
    ours = [path for name in os.listdir(folder) if is_ours(path := f"{folder}/{name}")]
    for path in ours:
        os.remove(path)
    return len(ours)


def is_on_path(folder: str) -> bool:
    return any(os.path.abspath(part) == folder for part in os.environ.get("PATH", "").split(os.pathsep) if part)


def advice(folder: str) -> str:
    return "" if is_on_path(folder) else f'; to type them by name alone: export PATH="{folder}:$PATH"'
