"""`barnabas` as the tests run it: in this process, against a node in another."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cli.main import main

if TYPE_CHECKING:
    import pytest

    from tests.peers import Reachable


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class Barnabas:
    """The command, pointed at a node, without a terminal."""

    def __init__(self, peer: Reachable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.bootstrap = peer.bootstrap
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str, stdin: str = "") -> Done:
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        self._capsys.readouterr()
        try:
            code = main([*words, "--bootstrap-server", self.bootstrap])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        return Done(code, *self._capsys.readouterr())

    def printed(self, *words: str, stdin: str = "") -> str:
        """What it prints where it has to succeed."""
        done = self(*words, stdin=stdin)
        assert done.code == 0, f"{words} returned {done.code}:\n{done.out}{done.err}"
        return done.out

    def facts(self, *words: str) -> Any:
        """The JSON that it prints."""
        return json.loads(self.printed(*words, "--json"))

    def complaint(self, *words: str, code: int = 1, stdin: str = "") -> str:
        """What it says where it has to fail: at most two lines, and no stack trace."""
        done = self(*words, stdin=stdin)
        assert done.code == code, f"{words} returned {done.code}:\n{done.out}{done.err}"
        assert "Traceback" not in done.err
        assert 1 <= done.err.count("\n") <= 2, done.err
        return done.err
