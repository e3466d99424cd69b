"""Frames as the source makes them, without a topic behind."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

SOURCE = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def records(spark: SparkSession, *values: bytes | None, keys: Sequence[bytes | None] | None = None) -> DataFrame:
    """Records of partition 3 of the topic `sales`, from offset 100 on."""
    keys = keys if keys is not None else [b"k"] * len(values)
    rows = [
        (key, value, "sales", 3, 100 + at, NOON, 0, [("trace", b"1")] if at == 0 else None)
        for at, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return spark.createDataFrame(rows, SOURCE)


USER = {
    "type": "record",
    "name": "user",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "level", "type": {"type": "enum", "name": "level", "symbols": ["LOW", "HIGH"]}},
        {"name": "since", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ],
}
