"""Avro values, many at a time: bytes into Arrow rows and back, by fastavro. No jar is needed.

`AvroDecoder` and `AvroEncoder` convert between a column of bytes and a column of structs. They have one schema, with
which every value was or will be written, and a value is the bare record. Support for a schema registry would go here
and nowhere else: the encoder would put the magic byte 0 and the four bytes of the schema id before what `encode`
returns, and the decoder would use them in `decode` to look up the schema that a value was written with.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas.spark.formats.avro_schema import Schema, map_record, struct_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column

_ARROW_OF: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    BinaryType: pa.binary(),
    StringType: pa.string(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
}

_REGISTRY_HEAD_BYTES = 5
"""What schema registries put before a value: the byte 0 and the schema id."""


class MalformedValueError(ValueError):
    """A value that is not a record of the schema; the message says why."""


class AvroDecoder:
    """Converts values to rows. It is pickled as its schema."""

    def __init__(self, schema: Schema, struct: StructType | None = None) -> None:
        """Rows have the Spark type of the schema, or `struct` if the schema was derived from it."""
        mapped = map_record(schema)
        self._made_of = (schema, struct)
        self._wire = fastavro.parse_schema(mapped.wire)
        self._convert = mapped.to_spark
        self.struct = struct if struct is not None else struct_of(schema)
        self._rows = arrow_type(self.struct)
        self._answer = pa.struct([("value", self._rows), ("malformed", pa.string())])

    def __reduce__(self) -> tuple[type[AvroDecoder], tuple[Schema, StructType | None]]:
        return AvroDecoder, self._made_of

    def decode(self, value: bytes) -> dict[str, Any]:
        """The record in a value, which must take up all of its bytes."""
        source = io.BytesIO(value)
        try:
            record = fastavro.schemaless_reader(source, self._wire, None)
        except UnicodeDecodeError as error:
            raise MalformedValueError(f"a string is not UTF-8{_framed(value)}") from error
        except (EOFError, IndexError) as error:
            # This may also be the index of a union branch or an enum symbol that does not exist.
            raise MalformedValueError(f"the value is truncated, or has another schema{_framed(value)}") from error
        if (end := source.tell()) < len(value):
            raise MalformedValueError(f"the record ends after {end} of {len(value)} bytes{_framed(value)}")
        assert isinstance(record, dict)
        return record if self._convert is None else self._convert(record)

    def decode_all(self, values: Iterable[bytes | None]) -> pa.StructArray:
        """Structs of `value` and `malformed`: the row, or why there is none. For a null value both are null."""
        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for value in values:
            row = reason = None
            if value is not None:
                try:
                    row = self.decode(value)
                except MalformedValueError as error:
                    reason = str(error)
            rows.append(row)
            reasons.append(reason)
        return pa.StructArray.from_arrays(
            [self._arrow(rows, reasons), pa.array(reasons, pa.string())], fields=list(self._answer)
        )

    def _arrow(self, rows: list[dict[str, Any] | None], reasons: list[str | None]) -> pa.Array:
        try:
            return pa.array(rows, self._rows)
        except (pa.ArrowException, OverflowError):
            # Avro can encode more than the type can hold, and Arrow does not tell which row it was.
            for at, row in enumerate(rows):
                if row is not None and (reason := self._misfit(row)) is not None:
                    rows[at], reasons[at] = None, reason
            return pa.array(rows, self._rows)

    def _misfit(self, row: dict[str, Any]) -> str | None:
        for field in self._rows:
            try:
                pa.array([row[field.name]], field.type)
            except (pa.ArrowException, OverflowError) as error:
                return f"field {field.name}: {error}"
        return None


class AvroEncoder:
    """Converts rows to values. It is pickled as its schema."""

    def __init__(self, schema: Schema) -> None:
        mapped = map_record(schema)
        self._schema = schema
        self._wire = fastavro.parse_schema(mapped.wire)
        self._convert = mapped.from_spark

    def __reduce__(self) -> tuple[type[AvroEncoder], tuple[Schema]]:
        return AvroEncoder, (self._schema,)

    def encode(self, row: dict[str, Any]) -> bytes:
        """A record as bytes; MisfitError names a field that does not fit the schema. The row is modified."""
        target = io.BytesIO()
        fastavro.schemaless_writer(target, self._wire, row if self._convert is None else self._convert(row))
        return target.getvalue()

    def encode_all(self, rows: pa.StructArray) -> pa.Array:
        """Values; null for a null row."""
        plain = rows.cast(_numbers_for(rows.type)).to_pylist()
        return pa.array([None if row is None else self.encode(row) for row in plain], pa.binary())


def decoded(column: Column, decoder: AvroDecoder) -> Column:
    """Bytes as structs of `value` and `malformed`."""

    def decode(values: pa.Array) -> pa.Array:
        return decoder.decode_all(values.to_pylist())

    answer = StructType([StructField("value", _nullable(decoder.struct)), StructField("malformed", StringType())])
    return _applied(decode, answer, column)


def encoded(column: Column, encoder: AvroEncoder) -> Column:
    """Structs as bytes."""

    def encode(rows: pa.Array) -> pa.Array:
        return encoder.encode_all(rows)

    return _applied(encode, BinaryType(), column)


def _applied(function: Callable[[pa.Array], pa.Array], returns: DataType, column: Column) -> Column:
    # Spark infers the kind of function from its annotations, which its type stub does not express.
    made: Column = arrow_udf(function, returns)(column)  # type: ignore[call-overload]
    return made


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of a Spark type that Avro supports. Everything in it is nullable."""
    match data_type:
        case StructType():
            return pa.struct([(field.name, arrow_type(field.dataType)) for field in data_type.fields])
        case ArrayType():
            return pa.list_(arrow_type(data_type.elementType))
        case MapType():
            return pa.map_(pa.string(), arrow_type(data_type.valueType))
        case DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
    return _ARROW_OF[type(data_type)]


def _nullable(data_type: DataType) -> DataType:
    """The Spark type that corresponds to `arrow_type`: the same one with everything nullable."""
    match data_type:
        case StructType():
            return StructType([StructField(field.name, _nullable(field.dataType)) for field in data_type])
        case ArrayType():
            return ArrayType(_nullable(data_type.elementType))
        case MapType():
            return MapType(data_type.keyType, _nullable(data_type.valueType))
    return data_type


def _numbers_for(kind: pa.DataType) -> pa.DataType:
    """The same type with dates and timestamps as plain numbers; Python's own types cover fewer years."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _numbers_for(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _numbers_for(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_numbers_for(kind.value_type))
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def _framed(value: bytes) -> str:
    """A hint at the most likely mistake."""
    if len(value) < _REGISTRY_HEAD_BYTES or value[0] != 0:
        return ""
    schema_id = int.from_bytes(value[1:_REGISTRY_HEAD_BYTES], "big")
    return f"; it begins like a value written with a schema registry, with the schema id {schema_id}"
