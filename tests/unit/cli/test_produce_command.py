"""Lines become records: keys, line ends, and what is refused."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from barnabas.cli import produce_command
from barnabas.cli.command_line import CommandError

if TYPE_CHECKING:
    from pathlib import Path


def lines_of(data: bytes, key_separator: bytes | None = None) -> list[tuple[bytes | None, bytes]]:
    return [(line.key, line.value) for line in produce_command.read_lines(io.BytesIO(data), key_separator)]


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
    monkeypatch.setattr(produce_command, "LINE_BYTES_MAX", 8)
    assert lines_of(b"seven..\n" * 2) == [(None, b"seven..")] * 2
    with pytest.raises(CommandError, match="line 1 is longer than 8 bytes"):
        lines_of(b"much too long\n")


def test_sizes_of_lines_add_up_to_the_file() -> None:
    data = b"k:v\r\nkey:value\nlast:"
    assert sum(line.size_bytes for line in produce_command.read_lines(io.BytesIO(data), b":")) == len(data)


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
