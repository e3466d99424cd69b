"""Which columns rows may have that go into topics.

    key        string or binary      null: the record has no key
    value      string or binary      required; null: a tombstone
    headers    array<struct<key: string or binary, value: string or binary>>
    topic      string                where the option `topic` does not say it for all rows
    partition  int                   null: chosen by the key
    timestamp  timestamp             null: now

Types are known before any row is, so a column that cannot be written is an error on the driver, at once. Two more
columns are let through without meaning anything, `offset` and `timestampType`: what was read from a topic may be
written to another as it is.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY, VALUE, HEADERS, TOPIC, PARTITION, TIMESTAMP = "key", "value", "headers", "topic", "partition", "timestamp"
COLUMNS: Final = (KEY, VALUE, HEADERS, TOPIC, PARTITION, TIMESTAMP)
PASSED_OVER: Final = frozenset({"offset", "timestampType"})

_TEXT: Final = r"(?:string|varchar|char)(?:\(\d+\)| collate \w+)?"
_TEXT_OR_BYTES: Final = rf"(?:{_TEXT}|binary)"
_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    KEY: (_TEXT_OR_BYTES, "string or binary"),
    VALUE: (_TEXT_OR_BYTES, "string or binary"),
    HEADERS: (
        rf"array<struct<key:{_TEXT_OR_BYTES},value:{_TEXT_OR_BYTES}>>",
        "array<struct<key: string, value: binary>>",
    ),
    TOPIC: (_TEXT, "string"),
    PARTITION: ("int", "int"),
    TIMESTAMP: ("timestamp", "timestamp"),
}


class ColumnError(ValueError):
    """A column that is missing, unknown, of another type than can be written, or that holds what cannot be."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(column, problem)
        self.column = column
        self.problem = problem

    def __str__(self) -> str:
        return f"column {self.column} {self.problem}"


def check_columns(types: Mapping[str, str], *, topic: str | None) -> None:
    """Whether rows with these columns, by their types in Spark's words, can be written."""
    for name, given in types.items():
        if name in _TYPES:
            accepted, described = _TYPES[name]
            if re.fullmatch(accepted, given, re.IGNORECASE) is None:
                raise ColumnError(name, f"is of type {given}: the sink takes {described}; {_remedy(name, given)}")
        elif name not in PASSED_OVER:
            raise ColumnError(name, f"is not known to the sink{_nearest(name)}")
    if VALUE not in types:
        raise ColumnError(VALUE, f"is missing: it holds what is written; there are {', '.join(types) or 'no columns'}")
    if topic is None and TOPIC not in types:
        raise ColumnError(TOPIC, "is missing, and option topic does not say either where the rows go")


def _remedy(name: str, given: str) -> str:
    """How to make a column of a type what the sink takes."""
    if name == HEADERS:
        is_map = given.startswith("map<")
        return "make it of a map with map_entries(headers)" if is_map else "see array and struct in Spark's functions"
    if name in (KEY, VALUE) and given.startswith(("struct<", "map<", "array<")):
        return f"make JSON of it with to_json({name}), or have barnabas.spark.to_topic write all columns"
    return "cast it"


def _nearest(name: str) -> str:
    close = get_close_matches(name.lower(), COLUMNS, n=1)
    return f"; did you mean {close[0]}?" if close else f"; drop it, or put it into one of {', '.join(COLUMNS)}"
