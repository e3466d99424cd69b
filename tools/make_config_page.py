"""Writes docs/configuration.md from the table of settings: `python -m tools.make_config_page [--check]`.

With `--check` nothing is written, and the exit code says whether the page is up to date.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from barnabas.config.settings import BROKER, GROUP, TOPIC, Setting
from barnabas.config.values import format_value

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

INTRODUCTION = """\
# Configuration

<!-- Made by tools/make_config_page.py from src/barnabas/config/settings.tsv: change the table, then `make docs`. -->

Names, types, defaults and valid values are those of Apache Kafka 4.3.1; names that begin with `barnabas.` are this
project's own, and their defaults change nothing. A broker setting comes from

- a properties file: `barnabas start --config server.properties`,
- the command line: `--set num.partitions=3`, which overrides the file,
- dynamic configuration: `kafka-configs --alter`, which is stored in the cluster's metadata, overrides both, and takes
  effect without a restart. The column *update* says whether that is possible: `cluster-wide`, for all brokers or for
  one; `per-broker`, for one broker only; `read-only`, not at all.

A topic's or group's own settings override the broker settings that they default to; the column *broker settings* lists
those in order of precedence. An unknown broker setting is ignored with a warning, an unknown topic setting is rejected;
both messages name the nearest valid one.
"""

NOT_ACTING = """\
## Known, but without effect in this version

These are accepted and described, so that a node starts with a properties file written for Apache Kafka. At the start, a
warning names those that the file sets.
"""


def main(arguments: list[str]) -> int:
    """The exit code: 1 where `--check` finds the page out of date."""
    page = render()
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
            return 0
        print(f"{PAGE.name} is out of date: run `make docs`", file=sys.stderr)
        return 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


def render() -> str:
    """The whole page."""
    return "\n".join(
        [
            INTRODUCTION,
            "## Broker\n",
            *_table("update", BROKER),
            "",
            "## Topic\n",
            *_table("broker settings", TOPIC),
            "",
            "## Group\n",
            *_table("broker settings", GROUP),
            "",
            NOT_ACTING,
            *_names("Broker", BROKER),
            *_names("Topic", TOPIC),
            *_names("Group", GROUP),
        ]
    )


def _table(last_column: str, settings: Mapping[str, Setting]) -> Iterator[str]:
    yield f"| setting | | type | default | valid | {last_column} |"
    yield "|---|---|---|---|---|---|"
    for setting in settings.values():
        if setting.acts:
            yield _row(setting)


def _row(setting: Setting) -> str:
    columns = (
        _code([setting.name]),
        setting.documentation,
        setting.type.name.lower(),
        _default(setting),
        _code([setting.valid]),
        _code(setting.synonyms) if setting.synonyms else setting.update_mode,
    )
    return "| " + " | ".join(columns) + " |"


def _default(setting: Setting) -> str:
    if setting.required:
        return "must be given"
    shown = format_value(setting.default)
    return "none" if shown is None else _code([shown]) or "empty"


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words if word)


def _names(title: str, settings: Mapping[str, Setting]) -> Iterator[str]:
    yield f"{title}: {_code(setting.name for setting in settings.values() if not setting.acts)}.\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
