"""What records are made of: lines of text, JSON, CSV, or records as `barnabas consume --json` writes them.

A line that is none of what it should be is named by its file and number. Whether that ends it all is for the caller to
say: a source goes on behind it when it is asked to.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from barnabas.cli.command_line import CommandError
from barnabas.cli.data.json_paths import values_at
from barnabas.cli.output import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.cli.data.json_paths import Step

LINE_BYTES_MAX = 100 * 1024 * 1024
ANY_PARTITION: Final = -1
NO_TIME: Final = 0
"""For librdkafka that is now."""
_INT64_MAX: Final = (1 << 63) - 1

Headers = list[tuple[str, str | bytes | None]]


class Record(NamedTuple):
    """What one line becomes."""

    key: bytes | None
    value: bytes | None
    size_bytes: int
    """The size of the line as it was read, including separator and line end."""
    headers: Headers | None = None
    partition: int = ANY_PARTITION
    timestamp_ms: int = NO_TIME


class MalformedError(CommandError):
    """A line that is not what it should be; the message says where it is."""


class Lines:
    """The lines of one file, counted."""

    def __init__(self, source: BinaryIO, name: str | None) -> None:
        self._source = source
        self._name = name
        self.number = 0

    @property
    def where(self) -> str:
        """The line that was read last; without the name of a file where there is none."""
        return f"line {self.number}" if self._name is None else f"{self._name}, line {self.number}"

    def __iter__(self) -> Iterator[bytes]:
        while line := self._source.readline(LINE_BYTES_MAX):
            self.number += 1
            if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
                raise CommandError(f"{self.where} is longer than {LINE_BYTES_MAX} bytes")
            yield line

    def malformed(self, what: str) -> MalformedError:
        """What is wrong with the line that was read last."""
        return MalformedError(f"{self.where} {what}")


OnMalformed = Callable[[MalformedError], None]


def text_records(lines: Lines, on_malformed: OnMalformed, key_separator: bytes | None) -> Iterator[Record]:
    """Each line is a value, with a key before a separator where there is one."""

    def record_of(line: bytes) -> Record:
        text = without_line_end(line)
        if key_separator is None:
            return Record(None, text, len(line))
        key, found, value = text.partition(key_separator)
        if not found:
            raise lines.malformed(f"has no key: {key_separator.decode()!r} does not occur in it")
        return Record(key, value, len(line))

    return _by_line(lines, on_malformed, record_of)


def json_records(lines: Lines, on_malformed: OnMalformed, key_path: tuple[Step, ...] | None) -> Iterator[Record]:
    """Each line is a JSON document, which is the value as it stands there; a part of it may be the key."""

    def record_of(line: bytes) -> Record:
        text = line.strip()
        document = _document_in(lines, text)
        if key_path is None:
            return Record(None, text, len(line))
        for key in values_at(document, key_path):
            return Record(as_text(key), text, len(line))
        raise lines.malformed("has nothing where its key should be")

    return _by_line(lines, on_malformed, record_of, leaves_out_empty=True)


def whole_records(lines: Lines, on_malformed: OnMalformed) -> Iterator[Record]:
    """Each line is a record as `barnabas consume --json` writes it: what is not there is left to the cluster."""

    def record_of(line: bytes) -> Record:
        document = _document_in(lines, line)
        if not isinstance(document, dict) or "value" not in document:
            raise lines.malformed('is no record: it needs at least a "value"')
        return Record(
            _bytes_in(lines, document, "key"),
            _bytes_in(lines, document, "value"),
            len(line),
            _headers_in(lines, document),
            _number_in(lines, document, "partition", ANY_PARTITION),
            _number_in(lines, document, "timestamp_ms", NO_TIME),
        )

    return _by_line(lines, on_malformed, record_of, leaves_out_empty=True)


def _by_line(
    lines: Lines, on_malformed: OnMalformed, record_of: Callable[[bytes], Record], *, leaves_out_empty: bool = False
) -> Iterator[Record]:
    for line in lines:
        if leaves_out_empty and not line.strip():
            continue
        try:
            record = record_of(line)
        except MalformedError as error:
            on_malformed(error)
            continue
        yield record


def _document_in(lines: Lines, text: bytes) -> Any:
    try:
        return json.loads(text)
    except UnicodeDecodeError:
        raise lines.malformed("is no UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise lines.malformed(f"is no JSON: {error.msg} at character {error.colno}") from None
    except RecursionError:
        raise lines.malformed("is no JSON that can be read: it is nested too deeply") from None


def _bytes_in(lines: Lines, document: dict[str, Any], name: str) -> bytes | None:
    value = document.get(name)
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error:
            raise lines.malformed(f"is no record: its {name} is no base64") from None
    return as_text(value)


def _headers_in(lines: Lines, document: dict[str, Any]) -> Headers | None:
    given = document.get("headers") or []
    if not isinstance(given, list) or not all(isinstance(each, dict) and "key" in each for each in given):
        raise lines.malformed('is no record: its "headers" are no list of {"key": …, "value": …}')
    return [(str(each["key"]), _bytes_in(lines, each, "value")) for each in given] or None


def _number_in(lines: Lines, document: dict[str, Any], name: str, without: int) -> int:
    value = document.get(name, without)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= _INT64_MAX:
        raise lines.malformed(f"is no record: its {name} is no number")
    return max(value, without)


class CsvRecords:
    """Each row is a JSON object by the names of the columns, which the first row has unless they are given."""

    def __init__(
        self,
        lines: Lines,
        on_malformed: OnMalformed,
        *,
        delimiter: str,
        columns: Sequence[str] | None,
        key_column: str | None,
        convert: Callable[[str], Any],
    ) -> None:
        self._lines = lines
        self._on_malformed = on_malformed
        self._delimiter = delimiter
        self._key_column = key_column
        self._convert = convert
        self._columns = None if columns is None else self._checked(list(columns))
        self._row_bytes = 0

    def __iter__(self) -> Iterator[Record]:
        """A quoted field may go on for several lines; such a row is named by its last."""
        rows = self._rows()
        while True:
            try:
                record = self._record(next(rows))
            except StopIteration:
                return
            except csv.Error as error:
                self._on_malformed(self._lines.malformed(f"is no CSV: {error}"))
                self._row_bytes = 0
                rows = self._rows()
            except MalformedError as error:
                self._on_malformed(error)
            else:
                if record is not None:
                    yield record

    def _rows(self) -> Iterator[list[str]]:
        return csv.reader(self._text_lines(), delimiter=self._delimiter, strict=True)

    def _text_lines(self) -> Iterator[str]:
        for line in self._lines:
            self._row_bytes += len(line)
            try:
                text = line.decode("utf-8-sig" if self._lines.number == 1 else "utf-8")
            except UnicodeDecodeError:
                self._on_malformed(self._lines.malformed("is no UTF-8 text"))
            else:
                yield text

    def _record(self, row: list[str]) -> Record | None:
        """None for a heading, and for an empty line."""
        size_bytes, self._row_bytes = self._row_bytes, 0
        if not row:
            return None
        if self._columns is None:
            self._columns = self._checked(row)
            return None
        if len(row) != len(self._columns):
            raise self._lines.malformed(f"has {counted(len(row), 'field')}, and there are {len(self._columns)} columns")
        cells = dict(zip(self._columns, row, strict=True))
        key = None if self._key_column is None else cells[self._key_column].encode()
        document = {name: self._convert(cell) for name, cell in cells.items()}
        return Record(key, json.dumps(document, ensure_ascii=False).encode(), size_bytes)

    def _checked(self, columns: list[str]) -> list[str]:
        doubled = next((name for name in columns if columns.count(name) > 1), None)
        if doubled is not None:
            raise CommandError(f"there are two columns {doubled!r}: name them by --columns")
        if self._key_column is not None and self._key_column not in columns:
            raise CommandError(f"there is no column {self._key_column!r} for the key, but: {', '.join(columns)}")
        return columns


def without_line_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def as_text(value: Any) -> bytes | None:
    """A string as it is, anything else as JSON."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def as_typed(cell: str) -> Any:
    """What a cell looks like: a number, true, false, or nothing; else text."""
    words: dict[str, Any] = {"": None, "true": True, "false": False, "null": None}
    if cell.lower() in words:
        return words[cell.lower()]
    try:
        value = json.loads(cell)
    except ValueError:
        return cell
    return value if isinstance(value, int | float) else cell
