"""What is to be changed: `--add-config`, `--add-config-file` and `--delete-config`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.cluster_access import read_properties_file
from barnabas.cli.kafka.java.java_order import in_hash_order, string_hash
from barnabas.cli.kafka.tool import ToolError, ToolUsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.kafka.flags import Given

_OUTSIDE_BRACKETS: Final = r"(?=[^\]]*(?:\[|$))"
_COMMA: Final = re.compile("," + _OUTSIDE_BRACKETS)
_EQUALS: Final = re.compile(r"\s*=\s*" + _OUTSIDE_BRACKETS)
_KEY: Final = re.compile(r"[$a-zA-Z0-9._-]*")


def added(given: Given) -> dict[str, str]:
    """Settings and their new values; ToolUsageError for what is none."""
    configs: dict[str, str] = {}
    path = given.text("add-config-file")
    if path is not None:
        try:
            configs = read_properties_file(path)
        except ToolError as failure:
            raise ToolError(f"java.nio.file.NoSuchFileException: {failure.message}", hint=failure.hint) from None
    text = given.text("add-config")
    if text is not None:
        configs |= read_pairs(text)
    for key in configs:
        if not _KEY.fullmatch(key):
            raise ToolUsageError(f"Invalid character found for config key: {key}")
    return {key: configs[key] for key in in_hash_order(configs, string_hash)}


def read_pairs(text: str) -> dict[str, str]:
    """`k1=v1,k2=[v1,v2]`."""
    parts = _COMMA.split(text)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    pairs = [_EQUALS.split(part) for part in parts]
    if any(len(pair) != 2 for pair in pairs):
        raise ToolUsageError(
            "requirement failed: Invalid entity config: all configs to be added must be in the format "
            '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
        )
    return {key.strip(): value.replace("[", "").replace("]", "").strip() for key, value in pairs}


def deleted(given: Given) -> list[str]:
    return [key.strip() for key in given.texts("delete-config")]


def as_changes(add: dict[str, str], delete: Iterable[str]) -> dict[str, str | None]:
    """New values, and None for what is taken back."""
    return {**dict.fromkeys(delete), **add}
