"""From typed columns to the bytes of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)
from pyspark.sql.types import DataType, StructType

from barnabas.spark.formats.format_arguments import ArgumentError, check_choice, check_options, nearest
from barnabas.spark.formats.json_and_csv import csv_value, json_value, quoted
from barnabas.spark.formats.key_formats import KEY_FORMATS, write_key
from barnabas.spark.formats.read_values import FORMATS
from barnabas.spark.requirements import require_extra

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame


def to_topic(
    frame: DataFrame,
    *,
    key: str | Column | None = None,
    value: str | Column | Sequence[str] | None = None,
    format: str = "json",  # noqa: A002 (Spark's word for it)
    schema: str | Mapping[str, Any] | None = None,
    topic: str | Column | None = None,
    key_format: str = "string",
    headers: str | Column | None = None,
    partition: str | Column | None = None,
    timestamp: str | Column | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """A frame as the sink takes it: `value` and, if given, `key` as bytes, and the other columns that are given.

    `value` is a list of columns, or one struct column, which may be null for a tombstone; by default it is all columns
    that are not used for something else. `key`, `headers`, `partition` and `timestamp` are columns or expressions;
    `topic` is the name of a topic or an expression. `schema` is for Avro; by default it is derived from the columns.
    """
    check_choice("format", format, FORMATS)
    check_choice("key_format", key_format, KEY_FORMATS)
    if schema is not None and format != "avro":
        raise ArgumentError("schema", f"{format} has no schema but that of the columns; it is only for format='avro'")
    others = {"headers": headers, "partition": partition, "timestamp": timestamp}
    columns = []
    if key is not None:
        columns.append(write_key(*_column(frame, "key", key), key_format).alias("key"))
    taken = {given for given in (key, *others.values()) if isinstance(given, str)}
    record, struct = _record(frame, value, taken)
    if format == "json":
        columns.append(json_value(record, options).cast("binary").alias("value"))
    elif format == "csv":
        columns.append(csv_value(record, struct, options).cast("binary").alias("value"))
    else:
        columns.append(_avro_value(record, struct, schema, options).alias("value"))
    if topic is not None:
        columns.append((F.lit(topic) if isinstance(topic, str) else _column(frame, "topic", topic)[0]).alias("topic"))
    for name, given in others.items():
        if given is not None:
            columns.append(_column(frame, name, given)[0].alias(name))
    return frame.select(*columns)


def _column(frame: DataFrame, argument: str, given: str | Column) -> tuple[Column, DataType]:
    """A column of the frame, or an expression on its columns, and its type."""
    if isinstance(given, str):
        if given not in frame.columns:
            raise ArgumentError(argument, f"there is no column {given}; {nearest(given, frame.columns)}")
        return F.col(quoted(given)), frame.schema[given].dataType
    try:
        return given, frame.select(given).schema[0].dataType
    except AnalysisException as error:
        raise ArgumentError(argument, error.getMessage() or str(error)) from error


def _record(frame: DataFrame, value: str | Column | Sequence[str] | None, taken: set[str]) -> tuple[Column, StructType]:
    """What becomes the value, as a column of structs."""
    if isinstance(value, str | Column):
        column, data_type = _column(frame, "value", value)
        if not isinstance(data_type, StructType):
            hint = f"; for a record with just this field, use value=[{value!r}]" if isinstance(value, str) else ""
            problem = f"a single column must be a struct, not {data_type.simpleString()}{hint}"
            raise ArgumentError("value", problem)
        return column, data_type
    names = [name for name in frame.columns if name not in taken] if value is None else list(value)
    if not names:
        raise ArgumentError("value", "no column is left for it")
    struct = StructType()
    columns = []
    for name in names:
        column, data_type = _column(frame, "value", name)
        columns.append(column)
        struct.add(name, data_type)
    return F.struct(*columns), struct


def _avro_value(
    record: Column, struct: StructType, schema: str | Mapping[str, Any] | None, options: Mapping[str, object] | None
) -> Column:
    # Imported here, so that only users of Avro wait for it and need its library.
    require_extra(("fastavro",))
    from barnabas.spark.formats.avro import AvroEncoder, encoded
    from barnabas.spark.formats.avro_schema import AvroSchemaError, check_fits, schema_of, struct_of

    check_options(options, (), "Avro")
    try:
        if schema is None:
            return encoded(record, AvroEncoder(schema_of(struct)))
        wanted = struct_of(schema)
        check_fits(struct, wanted)
    except AvroSchemaError as error:
        raise ArgumentError("schema", str(error)) from error
    fields = F.struct(*(record[field.name].cast(field.dataType).alias(field.name) for field in wanted))
    return encoded(F.when(record.isNotNull(), fields), AvroEncoder(schema))
