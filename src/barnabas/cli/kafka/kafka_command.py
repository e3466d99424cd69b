"""`barnabas kafka NAME …`: any of Kafka's command-line tools; `install` and `home` put them where Kafka has them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from barnabas.cli.command_line import EXIT_OK, UsageError, nearest
from barnabas.cli.kafka.catalogue import ABSENT, TOOLS, canonical_name
from barnabas.cli.kafka.tool import ToolError, ending

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP_WORDS = ("-h", "--help", "help")
PLACES = {
    "install": ("scripts.install_command", "write all of them into a folder, under Kafka's names"),
    "home": ("scripts.home_command", "write a folder with bin/ and config/, as tutorials expect it"),
}
"""Not tools of Kafka's, but where these are found."""


def run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in HELP_WORDS:
        print(overview())
        return EXIT_OK
    if arguments[0] in PLACES:
        code: int = import_module(f"barnabas.cli.kafka.{PLACES[arguments[0]][0]}").run(arguments[1:])
        return code
    name = canonical_name(arguments[0])
    if name not in TOOLS and name not in ABSENT:
        raise UsageError(f"Kafka has no tool {arguments[0]!r}; {nearest(name, [*PLACES, *TOOLS, *ABSENT])}")
    return ending(name, lambda words: run_tool(name, words), arguments[1:])


def run_tool(name: str, words: list[str]) -> int:
    """Run one tool by its name in the catalogue."""
    if name in ABSENT:
        raise ToolError(f"{name}: Barnabas has no {ABSENT[name]} yet (`barnabas kafka` lists the tools that there are)")
    module, _, function = TOOLS[name].module.partition(":")
    code: int = getattr(import_module(f"barnabas.cli.kafka.{module}"), function or "run")(words)
    return code


def overview() -> str:
    width = max(map(len, [*TOOLS, *ABSENT]))
    return "\n".join(
        [
            "usage: barnabas kafka NAME [FLAGS]",
            "",
            "Kafka's own command-line tools, with their flags and their output.",
            "",
            *(f"  {name:<{width}}  {tool.summary}" for name, tool in sorted(TOOLS.items())),
            "",
            *(f"  {name:<{width}}  {summary}" for name, (_, summary) in PLACES.items()),
            "",
            f"Not there yet: {', '.join(sorted(ABSENT))}.",
            "",
            "`barnabas kafka NAME --help` explains one tool.",
        ]
    )
