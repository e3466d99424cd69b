"""Java's properties syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.properties import PropertiesError, format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("# comment\n! comment\n   # indented\n\n", {}),
        ("a=1", {"a": "1"}),
        ("a:1\nb 2\nc\t=\t3\nd = 4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a==1", {"a": "=1"}),
        ("a= b c ", {"a": "b c "}),
        ("key", {"key": ""}),
        ("=value", {"": "value"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("a=1,\\\n    2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\n# not a comment\n", {"a": "1# not a comment"}),
        ("# a comment is not continued \\\nb=1", {"b": "1"}),
        ("a=ends with a backslash\\\\\nb=1", {"a": "ends with a backslash\\", "b": "1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e4\\u20AC", {"a": "ä€"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a=x\\", {"a": "x"}),
        ("a=line\u2028separator\x85 and next line", {"a": "line\u2028separator\x85 and next line"}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("escape", ["\\u12", "\\u12g4", "\\u", "\\u 123"])
def test_a_broken_unicode_escape_is_refused_with_its_line(escape: str) -> None:
    with pytest.raises(PropertiesError, match=r"^line 3: Malformed \\uxxxx encoding"):
        parse_properties(f"# comment\na=1\nb={escape}\nc=2")


def test_the_line_of_an_error_is_where_a_continued_line_begins() -> None:
    with pytest.raises(PropertiesError) as refused:
        parse_properties("a=1\nb=\\\n  x\\\n  \\uzzzz")
    assert refused.value.line == 2


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_reads_back_the_same(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


@given(st.text(alphabet="ab=: \\\t\n\r\f#!u01é"))
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    line_count = text.count("\n") + text.count("\r") + 1
    assert _line_of_error(text) in range(line_count + 1)


def _line_of_error(text: str) -> int:
    try:
        parse_properties(text)
    except PropertiesError as error:
        return error.line
    return 0
