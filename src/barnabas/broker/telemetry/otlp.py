"""OpenTelemetry's metrics, from the protobuf that clients push to the JSON that people and collectors read.

    MetricsData → resourceMetrics[] → scopeMetrics[] → metrics[] → gauge, sum, histogram … → dataPoints[]

The JSON is that of OTLP: 64-bit numbers are strings, and names are in camel case. What a newer client adds to the
messages is left out.
"""

from __future__ import annotations

import json
import math
import struct
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.compression import Codec, decompress
from barnabas.protocol.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DEPTH_MAX = 32
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DOUBLE = struct.Struct("<d")


class Kind(Enum):
    STRING = auto()
    BYTES = auto()
    BOOL = auto()
    NUMBER = auto()
    """An enumeration, or an integer of 32 bits."""
    SIGNED = auto()
    """An integer of 32 bits, of which small negative ones are short."""
    INT64 = auto()
    FIXED64 = auto()
    SFIXED64 = auto()
    DOUBLE = auto()
    MESSAGE = auto()


class Field(NamedTuple):
    name: str
    kind: Kind
    message: str = ""
    is_list: bool = False


def _list(name: str, message: str) -> Field:
    return Field(name, Kind.MESSAGE, message, is_list=True)


_TIMES = {2: Field("startTimeUnixNano", Kind.FIXED64), 3: Field("timeUnixNano", Kind.FIXED64)}
_TEMPORALITY = Field("aggregationTemporality", Kind.NUMBER)

MESSAGES: Mapping[str, Mapping[int, Field]] = {
    "MetricsData": {1: _list("resourceMetrics", "ResourceMetrics")},
    "ResourceMetrics": {
        1: Field("resource", Kind.MESSAGE, "Resource"),
        2: _list("scopeMetrics", "ScopeMetrics"),
        3: Field("schemaUrl", Kind.STRING),
    },
    "Resource": {1: _list("attributes", "KeyValue")},
    "ScopeMetrics": {
        1: Field("scope", Kind.MESSAGE, "InstrumentationScope"),
        2: _list("metrics", "Metric"),
        3: Field("schemaUrl", Kind.STRING),
    },
    "InstrumentationScope": {
        1: Field("name", Kind.STRING),
        2: Field("version", Kind.STRING),
        3: _list("attributes", "KeyValue"),
    },
    "Metric": {
        1: Field("name", Kind.STRING),
        2: Field("description", Kind.STRING),
        3: Field("unit", Kind.STRING),
        5: Field("gauge", Kind.MESSAGE, "Gauge"),
        7: Field("sum", Kind.MESSAGE, "Sum"),
        9: Field("histogram", Kind.MESSAGE, "Histogram"),
        10: Field("exponentialHistogram", Kind.MESSAGE, "ExponentialHistogram"),
        11: Field("summary", Kind.MESSAGE, "Summary"),
    },
    "Gauge": {1: _list("dataPoints", "NumberDataPoint")},
    "Sum": {1: _list("dataPoints", "NumberDataPoint"), 2: _TEMPORALITY, 3: Field("isMonotonic", Kind.BOOL)},
    "Histogram": {1: _list("dataPoints", "HistogramDataPoint"), 2: _TEMPORALITY},
    "ExponentialHistogram": {1: _list("dataPoints", "ExponentialHistogramDataPoint"), 2: _TEMPORALITY},
    "Summary": {1: _list("dataPoints", "SummaryDataPoint")},
    "NumberDataPoint": {
        **_TIMES,
        4: Field("asDouble", Kind.DOUBLE),
        6: Field("asInt", Kind.SFIXED64),
        7: _list("attributes", "KeyValue"),
        8: Field("flags", Kind.NUMBER),
    },
    "HistogramDataPoint": {
        **_TIMES,
        4: Field("count", Kind.FIXED64),
        5: Field("sum", Kind.DOUBLE),
        6: Field("bucketCounts", Kind.FIXED64, is_list=True),
        7: Field("explicitBounds", Kind.DOUBLE, is_list=True),
        9: _list("attributes", "KeyValue"),
        10: Field("flags", Kind.NUMBER),
        11: Field("min", Kind.DOUBLE),
        12: Field("max", Kind.DOUBLE),
    },
    "ExponentialHistogramDataPoint": {
        **_TIMES,
        1: _list("attributes", "KeyValue"),
        4: Field("count", Kind.FIXED64),
        5: Field("sum", Kind.DOUBLE),
        6: Field("scale", Kind.SIGNED),
        7: Field("zeroCount", Kind.FIXED64),
        8: Field("positive", Kind.MESSAGE, "Buckets"),
        9: Field("negative", Kind.MESSAGE, "Buckets"),
        10: Field("flags", Kind.NUMBER),
        12: Field("min", Kind.DOUBLE),
        13: Field("max", Kind.DOUBLE),
        14: Field("zeroThreshold", Kind.DOUBLE),
    },
    "Buckets": {1: Field("offset", Kind.SIGNED), 2: Field("bucketCounts", Kind.INT64, is_list=True)},
    "SummaryDataPoint": {
        **_TIMES,
        4: Field("count", Kind.FIXED64),
        5: Field("sum", Kind.DOUBLE),
        6: _list("quantileValues", "ValueAtQuantile"),
        7: _list("attributes", "KeyValue"),
        8: Field("flags", Kind.NUMBER),
    },
    "ValueAtQuantile": {1: Field("quantile", Kind.DOUBLE), 2: Field("value", Kind.DOUBLE)},
    "KeyValue": {1: Field("key", Kind.STRING), 2: Field("value", Kind.MESSAGE, "AnyValue")},
    "AnyValue": {
        1: Field("stringValue", Kind.STRING),
        2: Field("boolValue", Kind.BOOL),
        3: Field("intValue", Kind.INT64),
        4: Field("doubleValue", Kind.DOUBLE),
        5: Field("arrayValue", Kind.MESSAGE, "ArrayValue"),
        6: Field("kvlistValue", Kind.MESSAGE, "KeyValueList"),
        7: Field("bytesValue", Kind.BYTES),
    },
    "ArrayValue": {1: _list("values", "AnyValue")},
    "KeyValueList": {1: _list("values", "KeyValue")},
}


def push_as_json(codec: int, data: bytes, max_bytes: int, labels: Iterable[tuple[str, str | None]]) -> str:
    """What a client has pushed, with labels that say which client, as attributes of its resources. Raises DecodeError.
    For a large push, a task for a worker process."""
    metrics = decode_metrics(decompress(Codec(codec), data, max_bytes))
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in labels if value is not None]
    for resource in metrics.get("resourceMetrics", ()):
        resource.setdefault("resource", {}).setdefault("attributes", []).extend(attributes)
    return json.dumps(metrics, indent=1) + "\n"


def decode_metrics(data: bytes) -> dict[str, Any]:
    """Raises DecodeError if the bytes are no MetricsData."""
    try:
        return _decode(memoryview(data), "MetricsData", 0)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"these are no metrics in OpenTelemetry's protobuf: {error}") from error


def _decode(data: memoryview, message: str, depth: int) -> dict[str, Any]:
    if depth > DEPTH_MAX:
        raise DecodeError(f"metrics are nested more than {DEPTH_MAX} deep")
    fields, out = MESSAGES[message], dict[str, Any]()
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        content, position = _content(data, position, tag & 7)
        field = fields.get(tag >> 3)
        if field is None:
            continue
        if not field.is_list:
            out[field.name] = _value(content, field, depth)
        elif isinstance(content, memoryview) and field.kind is not Kind.MESSAGE:
            out.setdefault(field.name, []).extend(_packed(content, field))
        else:
            out.setdefault(field.name, []).append(_value(content, field, depth))
    return out


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position
        shift += 7
        if shift > 63:
            raise DecodeError("a number in metrics has more than 64 bits")


def _content(data: memoryview, position: int, wire_type: int) -> tuple[int | memoryview, int]:
    if wire_type == _VARINT:
        return _varint(data, position)
    if wire_type == _LENGTH:
        size, position = _varint(data, position)
    elif wire_type in (_FIXED64, _FIXED32):
        size = 8 if wire_type == _FIXED64 else 4
    else:
        raise DecodeError(f"a field in metrics has the wire type {wire_type}")
    if size > len(data) - position:
        raise DecodeError(f"metrics end within a field of {size} bytes")
    content = data[position : position + size]
    is_number = wire_type != _LENGTH
    return int.from_bytes(content, "little") if is_number else content, position + size


def _value(content: int | memoryview, field: Field, depth: int) -> Any:
    if isinstance(content, memoryview):
        if field.kind is Kind.MESSAGE:
            return _decode(content, field.message, depth + 1)
        if field.kind is Kind.STRING:
            return str(content, "utf-8")
        if field.kind is Kind.BYTES:
            return content.hex()
    elif (of_number := _OF_NUMBERS.get(field.kind)) is not None:
        return of_number(content)
    raise DecodeError(f"the field {field.name} of metrics is of another type")


def _packed(content: memoryview, field: Field) -> Iterable[Any]:
    of_number = _OF_NUMBERS[field.kind]
    if field.kind is Kind.INT64:
        position = 0
        while position < len(content):
            number, position = _varint(content, position)
            yield of_number(number)
        return
    if len(content) % 8:
        raise DecodeError(f"the field {field.name} of metrics has {len(content)} bytes")
    for position in range(0, len(content), 8):
        yield of_number(int.from_bytes(content[position : position + 8], "little"))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _double(number: int) -> float | str:
    (value,) = _DOUBLE.unpack(number.to_bytes(8, "little"))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


_OF_NUMBERS: Mapping[Kind, Callable[[int], Any]] = {
    Kind.BOOL: bool,
    Kind.NUMBER: int,
    Kind.SIGNED: lambda number: (number >> 1) ^ -(number & 1),
    Kind.INT64: lambda number: str(_signed(number)),
    Kind.FIXED64: str,
    Kind.SFIXED64: lambda number: str(_signed(number)),
    Kind.DOUBLE: _double,
}
