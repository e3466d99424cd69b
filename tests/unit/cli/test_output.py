"""Tables line up without a terminal, and need no more than their cells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from barnabas.cli.output import Column, number, plain_lines, print_json, print_rich_table, print_table

if TYPE_CHECKING:
    import pytest

COLUMNS = (Column("topic"), number("partitions"))
ROWS = [("orders", 12), ("a-longer-name", 3)]


def test_plain_columns_line_up_and_numbers_stand_right() -> None:
    assert plain_lines(COLUMNS, ROWS) == [
        "topic          partitions",
        "orders                 12",
        "a-longer-name           3",
    ]


def test_no_line_ends_in_spaces() -> None:
    assert plain_lines((number("n"), Column("name")), [(1, ""), (22, "x")]) == [" n  name", " 1", "22  x"]


def test_without_a_terminal_the_title_stands_above_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS, title="two topics")
    assert capsys.readouterr().out.splitlines() == ["two topics", *plain_lines(COLUMNS, ROWS)]


def test_a_cell_in_brackets_is_text_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_rich_table(COLUMNS, [("[bold]x[/bold]", 1)], title=None)
    assert "[bold]x[/bold]" in capsys.readouterr().out


def test_json_keeps_text_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "Žluťoučký"})
    shown = capsys.readouterr().out
    assert "Žluťoučký" in shown
    assert json.loads(shown) == {"name": "Žluťoučký"}
