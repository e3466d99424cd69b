"""`barnabas random-uuid`: an id for a cluster, or for the directory of a controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.command_line import EXIT_OK, Parser
from barnabas.node.format_folders import random_id
from barnabas.ports import SystemRandom
from barnabas.protocol import uuids

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    Parser("barnabas random-uuid", "Print a random id, for a cluster or for a controller's directory.").parse(arguments)
    print(uuids.to_text(random_id(SystemRandom())))
    return EXIT_OK
