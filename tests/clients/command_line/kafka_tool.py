"""Kafka's tools as the tests run them: in this process, against a node in another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.main import main

if TYPE_CHECKING:
    import pytest

    from tests.peers import Reachable


class Done(NamedTuple):
    """How a tool ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def complaint(self) -> str:
        """The first line on standard error."""
        return self.err.partition("\n")[0]


class KafkaTool:
    """One tool, pointed at a node."""

    def __init__(self, name: str, peer: Reachable, capsys: pytest.CaptureFixture[str]) -> None:
        self._words = [name, "--bootstrap-server", peer.bootstrap]
        self._capsys = capsys

    def __call__(self, *words: str) -> Done:
        return run_tool(self._capsys, *self._words, *words)

    def printed(self, *words: str) -> str:
        """What it prints where it has to succeed."""
        done = self(*words)
        assert done.code == 0, f"{words} returned {done.code}:\n{done.out}{done.err}"
        return done.out


def run_tool(capsys: pytest.CaptureFixture[str], *words: str) -> Done:
    capsys.readouterr()
    code = main(["kafka", *words])
    return Done(code, *capsys.readouterr())
