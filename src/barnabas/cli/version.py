"""`barnabas version`: which Barnabas this is, and what it runs on."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

from barnabas.cli.arguments import Parser
from barnabas.cli.errors import EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    Parser("barnabas version", "Print the version.").parse(arguments)
    print(f"barnabas {version('barnabas')} ({platform.python_implementation()} {platform.python_version()})")
    return EXIT_OK
