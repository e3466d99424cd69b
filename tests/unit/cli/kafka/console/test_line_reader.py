"""Lines as records: what each property of the reader changes."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.console.line_reader import LineReader, NewRecord, ReaderError

KEYS = {"parse.key": " TRUE "}
HEADERS = {"parse.headers": "true"}
KAFKA_EXCEPTION = "org.apache.kafka.common.KafkaException: "


def read(properties: dict[str, str], *lines: str) -> list[NewRecord]:
    return list(LineReader(properties).records(lines))


def test_a_line_is_a_value() -> None:
    assert read({}, "a\tb", "", "ü") == [
        NewRecord(None, b"a\tb", []),
        NewRecord(None, b"", []),
        NewRecord(None, "ü".encode(), []),
    ]


def test_a_key_ends_at_the_first_separator() -> None:
    assert read(KEYS | {"key.separator": "::"}, "k::v::w", "::", "k::") == [
        NewRecord(b"k", b"v::w", []),
        NewRecord(b"", b"", []),
        NewRecord(b"k", b"", []),
    ]


def test_headers_come_first_and_a_name_may_occur_twice() -> None:
    assert read(HEADERS | KEYS, "h:1,h:2,x::\tk\tv") == [NewRecord(b"k", b"v", [("h", b"1"), ("h", b"2"), ("x", b":")])]


def test_the_separator_of_headers_is_a_pattern_and_what_is_empty_at_the_end_is_left_out() -> None:
    separators = HEADERS | {"headers.separator": "[;|]+", "headers.delimiter": "#"}
    assert read(separators, "a:1;|b:2;;#v") == [NewRecord(None, b"v", [("a", b"1"), ("b", b"2")])]


def test_what_equals_the_marker_is_null() -> None:
    marked = HEADERS | KEYS | {"null.marker": "-"}
    assert read(marked, "-\t-\t-", "h:-\tk\t--") == [
        NewRecord(None, None, []),
        NewRecord(b"k", b"--", [("h", None)]),
    ]


def test_where_errors_are_ignored_what_is_missing_is_left_out() -> None:
    lenient = HEADERS | KEYS | {"ignore.error": "true", "key.separator": ":", "headers.key.separator": "="}
    assert read(lenient, "h=1\tno key", "plain", "h\tk:v") == [
        NewRecord(None, b"no key", [("h", b"1")]),
        NewRecord(None, b"plain", []),
        NewRecord(b"k", b"v", [("h", None)]),
    ]


@pytest.mark.parametrize(
    ("properties", "lines", "complaint"),
    [
        (KEYS, ["k\tv", "none"], "No key separator found on line number 2: 'none'"),
        (HEADERS, ["none"], "No headers delimiter found on line number 1: 'none'"),
        (HEADERS, ["h\tv"], "No header key separator found in pair 'h' on line number 1"),
        (
            HEADERS | {"null.marker": "-"},
            ["-:1\tv"],
            "Header keys should not be equal to the null marker '-' as they can't be null",
        ),
    ],
)
def test_a_line_without_its_form_is_refused(properties: dict[str, str], lines: list[str], complaint: str) -> None:
    with pytest.raises(ReaderError) as refused:
        read(properties, *lines)
    assert str(refused.value) == KAFKA_EXCEPTION + complaint


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator"),
        ({"headers.delimiter": ":"}, "headers.delimiter and headers.key.separator"),
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator"),
        ({"null.marker": "\t"}, "null.marker and key.separator"),
        ({"null.marker": ","}, "null.marker and headers.separator"),
        ({"null.marker": ":"}, "null.marker and headers.key.separator"),
        ({"key.separator": "#", "null.marker": "\t"}, "null.marker and headers.delimiter"),
    ],
)
def test_separators_differ_from_each_other(properties: dict[str, str], names: str) -> None:
    with pytest.raises(ReaderError) as refused:
        LineReader(properties)
    assert str(refused.value) == f"{KAFKA_EXCEPTION}{names} may not be equal"
