"""Values of a topic as typed columns, and back: JSON, CSV and Avro.

    rows = from_topic(frame, "user STRING, amount DOUBLE", malformed="mark")
    good = rows.where("malformed IS NULL").select("value.*")
    out = to_topic(good, key="user", topic="amounts")
    bad = dead_letters(rows, "amounts.dead")

Both directions are column expressions, so they mean the same in a batch and in a stream. Whatever can be known to be
wrong without looking at data is an ArgumentError when the function is called.
"""

from __future__ import annotations

from barnabas.spark.formats.format_arguments import ArgumentError
from barnabas.spark.formats.read_values import dead_letters, from_topic
from barnabas.spark.formats.write_values import to_topic

__all__ = ["ArgumentError", "dead_letters", "from_topic", "to_topic"]
