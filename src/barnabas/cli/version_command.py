"""`barnabas version`: the version of Barnabas, and of the Python that it runs on."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

from barnabas.cli.command_line import EXIT_OK, Parser

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    Parser("barnabas version", "Print the version.").parse(arguments)
    print(f"barnabas {version('barnabas')} ({platform.python_implementation()} {platform.python_version()})")
    return EXIT_OK
