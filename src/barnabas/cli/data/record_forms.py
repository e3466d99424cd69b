"""How a record is written: as text, as JSON, as a hexadecimal dump, or as a row of a table."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Final, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE

from barnabas.cli.times import time_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

    Form = Callable[[Message], bytes]

TEXT: Final = "text"
JSON: Final = "json"
HEX: Final = "hex"
TABLE: Final = "table"
OUTPUTS: Final = (TEXT, JSON, HEX, TABLE)

BYTES_PER_LINE: Final = 16
KEY_WIDTH: Final = 20
VALUE_WIDTH_MIN: Final = 20
_TABLE_LEFT: Final = f"{{:>9}}  {{:>12}}  {{:<23}}  {{:<{KEY_WIDTH}}}  "
_DIM: Final = b"\x1b[2m"
_BOLD: Final = b"\x1b[1m"
_PLAIN: Final = b"\x1b[0m"


def form_of(options: argparse.Namespace) -> Form:
    output = JSON if options.json else options.output
    if output == JSON:
        return json_line
    if output == HEX:
        return hex_dump
    if output == TABLE:
        return table_row
    return line_format(options)


def heading_of(options: argparse.Namespace) -> bytes:
    """What stands above the first record."""
    if options.json or options.output != TABLE:
        return b""
    text = f"{_TABLE_LEFT.format('partition', 'offset', 'time', 'key')}value".encode()
    return (_BOLD + text + _PLAIN if is_coloured() else text) + b"\n"


def line_format(options: argparse.Namespace) -> Form:
    fields: list[Form] = []
    if options.print_timestamp:
        fields.append(timestamp_text)
    if options.print_offset:
        fields.append(lambda message: f"Partition:{message.partition()}\tOffset:{message.offset()}".encode())
    if options.print_headers:
        fields.append(headers_text)
    if options.print_key:
        fields.append(lambda message: bytes_or_null(message.key()))
    fields.append(lambda message: bytes_or_null(message.value()))
    return lambda message: b"\t".join([field(message) for field in fields]) + b"\n"


def timestamp_text(message: Message) -> bytes:
    name, timestamp_ms = timestamp_of(message)
    return f"{name}:{timestamp_ms}".encode()


def timestamp_of(message: Message) -> tuple[str, int]:
    kind, timestamp_ms = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return "NoTimestamp", -1
    return ("LogAppendTime" if kind == TIMESTAMP_LOG_APPEND_TIME else "CreateTime"), timestamp_ms


def headers_text(message: Message) -> bytes:
    return b",".join(key.encode() + b":" + bytes_or_null(value) for key, value in headers_of(message)) or b"NO_HEADERS"


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def bytes_or_null(value: bytes | None) -> bytes:
    return b"null" if value is None else value


def json_line(message: Message) -> bytes:
    name, timestamp_ms = timestamp_of(message)
    fields = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms,
        "timestamp_type": name,
        "headers": [{"key": key, "value": json_bytes(value)} for key, value in headers_of(message)],
        "key": json_bytes(message.key()),
        "value": json_bytes(message.value()),
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Text if the bytes are UTF-8; other bytes cannot be a JSON string and are encoded as base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def hex_dump(message: Message) -> bytes:
    """A line about the record, then its key, headers and value, sixteen bytes to a line with their letters."""
    _, timestamp_ms = timestamp_of(message)
    heading = f"partition {message.partition()}  offset {message.offset()}  {time_text(timestamp_ms)}".encode()
    lines = [_BOLD + heading + _PLAIN if is_coloured() else heading]
    lines += hex_part("key", message.key())
    for name, value in headers_of(message):
        lines += hex_part(f"header {name}", value)
    lines += hex_part("value", message.value())
    return b"\n".join(lines) + b"\n"


def hex_part(name: str, data: bytes | str | None) -> Iterator[bytes]:
    if isinstance(data, str):
        data = data.encode()
    size = "null" if data is None else f"{len(data)} bytes"
    yield f"  {name}: {size}".encode()
    if data is not None:
        yield from hex_lines(data)


def hex_lines(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), BYTES_PER_LINE):
        part = data[at : at + BYTES_PER_LINE]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        yield f"    {at:08x}  {part.hex(' '):<47}  {letters}".encode()


def table_row(message: Message) -> bytes:
    """One line, at a terminal as long as that is wide now, whatever it was for the record before."""
    _, timestamp_ms = timestamp_of(message)
    left = _TABLE_LEFT.format(
        cast("int", message.partition()),
        cast("int", message.offset()),
        time_text(timestamp_ms),
        shortened(printable(message.key()), KEY_WIDTH),
    )
    value = printable(message.value())
    if sys.stdout.isatty():
        value = shortened(value, max(VALUE_WIDTH_MIN, shutil.get_terminal_size().columns - len(left)))
    if is_coloured():
        return _DIM + left.encode() + _PLAIN + value.encode() + b"\n"
    return left.encode() + value.encode() + b"\n"


def printable(value: bytes | str | None) -> str:
    """Text without what would move a cursor; bytes that are none as hexadecimal digits."""
    if value is None:
        return "null"
    if isinstance(value, str):
        text = value
    else:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    return "".join(each if each.isprintable() else "·" for each in text)


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
