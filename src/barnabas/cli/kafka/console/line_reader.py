"""Lines of text as records, as Kafka's LineMessageReader reads them: `headers<TAB>key<TAB>value`, or parts of that.

h1:v1,h2:v2<TAB>key<TAB>value      parse.headers and parse.key
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.kafka.java.java_regex import RegexError, compile_regex, split

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping

Header = tuple[str, bytes | None]

CLASS_NAMES: Final = frozenset(
    {"org.apache.kafka.tools.LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader"}
)
"""The reader's name, and the one it had before Kafka 4."""
INTERFACE: Final = "org.apache.kafka.tools.api.RecordReader"
_KAFKA_EXCEPTION: Final = "org.apache.kafka.common.KafkaException"
_TRUE: Final = "true"


class ReaderError(ValueError):
    """A property that cannot be, or a line that has not the form that was promised, as Java prints the exception."""


class NewRecord(NamedTuple):
    """What a line says."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


class LineReader:
    """How to read lines."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parses_key = _flag(properties, "parse.key")
        self._parses_headers = _flag(properties, "parse.headers")
        self._ignores_errors = _flag(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t")
        self._headers_delimiter = properties.get("headers.delimiter", "\t")
        self._headers_key_separator = properties.get("headers.key.separator", ":")
        self._null_marker = properties.get("null.marker")
        headers_separator = properties.get("headers.separator", ",")
        self._headers_separator = _pattern(headers_separator)
        self._check_that_they_differ(headers_separator)

    def records(self, lines: Iterable[str]) -> Iterator[NewRecord]:
        """The records of lines that come without their ends."""
        if not (self._parses_key or self._parses_headers):
            for line in lines:
                yield NewRecord(None, self._bytes(line), [])
            return
        for number, line in enumerate(lines, start=1):
            yield self._record(number, line)

    def _record(self, number: int, line: str) -> NewRecord:
        headers, start = self._field(
            self._parses_headers, number, line, 0, self._headers_delimiter, "headers delimiter"
        )
        key, start = self._field(self._parses_key, number, line, start, self._key_separator, "key separator")
        return NewRecord(
            None if key is None else self._bytes(key),
            self._bytes(line[start:]),
            [] if headers is None or headers == self._null_marker else self._headers(number, headers),
        )

    def _field(
        self,
        is_wanted: bool,
        number: int,
        line: str,
        start: int,
        separator: str,
        what: str,
    ) -> tuple[str | None, int]:
        """The text up to a separator and where the next field starts; None and the same place if there is none."""
        if not is_wanted:
            return None, start
        end = line.find(separator, start)
        if end >= 0:
            return line[start:end], end + len(separator)
        if self._ignores_errors:
            return None, start
        raise ReaderError(f"{_KAFKA_EXCEPTION}: No {what} found on line number {number}: '{line}'")

    def _headers(self, number: int, text: str) -> list[Header]:
        return [self._header(number, pair) for pair in split(self._headers_separator, text)]

    def _header(self, number: int, pair: str) -> Header:
        name, separator, value = pair.partition(self._headers_key_separator)
        if not separator and self._headers_key_separator:
            if self._ignores_errors:
                return pair, None
            raise ReaderError(
                f"{_KAFKA_EXCEPTION}: No header key separator found in pair '{pair}' on line number {number}"
            )
        if name == self._null_marker:
            raise ReaderError(
                f"{_KAFKA_EXCEPTION}: Header keys should not be equal to the null marker '{name}' as they can't be null"
            )
        return name, self._bytes(value)

    def _bytes(self, text: str) -> bytes | None:
        return None if text == self._null_marker else text.encode()

    def _check_that_they_differ(self, headers_separator: str) -> None:
        delimiter = ("headers.delimiter", self._headers_delimiter)
        separator = ("headers.separator", headers_separator)
        key_separator = ("headers.key.separator", self._headers_key_separator)
        marker = ("null.marker", self._null_marker)
        for (name, text), (other_name, other) in (
            (delimiter, separator),
            (delimiter, key_separator),
            (separator, key_separator),
            (marker, ("key.separator", self._key_separator)),
            (marker, separator),
            (marker, delimiter),
            (marker, key_separator),
        ):
            if text == other:
                raise ReaderError(f"{_KAFKA_EXCEPTION}: {name} and {other_name} may not be equal")


def _flag(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == _TRUE


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return compile_regex(text)
    except RegexError as error:
        raise ReaderError(f"java.util.regex.PatternSyntaxException: {error}") from None
