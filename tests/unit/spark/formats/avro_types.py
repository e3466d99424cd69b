"""Avro types that tests write and read."""

from __future__ import annotations

from typing import Any

DATE = {"type": "int", "logicalType": "date"}
TIMESTAMP_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
TIMESTAMP_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL_MICROS = {"type": "long", "logicalType": "local-timestamp-micros"}
LOCAL_MILLIS = {"type": "long", "logicalType": "local-timestamp-millis"}
UUID_TEXT = {"type": "string", "logicalType": "uuid"}
UUID_FIXED = {"type": "fixed", "name": "id", "size": 16, "logicalType": "uuid"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
PRICE_FIXED = {"type": "fixed", "name": "price", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}
COLOUR = {"type": "enum", "name": "colour", "symbols": ["RED", "GREEN"]}
HASH = {"type": "fixed", "name": "hash", "size": 4}
POINT = {
    "type": "record",
    "name": "point",
    "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "double"}],
}


def record(*types: Any, **named: Any) -> dict[str, Any]:
    fields = {f"f{at}": one for at, one in enumerate(types)} | named
    return {"type": "record", "name": "row", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
