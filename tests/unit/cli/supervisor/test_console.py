"""One console for several nodes."""

from __future__ import annotations

import io
import json

import pytest

from barnabas.cli.supervisor.console import LINE_BYTES_MAX, Console, JsonConsole, LineSplitter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_are_as_wide_as_the_widest() -> None:
    stream = io.StringIO()
    console = Console(stream, ["node-1", "nodes"])
    console.show("nodes", "hello")
    console.show("node-1", "there")
    assert stream.getvalue() == "nodes  | hello\nnode-1 | there\n"


def test_lines_of_json_get_the_name_of_their_node_and_others_become_json() -> None:
    stream = io.StringIO()
    console = JsonConsole(stream)
    console.show("node-1", '{"level": "INFO", "message": "hello"}')
    console.show("node-2", 'a "trace"')
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"node": "node-1", "level": "INFO", "message": "hello"},
        {"node": "node-2", "message": 'a "trace"'},
    ]


def test_every_node_has_a_colour_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    console = Console(stream, ["node-1", "node-2"])
    console.show("node-1", "a")
    console.show("node-2", "b")
    assert stream.getvalue() == "\x1b[36mnode-1 |\x1b[0m a\n\x1b[33mnode-2 |\x1b[0m b\n"


def test_whoever_wants_no_colour_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    Console(stream, ["node-1"]).show("node-1", "a")
    assert stream.getvalue() == "node-1 | a\n"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_lines_are_whole_however_they_come(size: int) -> None:
    data = "first\r\n\nthird ü\nrest".encode()
    lines = LineSplitter()
    found = [line for start in range(0, len(data), size) for line in lines.feed(data[start : start + size])]
    assert [*found, *lines.end()] == ["first", "", "third ü", "rest"]
    assert [*lines.end()] == []


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    lines = LineSplitter()
    found = [line for _ in range(40) for line in lines.feed(b"x" * 10_000)]
    assert {len(line) for line in found} == {LINE_BYTES_MAX}
    assert sum(map(len, [*found, *lines.end()])) == 400_000
