"""Which columns rows may have that are written to topics.

    key        string or binary      null: the record has no key
    value      string or binary      required; null: a tombstone
    headers    array<struct<key: string or binary, value: string or binary>>
    topic      string                if the option `topic` does not name one for all rows
    partition  int                   null: chosen by the key
    timestamp  timestamp             null: now

Types are known before any row is, so a column that cannot be written is an error on the driver, at once. Two more
columns are accepted and ignored, `offset` and `timestampType`, so that rows read from one topic can be written to
another as they are.
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
    """A column that is missing, unknown, of the wrong type, or holds a value that cannot be written."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(column, problem)
        self.column = column
        self.problem = problem

    def __str__(self) -> str:
        return f"column {self.column} {self.problem}"


def check_columns(types: Mapping[str, str], *, topic: str | None) -> None:
    """ColumnError if rows with these columns cannot be written. Types are given by their names in Spark."""
    for name, type_name in types.items():
        if name in _TYPES:
            accepted, described = _TYPES[name]
            if re.fullmatch(accepted, type_name, re.IGNORECASE) is None:
                raise ColumnError(
                    name, f"is of type {type_name}: the sink takes {described}; {_remedy(name, type_name)}"
                )
        elif name not in PASSED_OVER:
            raise ColumnError(name, f"is not known to the sink{_nearest(name)}")
    if VALUE not in types:
        raise ColumnError(VALUE, f"is missing: it holds what is written; the columns are {', '.join(types) or 'none'}")
    if topic is None and TOPIC not in types:
        raise ColumnError(TOPIC, "is missing, and so is option topic: one of them must say where the rows go")


def _remedy(name: str, type_name: str) -> str:
    """How to convert a column of this type to what the sink takes."""
    if name == HEADERS:
        is_map = type_name.startswith("map<")
        return "convert a map with map_entries(headers)" if is_map else "build it with Spark's array and struct"
    if name in (KEY, VALUE) and type_name.startswith(("struct<", "map<", "array<")):
        return f"convert it to JSON with to_json({name}), or use barnabas.spark.to_topic for all columns"
    return "cast it"


def _nearest(name: str) -> str:
    close = get_close_matches(name.lower(), COLUMNS, n=1)
    return f"; did you mean {close[0]}?" if close else f"; drop it, or put it into one of {', '.join(COLUMNS)}"
