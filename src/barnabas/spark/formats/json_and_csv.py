"""JSON and CSV values by Spark's own functions, and stricter where these are too lenient.

Spark's `from_json` accepts an object and ignores whatever comes after it; `from_csv` accepts a quote that is never
closed, and both accept bytes that are not UTF-8. Here such a value is malformed, and the reason says what is wrong with
it. The reason is only computed for values that have turned out to be malformed, so good values do not pay for it.

Written values are read back unchanged: timestamps keep their microseconds; CSV keeps whitespace, distinguishes an empty
string from null, and doubles quotes inside quotes as in RFC 4180.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
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
    VarcharType,
)

from barnabas.spark.formats.format_arguments import ArgumentError, check_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_BOTH: Final = ("dateFormat", "timestampFormat", "timestampNTZFormat", "timeZone", "locale")
JSON_READ_OPTIONS: Final = (
    *_BOTH,
    "allowBackslashEscapingAnyCharacter",
    "allowComments",
    "allowNonNumericNumbers",
    "allowNumericLeadingZeros",
    "allowSingleQuotes",
    "allowUnquotedControlChars",
    "allowUnquotedFieldNames",
)
JSON_WRITE_OPTIONS: Final = (*_BOTH, "ignoreNullFields", "writeNonAsciiCharacterAsCodePoint")
_CSV_BOTH: Final = (
    *_BOTH,
    "charToEscapeQuoteEscaping",
    "emptyValue",
    "escape",
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
    "nullValue",
    "quote",
    "sep",
)
CSV_READ_OPTIONS: Final = (*_CSV_BOTH, "maxCharsPerColumn", "nanValue", "negativeInf", "positiveInf")
CSV_WRITE_OPTIONS: Final = (*_CSV_BOTH, "escapeQuotes", "quoteAll")

# Before standard time, zone offsets had seconds: XXXXX keeps them if they are not 0, XXX drops them.
_KEEP_MICROSECONDS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# The names around a JSON value while it is parsed, which the writer of a value cannot guess. They are the same in the
# whole process, so that the same call gives the same plan, and Spark finds what it has cached for it.
_AROUND: Final = secrets.token_hex(16)
_AFTER: Final = secrets.token_hex(16)
# NUL is never written. With it as nullValue, an empty field is null, but a quoted empty string is not.
_CSV_READ: Final = {"escape": '"', "nullValue": "\0"}
_CSV_WRITE: Final = {
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
    **_KEEP_MICROSECONDS,
}
_CSV_TYPES: Final = (
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    StringType,
    DateType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How bytes become structs, in steps, so that a value is parsed only once."""

    struct: StructType
    parse: Callable[[Column], Column]
    """From bytes."""
    value: Callable[[Column], Column]
    """From what was parsed."""
    reason: Callable[[Column, Column], Column]
    """From bytes and what was parsed: why the value is malformed; null if it is not."""


def json_reading(struct: StructType, options: Mapping[str, object] | None) -> Reading:
    given = check_options(options, JSON_READ_OPTIONS, "reading JSON")
    _check_no_lengths(struct)
    for path, data_type in _nested(struct, ""):
        if isinstance(data_type, MapType) and not isinstance(data_type.keyType, StringType):
            raise ArgumentError("schema", f"field {path}: map keys in JSON are strings, not {_name(data_type.keyType)}")
    corrupt = _unused_name(struct)
    # Spark stops where the first object ends and says nothing about text after it, and none of its functions is
    # stricter. So the value is parsed inside of an object, followed by another entry. A value that ends this object by
    # itself loses that entry, whose name it cannot know, and so it cannot reopen the object either. The object is
    # parsed as a map, because a struct would ignore unknown fields: additional entries from the value are noticed.
    wrapped = StructType([StructField(_AROUND, MapType(StringType(), struct)), StructField(corrupt, StringType())])
    plain = StructType([*struct.fields, StructField(corrupt, StringType())])
    permissive = {**given, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}

    def parse(raw: Column) -> Column:
        # The line ends first, as a comment may be at the end of the value.
        before, after = f'{{"{_AROUND}":{{"{_AROUND}":', f'\n,"{_AFTER}":null}}}}'
        return F.from_json(F.concat(F.lit(before), raw.cast("string"), F.lit(after)), wrapped, permissive)

    def value(parsed: Column) -> Column:
        return parsed[_AROUND][_AROUND]

    def reason(raw: Column, parsed: Column) -> Column:
        text = raw.cast("string")
        alone_there = (F.size(parsed[_AROUND]) == 2) & F.map_contains_key(parsed[_AROUND], _AFTER)
        fits = parsed[corrupt].isNull() & alone_there & value(parsed).isNotNull()
        alone = F.from_json(text, plain, permissive)
        return _unless(
            raw.isNull() | (F.is_valid_utf8(text) & F.coalesce(fits, F.lit(False))),
            F.when(~F.is_valid_utf8(text), "the value is not UTF-8")
            .when(text.rlike(r"^\s*$"), "the value is empty")
            .when(F.try_parse_json(text).isNull(), "the value is not JSON")
            .when(~text.rlike(r"^\s*\{"), "the value is JSON, but not an object")
            .when(alone[corrupt].isNull(), "the value continues after the JSON object")
            .otherwise(_first_of(_json_misfits(text, alone, struct, "", "$"), "the value does not fit the schema")),
        )

    return Reading(struct, parse, value, reason)


def csv_reading(struct: StructType, options: Mapping[str, object] | None) -> Reading:
    given = {**_CSV_READ, **check_options(options, CSV_READ_OPTIONS, "reading CSV")}
    _check_no_lengths(struct)
    _check_csv(struct, "schema")
    corrupt = _unused_name(struct)
    permissive = {**given, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
    typed = ", ".join([*(f"{quoted(field.name)} {_name(field.dataType)}" for field in struct), f"{corrupt} STRING"])
    texts = ", ".join([*(f"{quoted(field.name)} STRING" for field in struct), f"{corrupt} STRING"])
    quote = given.get("quote", '"')

    def line(raw: Column) -> Column:
        return F.regexp_replace(raw.cast("string"), r"\r?\n\z", "")

    def value(parsed: Column) -> Column:
        return F.when(parsed.isNotNull(), F.struct(*(parsed[field.name].alias(field.name) for field in struct)))

    def reason(raw: Column, parsed: Column) -> Column:
        text = line(raw)
        valid = F.is_valid_utf8(raw.cast("string"))
        # Quotes come in pairs only if a quote inside quotes is doubled.
        unclosed = F.regexp_count(text, F.lit(f"\\Q{quote}\\E")) % 2 == 1 if given["escape"] == quote else F.lit(False)
        empty = (text == "") if len(struct) > 1 else F.lit(False)

        def misfit(as_texts: Column) -> Column:
            fields = (
                F.when(
                    parsed[field.name].isNull() & as_texts[field.name].isNotNull(),
                    _say_misfit(field.name, field.dataType),
                )
                for field in struct
            )
            return F.when(as_texts[corrupt].isNotNull(), f"the number of fields is not {len(struct)}").otherwise(
                _first_of(fields, "the value does not fit the schema")
            )

        return _unless(
            raw.isNull() | (valid & parsed[corrupt].isNull() & ~unclosed & ~empty),
            F.when(~valid, "the value is not UTF-8")
            .when(empty, "the value is empty")
            .when(unclosed, "a quote is not closed")
            .otherwise(_with(F.from_csv(text, texts, permissive), misfit)),
        )

    return Reading(struct, lambda raw: F.from_csv(line(raw), typed, permissive), value, reason)


def json_value(column: Column, options: Mapping[str, object] | None) -> Column:
    """A column of structs as JSON objects."""
    given = check_options(options, JSON_WRITE_OPTIONS, "writing JSON")
    return F.to_json(column, {**_KEEP_MICROSECONDS, **given})


def csv_value(column: Column, struct: StructType, options: Mapping[str, object] | None) -> Column:
    """A column of structs as lines of CSV, without line ends."""
    given = {**_CSV_WRITE, **check_options(options, CSV_WRITE_OPTIONS, "writing CSV")}
    _check_csv(struct, "value")
    line = F.to_csv(column, given)
    if len(struct) > 1 or given.get("nullValue", ""):
        return line
    # For a single null Spark produces no line at all, and fails.
    return F.when(column.isNull(), None).when(column[struct.names[0]].isNull(), "").otherwise(line)


def quoted(name: str) -> str:
    """A name as one part of a path or of DDL, even with dots and spaces."""
    return "`" + name.replace("`", "``") + "`"


def _unless(fine: Column, reason: Column) -> Column:
    return F.when(fine, F.lit(None).cast("string")).otherwise(reason)


def _with(column: Column, say: Callable[[Column], Column]) -> Column:
    """An expression on a column that is expensive to compute, and is computed once however often it is used."""
    return F.get(F.transform(F.array(column), say), F.lit(0))


def _first_of(reasons: Iterator[Column], otherwise: str) -> Column:
    return F.coalesce(*reasons, F.lit(otherwise))


def _json_misfits(text: Column, parsed: Column, struct: StructType, path: str, json_path: str) -> Iterator[Column]:
    """Fields that the text has but the struct lacks, which Spark fills as far as it can."""
    for field in struct:
        inner = f"{path}.{field.name}" if path else field.name
        if "'" in field.name:
            continue  # a JSON path cannot express it
        inner_json = f"{json_path}['{field.name}']"
        if isinstance(field.dataType, StructType):
            yield from _json_misfits(text, parsed[field.name], field.dataType, inner, inner_json)
        there = F.get_json_object(text, inner_json).isNotNull()
        yield F.when(there & parsed[field.name].isNull(), _say_misfit(inner, field.dataType))


def _say_misfit(path: str, data_type: DataType) -> str:
    return f"field {path} is not of type {_name(data_type)}"


def _nested(data_type: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    yield path, data_type
    match data_type:
        case StructType():
            for field in data_type:
                yield from _nested(field.dataType, f"{path}.{field.name}" if path else field.name)
        case ArrayType():
            yield from _nested(data_type.elementType, f"{path}[]")
        case MapType():
            yield from _nested(data_type.valueType, f"{path}{{}}")


def _check_no_lengths(struct: StructType) -> None:
    for path, data_type in _nested(struct, ""):
        if isinstance(data_type, CharType | VarcharType):
            raise ArgumentError("schema", f"field {path}: {_name(data_type)} is only for tables; use STRING")


def _check_csv(struct: StructType, argument: str) -> None:
    for field in struct:
        if not isinstance(field.dataType, _CSV_TYPES):
            raise ArgumentError(argument, f"field {field.name}: CSV cannot hold {_name(field.dataType)}")


def _unused_name(struct: StructType) -> str:
    name = "_corrupt"
    while name in struct.names:
        name += "_"
    return name


def _name(data_type: DataType) -> str:
    return data_type.simpleString()
