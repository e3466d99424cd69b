"""Where groups are to go, as CSV: `topic,partition,offset`, with the group before it where there are several."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.kafka.groups.failures import failed
from barnabas.cli.kafka.tool import ToolUsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.cluster import TopicPartition

Plan = dict[str, dict["TopicPartition", int]]
"""Offsets by group and partition."""

_UNQUOTED_MAX: Final = 24
"""Longer texts are quoted without a look at what is in them."""
_SAFE_MIN: Final = "-"
"""What sorts before this may mean something in CSV."""
_RANGES: Final = {"int": 31, "long": 63}


class PlanError(ValueError):
    """A line that is no plan; what it says is what Kafka's tool says."""


class _Record(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int


def written(plan: Mapping[str, Mapping[TopicPartition, int]], *, group_count: int) -> str:
    """The lines of a plan; those for one group do not name it."""
    lines = []
    for group, offsets in plan.items():
        for (topic, partition), offset in offsets.items():
            names = [topic] if group_count == 1 else [group, topic]
            lines.append(",".join([*map(_quoted, names), str(partition), str(offset)]) + "\n")
    return "".join(lines)


def read(path: str, groups: Sequence[str]) -> Plan:
    """The plan in a file; ToolError for a file that holds none."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise failed(f"java.io.IOException: Unable to read file {path}", str(error)) from None
    lines = text.split("\n") if text else [""]
    while text and lines and not lines[-1]:
        lines.pop()
    names_groups = len(groups) != 1 or not _is_without_group(lines)
    plan: Plan = {}
    for number, line in enumerate(lines, 1):
        try:
            each = _record(line, names_groups=names_groups)
        except PlanError as error:
            form = "group,topic,partition,offset" if names_groups else "topic,partition,offset"
            raise failed(str(error), f"{path}, line {number}: it has to be {form}") from None
        if each.offset < 0:
            raise ToolUsageError("Invalid negative offset", hint=f"{path}, line {number}")
        plan.setdefault(each.group if names_groups else groups[0], {})[each.topic, each.partition] = each.offset
    return plan


def _is_without_group(lines: Sequence[str]) -> bool:
    """Whether the first line is one of a plan for one group."""
    try:
        if lines:
            _record(lines[0], names_groups=False)
    except PlanError:
        return False
    return bool(lines)


def _record(line: str, *, names_groups: bool) -> _Record:
    """One line. What is missing at its end is empty or 0."""
    if not line.strip():
        raise PlanError(
            "com.fasterxml.jackson.databind.exc.MismatchedInputException: No content to map due to end-of-input"
        )
    try:
        cells = next(csv.reader([line], strict=True))
    except csv.Error:
        raise PlanError("com.fasterxml.jackson.core.JsonParseException: Missing closing quote for value") from None
    names = ["topic", "partition", "offset"]
    if names_groups:
        names.insert(0, "group")
    given = dict(zip(names, cells, strict=False))
    partition = _number(given.get("partition", ""), "int")
    offset = _number(given.get("offset", ""), "long")
    if len(cells) > len(names):
        extra = cells[len(names)]
        raise PlanError(
            "com.fasterxml.jackson.dataformat.csv.CsvReadException: Too many entries: expected at most "
            f'{len(names)} (value #{len(names)} ({len(extra)} chars) "{extra}")'
        )
    return _Record(given.get("group", ""), given.get("topic", ""), partition, offset)


def _number(text: str, kind: str) -> int:
    text = text.strip()
    if not text:
        return 0
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise PlanError(
            f"com.fasterxml.jackson.databind.exc.InvalidFormatException: Cannot deserialize value of type `{kind}` "
            f'from String "{text}": not a valid `{kind}` value'
        )
    beyond = 1 << _RANGES[kind]
    if not -beyond <= int(text) < beyond:
        raise PlanError(
            f"com.fasterxml.jackson.databind.JsonMappingException: Numeric value ({text}) out of range of {kind} "
            f"({-beyond} - {beyond - 1})"
        )
    return int(text)


def _quoted(text: str) -> str:
    if text and len(text) <= _UNQUOTED_MAX and all(each >= _SAFE_MIN for each in text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
