"""The command lines of those tools of Kafka that have subcommands, or say that an argument is required.

What is accepted is what argparse4j accepts, which is argparse in Java: so Python's does the work, and only what it says
about a mistake is put in the other's words.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, NoReturn

from barnabas.cli.kafka.tool import ToolUsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_REQUIRED = re.compile(r"the following arguments are required: ([^,]+).*")
_UNRECOGNIZED = re.compile(r"unrecognized arguments: (\S+).*")


class ToolParser(argparse.ArgumentParser):
    """An argument parser whose mistakes are ToolUsageErrors."""

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        options, unknown = self.parse_known_args(words)
        if unknown:
            self.error(f"unrecognized arguments: {unknown[0]}")
        return options

    def error(self, message: str) -> NoReturn:
        message = _REQUIRED.sub(r"argument \1 is required", message)
        message = _UNRECOGNIZED.sub(r"unrecognized arguments: '\1'", message)
        raise ToolUsageError(f"{self.prog}: error: {message}")
