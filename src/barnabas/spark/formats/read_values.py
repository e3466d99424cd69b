"""From the bytes of a topic to typed columns, and from malformed values to a topic of dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.errors import ParseException
from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from barnabas.spark.formats.format_arguments import ArgumentError, check_choice, check_columns, check_options
from barnabas.spark.formats.json_and_csv import Reading, csv_reading, json_reading
from barnabas.spark.formats.key_formats import KEY_FORMATS, read_key
from barnabas.spark.requirements import require_extra

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ValueSchema: TypeAlias = str | StructType | Mapping[str, Any]
"""DDL, a Spark type, or an Avro schema as JSON text or as the parsed JSON."""

FORMATS: Final = ("json", "csv", "avro")
MALFORMED: Final = ("fail", "null", "mark")
DEAD_LETTER_HEADER_PREFIX: Final = "barnabas.dead-letter."

_REASON: Final = "malformed"
_RAW_KEY: Final = "raw_key"
_RAW_VALUE: Final = "raw_value"
_PARSED: Final = "__parsed"
_ORIGIN: Final = ("topic", "partition", "offset")


def from_topic(
    frame: DataFrame,
    schema: ValueSchema,
    *,
    format: str = "json",  # noqa: A002 (Spark's word for it)
    malformed: str = "fail",
    key: str = "string",
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """A frame of `format("barnabas")` with `value` as a struct of the schema and the column `key`, if there is one, in
    the format `key`.

    A value that does not match the schema fails the query with its topic, partition and offset (`fail`), becomes null
    (`null`), or becomes null with the reason in the column `malformed` and the original bytes in `raw_key` and
    `raw_value` (`mark`). A field that is NOT NULL in the schema must be present. A null value, such as a tombstone in a
    compacted topic, is not malformed.

    `options` are those of Spark's JSON and CSV functions that apply to a single value.
    """
    check_choice("format", format, FORMATS)
    check_choice("malformed", malformed, MALFORMED)
    check_choice("key", key, KEY_FORMATS)
    _check_frame(frame, malformed)
    reading = _reading(schema, format, options)

    raw_key, raw_value, parsed = F.col("key"), F.col("value"), F.col(_PARSED)
    value = reading.value(parsed)
    reason = F.coalesce(reading.reason(raw_value, parsed), missing_field(value, reading.struct))
    columns = {"value": _typed(value, reason, malformed)}
    marks = {_REASON: reason, _RAW_VALUE: raw_value}
    if "key" in frame.columns:
        typed_key, key_reason = read_key(raw_key, key)
        columns["key"] = _typed(typed_key, key_reason, malformed)
        marks = {_REASON: F.coalesce(reason, key_reason), _RAW_KEY: raw_key, _RAW_VALUE: raw_value}
    if malformed == "mark":
        columns.update(marks)
    return frame.withColumn(_PARSED, reading.parse(raw_value)).withColumns(columns).drop(_PARSED)


def dead_letters(rows: DataFrame, topic: str | Column) -> DataFrame:
    """The malformed rows of `from_topic(…, malformed="mark")`, unchanged, with the reason in a header.

    The columns are those of the sink. Write them in a query of their own, or together with the good rows:
    `good.unionByName(bad, allowMissingColumns=True)`.
    """
    needed = (_REASON, _RAW_VALUE, *_ORIGIN)
    check_columns(rows.columns, needed, "which from_topic adds with malformed='mark'")
    headers = F.array(
        *(
            F.struct(
                F.lit(DEAD_LETTER_HEADER_PREFIX + name).alias("key"),
                F.col(column).cast("string").cast("binary").alias("value"),
            )
            for name, column in (("reason", _REASON), *zip(_ORIGIN, _ORIGIN, strict=True))
        )
    )
    if "headers" in rows.columns:
        headers = F.concat(F.coalesce(F.col("headers"), F.array()), headers)
    return rows.where(F.col(_REASON).isNotNull()).select(
        (F.col(_RAW_KEY) if _RAW_KEY in rows.columns else F.lit(None).cast("binary")).alias("key"),
        F.col(_RAW_VALUE).alias("value"),
        headers.alias("headers"),
        (F.lit(topic) if isinstance(topic, str) else topic).alias("topic"),
    )


def _check_frame(frame: DataFrame, malformed: str) -> None:
    check_columns(frame.columns, ("value",), "which every frame of the source has")
    if malformed != "null":
        check_columns(frame.columns, _ORIGIN, f"which malformed={malformed!r} needs to say where a value came from")
    added = (_PARSED, _REASON, _RAW_KEY, _RAW_VALUE) if malformed == "mark" else (_PARSED,)
    for name in added:
        if name in frame.columns:
            raise ArgumentError("frame", f"it already has a column {name}, which from_topic adds: rename it")
    for name in ("key", "value"):
        if name in frame.columns and not isinstance(data_type := frame.schema[name].dataType, BinaryType):
            problem = f"column {name} is {data_type.simpleString()}, but in a frame of the source it is binary"
            raise ArgumentError("frame", problem)


def _typed(value: Column, reason: Column, malformed: str) -> Column:
    if malformed != "fail":
        return F.when(reason.isNull(), value)
    where = [part for name in _ORIGIN for part in (F.lit(f"{name} "), F.col(name).cast("string"), F.lit(", "))][:-1]
    return F.when(reason.isNotNull(), F.raise_error(F.concat(*where, F.lit(": "), reason))).otherwise(value)


def _reading(schema: ValueSchema, value_format: str, options: Mapping[str, object] | None) -> Reading:
    if value_format == "avro":
        return _avro_reading(schema, options)
    if isinstance(schema, Mapping):
        raise ArgumentError("schema", f"a mapping is an Avro schema; for {value_format}, give DDL or a StructType")
    return (json_reading if value_format == "json" else csv_reading)(_struct(schema), options)


def _struct(schema: str | StructType) -> StructType:
    """A Spark schema, which must have fields."""
    try:
        struct = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    except ParseException as error:
        raise ArgumentError("schema", f"{schema!r} does not parse: {error.getMessage()}") from error
    if not isinstance(struct, StructType) or not struct.fields:
        raise ArgumentError("schema", f"{schema!r} has no fields; expected is DDL such as 'id BIGINT, name STRING'")
    for name in struct.names:
        if struct.names.count(name) > 1:
            raise ArgumentError("schema", f"field {name} occurs twice")
    return struct


def _avro_reading(schema: ValueSchema, options: Mapping[str, object] | None) -> Reading:
    # Imported here, so that only users of Avro wait for it and need its library.
    require_extra(("fastavro",))
    from barnabas.spark.formats.avro import AvroDecoder, decoded
    from barnabas.spark.formats.avro_schema import AvroSchemaError, schema_of

    check_options(options, (), "Avro")
    try:
        if isinstance(schema, Mapping) or (isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"')):
            decoder = AvroDecoder(schema)
        else:
            struct = _struct(schema)
            decoder = AvroDecoder(schema_of(struct), struct)
    except AvroSchemaError as error:
        raise ArgumentError("schema", str(error)) from error
    return Reading(
        decoder.struct,
        lambda raw: decoded(raw, decoder),
        lambda parsed: parsed["value"],
        lambda _, parsed: parsed["malformed"],
    )


def missing_field(value: Column, struct: StructType) -> Column:
    """Says which NOT NULL field of a struct is missing; null if none is. Spark's own parsers ignore NOT NULL."""
    return F.coalesce(*_gaps(value, struct, ""), F.lit(None).cast("string"))


def _gaps(column: Column, data_type: DataType, path: str) -> list[Column]:
    """For each field or element that must not be null: what to say if it is."""
    match data_type:
        case StructType():
            gaps = []
            for field in data_type:
                inner = f"{path}.{field.name}" if path else field.name
                if not field.nullable:
                    gaps.append(_say(column.isNotNull() & column[field.name].isNull(), inner))
                gaps.extend(_gaps(column[field.name], field.dataType, inner))
            return gaps
        case ArrayType():
            return _element_gaps(column, data_type.elementType, f"{path}[]", nullable=data_type.containsNull)
        case MapType():
            values = F.map_values(column)
            return _element_gaps(values, data_type.valueType, f"{path}{{}}", nullable=data_type.valueContainsNull)
    return []


def _element_gaps(elements: Column, data_type: DataType, path: str, *, nullable: bool) -> list[Column]:
    gaps = [] if nullable else [_say(F.exists(elements, lambda element: element.isNull()), path)]
    if _gaps(F.lit(None), data_type, path):
        found = F.transform(elements, lambda element: F.coalesce(*_gaps(element, data_type, path)))
        gaps.append(F.get(F.filter(found, lambda gap: gap.isNotNull()), F.lit(0)))
    return gaps


def _say(is_gap: Column, path: str) -> Column:
    return F.when(is_gap, f"field {path} is missing or null")
