"""`barnabas version`: which Barnabas this is, and what it runs on."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

from barnabas.cli.errors import EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(prog="barnabas version", description="Print the version.").parse_args(arguments)
    print(f"barnabas {version('barnabas')} ({platform.python_implementation()} {platform.python_version()})")
    return EXIT_OK
