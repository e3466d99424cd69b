"""Properties for clients as several tools take them: from a file, and as `key=value` words that count more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.kafka.cluster_access import parse_pairs, read_properties_file

if TYPE_CHECKING:
    from barnabas.cli.kafka.flags import Given


def merged_properties(given: Given, file_flags: tuple[str, ...], property_flags: tuple[str, ...]) -> dict[str, str]:
    """Those of the file, under the words. Of flags that are names of one thing, one at most has been given."""
    properties: dict[str, str] = {}
    for name in file_flags:
        path = given.text(name)
        if path is not None:
            properties |= read_properties_file(path)
    for name in property_flags:
        properties |= parse_pairs(given.texts(name))
    return properties


def merge_flag(properties: dict[str, str], name: str, given: Given, flag: str) -> None:
    """A flag that has a property of its own: where the flag is given it counts, else what the properties say, else the
    flag's default."""
    value = given.text(flag) if given.has(flag) or name not in properties else properties[name]
    if value is not None:
        properties[name] = value
