"""Avro schemas and Spark types: how each maps to the other.

A given schema is walked once and becomes a `Mapped`: the type in Spark, the schema that fastavro reads and writes with,
and the conversion of a value between the two. Logical types are removed from fastavro's schema and converted here,
where a value that does not fit is an error; a library that rounds or wraps it would hide that it is malformed. Unknown
logical types are ignored, as Avro's specification requires: the underlying type remains.

In the other direction, a schema is derived from columns. In it every field is nullable, whatever Spark says about its
columns: that a column cannot be null is a finding of the optimizer, which may come and go with the query, and must not
change the bytes in a topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

import fastavro
from fastavro.schema import SchemaParseException, UnknownType
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

Schema: TypeAlias = Any
"""An Avro schema as parsed JSON: a name, a list (a union) or an object."""
Convert: TypeAlias = Callable[[Any], Any]

DECIMAL_PRECISION_MAX: Final = 38
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXACT: Final = Context(prec=2 * DECIMAL_PRECISION_MAX)

_PRIMITIVES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_AVRO_OF: Final[dict[type[DataType], Schema]] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "bytes",
    StringType: "string",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_WIDER: Final[dict[type[DataType], tuple[type[DataType], ...]]] = {
    ByteType: (ShortType, IntegerType, LongType, FloatType, DoubleType),
    ShortType: (IntegerType, LongType, FloatType, DoubleType),
    IntegerType: (LongType, DoubleType),
    FloatType: (DoubleType,),
}
"""For each Spark type, those that can hold all of its values."""


class AvroSchemaError(ValueError):
    """A schema that is not Avro or has no counterpart in Spark; the message names the field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"field {self.field}: {self.problem}" if self.field else self.problem


class MisfitError(ValueError):
    """A row that does not fit a schema; the message names the field."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """One type: in Spark, on the wire, and how a value is converted from one to the other (None: unchanged).

    A timestamp or a date is a number on Spark's side too, which Arrow accepts and returns. Values to be written are
    also checked here: fastavro would write false for a null boolean.
    """

    data_type: DataType
    wire: Schema
    to_spark: Convert | None = None
    from_spark: Convert | None = None


def parse(schema: str | Mapping[str, Any]) -> Schema:
    """A schema from JSON text or from parsed JSON, checked by the rules of Avro."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except json.JSONDecodeError as error:
            raise AvroSchemaError("", f"the Avro schema is not JSON: {error}") from error
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise AvroSchemaError("", 'the Avro schema must be a record: {"type": "record", "name": …, "fields": …}')
    try:
        return fastavro.parse_schema(dict(schema))
    except UnknownType as error:
        raise AvroSchemaError("", f"the Avro schema names a type that it does not define: {error.name}") from error
    except (SchemaParseException, TypeError, KeyError, AttributeError) as error:
        raise AvroSchemaError("", f"the Avro schema does not parse: {error}") from error


def map_record(schema: Schema) -> Mapped:
    """How a schema maps to Spark. It may be the result of `parse`, or anything that `parse` accepts."""
    parsed = parse(schema)
    return _Walk(parsed["__named_schemas"]).mapped(parsed, "")


def struct_of(schema: str | Mapping[str, Any]) -> StructType:
    """The Spark type of the records of a schema."""
    struct = map_record(schema).data_type
    assert isinstance(struct, StructType)
    return struct


def schema_of(struct: StructType, name: str = "value") -> dict[str, Any]:
    """The Avro schema of a frame's columns if none is given. Every field is nullable."""
    return _record_of(struct, name, "")


def check_fits(have: StructType, want: StructType) -> None:
    """AvroSchemaError unless columns match a schema by name, and each type can be widened without loss."""
    for field in want:
        if field.name not in have.names:
            raise AvroSchemaError(field.name, f"there is no such column; the columns are {', '.join(have.names)}")
        _check_widens(have[field.name].dataType, field.dataType, field.name)
    for name in have.names:
        if name not in want.names:
            raise AvroSchemaError(name, "the schema has no such field: leave the column out of the value")


def _check_widens(have: DataType, want: DataType, path: str) -> None:
    match have, want:
        case StructType(), StructType() if have.names == want.names:
            for inner, wanted in zip(have, want, strict=True):
                _check_widens(inner.dataType, wanted.dataType, f"{path}.{inner.name}")
        case ArrayType(), ArrayType():
            _check_widens(have.elementType, want.elementType, f"{path}[]")
        case MapType(), MapType() if have.keyType == want.keyType:
            _check_widens(have.valueType, want.valueType, f"{path}{{}}")
        case DecimalType(), DecimalType() if (
            have.scale <= want.scale and have.precision - have.scale <= want.precision - want.scale
        ):
            pass
        case _ if have != want and not isinstance(want, _WIDER.get(type(have), ())):
            said = f"the column is {have.simpleString()}, but the schema has {want.simpleString()}"
            raise AvroSchemaError(path, f"{said}: cast it, with nested fields in the order of the schema")


class _Walk:
    """Walks a schema from its root; keeps track of the named types, and of those that it is inside of."""

    def __init__(self, named: Mapping[str, Schema]) -> None:
        self._named = named
        self._open: list[str] = []
        self._written: set[str] = set()

    def mapped(self, schema: Schema, path: str) -> Mapped:
        if isinstance(schema, list):
            problem = f"{_say(schema)} is a union of several types; a Spark column has one type, and may be null"
            raise AvroSchemaError(path, problem)
        if isinstance(schema, str):
            return Mapped(_PRIMITIVES[schema], schema) if schema in _PRIMITIVES else self._by_name(schema, path)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind == "array":
            return self._array(schema, path)
        if kind == "map":
            return self._map(schema, path)
        if kind in ("enum", "fixed"):
            if kind == "fixed" and not (isinstance(schema["size"], int) and schema["size"] > 0):
                raise AvroSchemaError(path, f"the size of a fixed must be 1 byte or more, not {schema['size']}")
            wire = self._definition(schema, {key: schema[key] for key in ("symbols", "size") if key in schema})
            base = _enum(schema, wire) if kind == "enum" else _fixed(schema, wire)
        elif isinstance(kind, str) and kind in _PRIMITIVES:
            wire, base = kind, Mapped(_PRIMITIVES[kind], kind)
        else:
            return self._by_name(kind, path)
        return _logical(schema, wire, path) or base

    def _by_name(self, name: str, path: str) -> Mapped:
        if name == "null":
            raise AvroSchemaError(path, "it is always null and has no type in Spark: leave it out")
        if name in self._open:
            raise AvroSchemaError(path, f"{name} contains itself, which Spark's types cannot do")
        return self.mapped(self._named[name], path)

    def _record(self, schema: Schema, path: str) -> Mapped:
        if not schema["fields"]:
            raise AvroSchemaError(path, f"the record {schema['name']} has no fields")
        self._open.append(schema["name"])
        struct, wires = StructType(), []
        to_spark, from_spark = [], []
        required = []
        for field in schema["fields"]:
            name = field["name"]
            inner = f"{path}.{name}" if path else name
            if name in struct.names:
                raise AvroSchemaError(inner, "it occurs twice")
            mapped, nullable = self._nullable(field["type"], inner)
            struct.add(StructField(name, mapped.data_type, nullable))
            wires.append({"name": name, "type": mapped.wire})
            if mapped.to_spark is not None:
                to_spark.append((name, mapped.to_spark))
            if mapped.from_spark is not None:
                from_spark.append((name, mapped.from_spark))
            if not nullable:
                required.append(name)
        self._open.pop()
        wire = self._definition(schema, {"fields": wires})
        return Mapped(struct, wire, _in_record(to_spark), _to_record(from_spark, required, path))

    def _array(self, schema: Schema, path: str) -> Mapped:
        items, nullable = self._nullable(schema["items"], f"{path}[]")
        wire = {"type": "array", "items": items.wire}
        from_spark = _in_list(items.from_spark) if nullable else _in_full_list(items.from_spark)
        return Mapped(ArrayType(items.data_type, nullable), wire, _in_list(items.to_spark), from_spark)

    def _map(self, schema: Schema, path: str) -> Mapped:
        values, nullable = self._nullable(schema["values"], f"{path}{{}}")
        wire = {"type": "map", "values": values.wire}
        to_spark = _in_list(values.to_spark)
        from_spark = _in_list(values.from_spark) if nullable else _in_full_list(values.from_spark)

        # Arrow's maps are lists of pairs.
        def to_pairs(value: dict[str, Any]) -> list[tuple[str, Any]]:
            return list(zip(value, to_spark(value.values()) if to_spark else value.values(), strict=True))

        def from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            values = [value for _, value in pairs]
            return dict(zip((key for key, _ in pairs), from_spark(values) if from_spark else values, strict=True))

        return Mapped(MapType(StringType(), values.data_type, nullable), wire, to_pairs, from_pairs)

    def _nullable(self, schema: Schema, path: str) -> tuple[Mapped, bool]:
        """A type, and whether a union makes it nullable."""
        if not isinstance(schema, list):
            return self.mapped(schema, path), False
        branches = ["null" if branch == {"type": "null"} else branch for branch in schema]
        types = [branch for branch in branches if branch != "null"]
        mapped = self.mapped(types[0] if len(types) == 1 else (types or "null"), path)
        wire = [branch if branch == "null" else mapped.wire for branch in branches]
        return Mapped(mapped.data_type, wire, mapped.to_spark, mapped.from_spark), "null" in branches

    def _definition(self, schema: Schema, content: dict[str, Any]) -> Schema:
        """A named type is defined where it first occurs, and referred to by its name after that."""
        name = schema["name"]
        if name in self._written:
            return name
        self._written.add(name)
        return {"type": schema["type"], "name": name, **content}


def _logical(schema: Schema, wire: Schema, path: str) -> Mapped | None:
    """None if there is no logical type, or none that is known for the underlying type."""
    kind = schema["type"]
    match schema.get("logicalType"), kind:
        case "date", "int":
            return Mapped(DateType(), wire)
        case "timestamp-micros", "long":
            return Mapped(TimestampType(), wire)
        case "timestamp-millis", "long":
            return Mapped(TimestampType(), wire, _to_micros, _to_millis)
        case "local-timestamp-micros", "long":
            return Mapped(TimestampNTZType(), wire)
        case "local-timestamp-millis", "long":
            return Mapped(TimestampNTZType(), wire, _to_micros, _to_millis)
        case "uuid", "string":
            return Mapped(StringType(), wire)
        case "uuid", "fixed" if schema["size"] == 16:
            return Mapped(StringType(), wire, lambda value: str(UUID(bytes=value)), lambda text: UUID(text).bytes)
        case "decimal", "bytes" | "fixed":
            return _decimal(schema, wire, path)
    return None


def _enum(schema: Schema, wire: Schema) -> Mapped:
    def check(symbol: str) -> str:
        if symbol not in schema["symbols"]:
            raise ValueError(f"{symbol!r} is not one of {', '.join(schema['symbols'])}")
        return symbol

    return Mapped(StringType(), wire, None, check)


def _fixed(schema: Schema, wire: Schema) -> Mapped:
    def check(data: bytes) -> bytes:
        if len(data) != schema["size"]:
            raise ValueError(f"it has {len(data)} bytes instead of {schema['size']}")
        return data

    return Mapped(BinaryType(), wire, None, check)


def _to_micros(millis: int) -> int:
    return millis * 1000


def _to_millis(micros: int) -> int:
    return micros // 1000


def _decimal(schema: Schema, wire: Schema, path: str) -> Mapped:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not 1 <= precision <= DECIMAL_PRECISION_MAX:
        raise AvroSchemaError(path, f"a decimal in Spark has 1 to {DECIMAL_PRECISION_MAX} digits, not {precision}")

    def to_spark(data: bytes) -> Decimal:
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)

    def from_spark(value: Decimal) -> bytes:
        unscaled = int(value.scaleb(scale, _EXACT))
        size_bytes = schema["size"] if schema["type"] == "fixed" else unscaled.bit_length() // 8 + 1
        return unscaled.to_bytes(size_bytes, "big", signed=True)

    return Mapped(DecimalType(precision, scale), wire, to_spark, from_spark)


def _in_record(converts: list[tuple[str, Convert]]) -> Convert | None:
    if not converts:
        return None

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        # In place: the record has just been created and has no other user.
        for name, one in converts:
            if (value := record[name]) is not None:
                record[name] = one(value)
        return record

    return convert


def _to_record(converts: list[tuple[str, Convert]], required: list[str], path: str) -> Convert | None:
    if not converts and not required:
        return None
    prefix = f"{path}." if path else ""

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        for name in required:
            if record[name] is None:
                raise MisfitError(f"field {prefix}{name} is null, but the schema does not allow null")
        for name, one in converts:
            if (value := record[name]) is not None:
                try:
                    record[name] = one(value)
                except MisfitError:
                    raise  # from a nested record, where the full path is known
                except (ValueError, OverflowError) as error:
                    raise MisfitError(f"field {prefix}{name}: {error}") from error
        return record

    return convert


def _in_full_list(one: Convert | None) -> Convert:
    def convert(values: list[Any]) -> list[Any]:
        if any(value is None for value in values):
            raise ValueError("an element is null, but the schema does not allow null")
        return values if one is None else [one(value) for value in values]

    return convert


def _in_list(one: Convert | None) -> Convert | None:
    if one is None:
        return None
    return lambda values: [None if value is None else one(value) for value in values]


def _record_of(struct: StructType, name: str, path: str) -> dict[str, Any]:
    if not struct.fields:
        raise AvroSchemaError(path, "there are no columns")
    fields = []
    for field in struct.fields:
        inner = f"{path}.{field.name}" if path else field.name
        if not _NAME.fullmatch(field.name):
            raise AvroSchemaError(inner, "an Avro name has letters, digits and _ only: rename the column with alias()")
        # A record is named after the path that leads to it, which makes its name unique.
        fields.append({"name": field.name, "type": ["null", _schema_of(field.dataType, f"{name}.{field.name}", inner)]})
    return {"type": "record", "name": name, "fields": fields}


def _schema_of(data_type: DataType, name: str, path: str) -> Schema:
    match data_type:
        case StructType():
            return _record_of(data_type, name, path)
        case ArrayType():
            return {"type": "array", "items": ["null", _schema_of(data_type.elementType, name, f"{path}[]")]}
        case MapType() if isinstance(data_type.keyType, StringType):
            return {"type": "map", "values": ["null", _schema_of(data_type.valueType, name, f"{path}{{}}")]}
        case MapType():
            raise AvroSchemaError(path, f"maps in Avro have string keys, not {data_type.keyType.simpleString()}")
        case DecimalType():
            scale = {"precision": data_type.precision, "scale": data_type.scale}
            return {"type": "bytes", "logicalType": "decimal", **scale}
    if (known := _AVRO_OF.get(type(data_type))) is None:
        raise AvroSchemaError(path, f"Avro has no type for {data_type.simpleString()}: cast it to one that it has")
    return known


def _say(schema: Schema) -> str:
    return json.dumps(schema, default=str)
