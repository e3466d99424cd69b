"""Lines become records: keys, line ends, and what is refused."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.cli.command_line import CommandError
from barnabas.cli.data import produce_command, sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def lines_of(data: bytes, key_separator: bytes | None = None) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in text_records(data, key_separator)]


def text_records(data: bytes, key_separator: bytes | None = None) -> Iterator[sources.Record]:
    return sources.text_records(sources.Lines(io.BytesIO(data), None), fail, key_separator)


def fail(error: sources.MalformedError) -> None:
    raise error


def test_each_line_is_one_record_whatever_its_line_end() -> None:
    assert lines_of(b"one\ntwo\r\n\nlast") == [(None, b"one"), (None, b"two"), (None, b""), (None, b"last")]


def test_bytes_that_are_no_text_pass_unchanged() -> None:
    assert lines_of(b"\xff\x00\xfe\n") == [(None, b"\xff\x00\xfe")]


def test_the_first_separator_ends_the_key() -> None:
    assert lines_of(b"k:v:w\n:empty key\nempty value:\n", b":") == [
        (b"k", b"v:w"),
        (b"", b"empty key"),
        (b"empty value", b""),
    ]


def test_a_line_without_its_separator_is_named_by_number() -> None:
    with pytest.raises(CommandError, match="line 2 has no key: ':' does not occur in it"):
        lines_of(b"k:v\nno key\n", b":")


def test_a_line_without_an_end_in_sight_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LINE_BYTES_MAX", 8)
    assert lines_of(b"seven..\n" * 2) == [(None, b"seven..")] * 2
    with pytest.raises(CommandError, match="line 1 is longer than 8 bytes"):
        lines_of(b"much too long\n")


def test_sizes_of_lines_add_up_to_the_file() -> None:
    data = b"k:v\r\nkey:value\nlast:"
    assert sum(record.size_bytes for record in text_records(data, b":")) == len(data)


def test_a_tab_may_be_typed_as_an_escape() -> None:
    options = produce_command.build_parser().parse_args(["t", "--key-separator", r"\t"])
    assert options.key_separator == b"\t"


def test_acks_all_means_an_idempotent_producer_and_others_do_not() -> None:
    def settings(*arguments: str) -> dict[str, object]:
        return produce_command.producer_settings(produce_command.build_parser().parse_args(["t", *arguments]))

    assert settings()["enable.idempotence"] is True
    assert settings("--acks", "1")["enable.idempotence"] is False


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot read .*absent\.txt: No such file or directory"):
        produce_command.open_source(str(tmp_path / "absent.txt"))


def test_undelivered_records_are_counted_and_fail_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = produce_command.Outcome()
    outcome.sent, outcome.failed, outcome.errors = 10, 2, ["topic 't': Broker: Message size too large"]
    assert produce_command.report(outcome, unsent=1, topic="t") == 1
    assert capsys.readouterr().err.splitlines() == [
        "barnabas: topic 't': Broker: Message size too large",
        "barnabas: 3 of 10 records were not delivered to 't'",
    ]


def csv_rows(text: str, **how: object) -> tuple[list[tuple[bytes | None, bytes | None]], list[str]]:
    """The records of a table, and what was wrong with the others."""
    wrong: list[str] = []
    given: dict[str, Any] = {"delimiter": ",", "columns": None, "key_column": None, "convert": str, **how}
    lines = sources.Lines(io.BytesIO(text.encode()), "t.csv")
    records = sources.CsvRecords(lines, lambda error: wrong.append(str(error)), **given)
    return [(record.key, record.value) for record in records], wrong


def test_rows_become_objects_by_the_names_of_their_columns() -> None:
    text = '\ufeffid,name\r\n1,"bob, jr"\r\n\r\n2,"two\nlines"\r\n'
    assert csv_rows(text, key_column="id") == (
        [(b"1", b'{"id": "1", "name": "bob, jr"}'), (b"2", b'{"id": "2", "name": "two\\nlines"}')],
        [],
    )
    assert csv_rows("1;x\n", columns=["a", "b"], delimiter=";") == ([(None, b'{"a": "1", "b": "x"}')], [])


def test_cells_become_what_they_look_like() -> None:
    cells = ["1", "1.5", "true", "", "NaN-like", "007", "[1]", "-2"]
    assert [sources.as_typed(cell) for cell in cells] == [1, 1.5, True, None, "NaN-like", "007", "[1]", -2]


def test_rows_that_are_malformed_are_named_by_file_and_line_and_left_out() -> None:
    records, wrong = csv_rows('a,b\n1,2\n3\n4,5,6\n"x"y,7\n8,9\n')
    assert [value for _, value in records] == [b'{"a": "1", "b": "2"}', b'{"a": "8", "b": "9"}']
    assert wrong == [
        "t.csv, line 3 has 1 field, and there are 2 columns",
        "t.csv, line 4 has 3 fields, and there are 2 columns",
        "t.csv, line 5 is no CSV: ',' expected after '\"'",
    ]


def test_columns_that_make_no_sense_are_refused() -> None:
    with pytest.raises(CommandError, match="two columns 'a'"):
        csv_rows("a,a\n1,2\n")
    with pytest.raises(CommandError, match="no column 'c' for the key, but: a, b"):
        csv_rows("a,b\n1,2\n", key_column="c")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"a":', "line 1 is no JSON: Expecting value at character 6"),
        ('"\udcff"', "line 1 is no UTF-8 text"),
        ("[" * 100_000, "line 1 is no JSON that can be read: it is nested too deeply"),
        ('{"a": 1}', "line 1 has nothing where its key should be"),
    ],
)
def test_json_that_is_malformed_is_named_by_its_line(line: str, complaint: str) -> None:
    lines = sources.Lines(io.BytesIO(line.encode(errors="surrogateescape")), None)
    with pytest.raises(sources.MalformedError, match=complaint):
        list(sources.json_records(lines, fail, ("key",)))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[]", 'it needs at least a "value"'),
        ('{"value": {"base64": "?"}}', "its value is no base64"),
        ('{"value": 1, "partition": "x"}', "its partition is no number"),
        ('{"value": 1, "headers": {"a": 1}}', 'its "headers" are no list'),
    ],
)
def test_records_that_are_none_are_named_by_their_line(line: str, complaint: str) -> None:
    with pytest.raises(sources.MalformedError, match=complaint):
        list(sources.whole_records(sources.Lines(io.BytesIO(line.encode()), None), fail))


def test_a_record_has_all_that_consume_printed() -> None:
    line = (
        b'{"key": "k", "value": {"base64": "/w=="}, "headers": [{"key": "h", "value": null}], "partition": 2, '
        b'"timestamp_ms": 5, "offset": 9}'
    )
    (record,) = sources.whole_records(sources.Lines(io.BytesIO(line), None), fail)
    assert record == sources.Record(b"k", b"\xff", len(line), [("h", None)], 2, 5)
