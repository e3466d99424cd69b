"""Our tools beside Kafka's own: the same words to both, against the same broker, and what they print line by line.

A command line is written as a person types it. In it, BROKER and CONTROLLER are the places where the broker under test
listens, and FILES is a folder with what the tools read.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.main import main
from interop import kafka_tools

if TYPE_CHECKING:
    from pathlib import Path

MASKS: Final = (
    (re.compile(r"\t\d+ *(\t\d+ *\t(?:\d{13}|\d+ ms ago))"), r"\tN\1"),
    (re.compile(r"(\b\d{13} *\t)\d+ *\t"), r"\1AGO\t"),
    (re.compile(r"\b\d{13}\b"), "TIME"),
    (re.compile(r"\b\d+ ms ago( *)"), "AGO"),
    (re.compile(r"\b(Epoch|HighWatermark): +\d+"), r"\1: N"),
)
"""What is another moment in the two runs."""
_FROM_LOGGING: Final = re.compile(r"^\d\d:\d\d:\d\d,\d{3} ")
_OPTION: Final = re.compile(r"^ {0,2}(?:\* )?(?:-\w(?: \S+)?, )?--([a-zA-Z][\w-]*)", re.MULTILINE)


class Done(NamedTuple):
    """How a tool ended, and what it printed."""

    code: int
    out: str
    err: str


class Places(NamedTuple):
    """What the words in capitals of a command line stand for."""

    broker: str
    controller: str
    files: Path

    def words(self, command_line: str) -> list[str]:
        for name, value in (("BROKER", self.broker), ("CONTROLLER", self.controller), ("FILES", str(self.files))):
            command_line = command_line.replace(name, value)
        return shlex.split(command_line)


def of_kafka(words: list[str]) -> Done:
    done = kafka_tools.attempt(*words)
    return Done(done.returncode, done.stdout, done.stderr)


def ours(words: list[str]) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["kafka", *words])
    return Done(code, out.getvalue(), err.getvalue())


def lines(text: str) -> list[str]:
    masked = text
    for pattern, mask in MASKS:
        masked = pattern.sub(mask, masked)
    # A column is as wide as what is in it.
    return [re.sub(r" {2,}", " ", line) for line in masked.splitlines()] if masked != text else text.splitlines()


def compare(words: list[str], *, in_any_order: bool = False) -> None:
    """AssertionError unless both tools end and print the same."""
    theirs, mine = of_kafka(words), ours(words)
    expected, printed = lines(theirs.out), lines(mine.out)
    if in_any_order:
        expected, printed = sorted(expected), sorted(printed)
    told = f"\n--- Kafka's:\n{theirs.out}{theirs.err[:2000]}\n--- ours:\n{mine.out}{mine.err}"
    assert mine.code == theirs.code, f"exit code {mine.code} instead of {theirs.code}{told}"
    assert printed == expected, f"other lines{told}"
    if mine.code:
        complaint = mine.err.partition("\n")[0]
        # Kafka's tools break lines where they please, and log beside what they say.
        said = "".join(line for line in theirs.err.splitlines() if not _FROM_LOGGING.match(line))
        assert _squashed(complaint) in _squashed(said) or printed, f"another complaint{told}"
        assert complaint or printed, f"no word about the failure{told}"


def options_in(help_text: str) -> set[str]:
    """The names of the options that a help text lists."""
    return set(_OPTION.findall(help_text))


def _squashed(text: str) -> str:
    return re.sub(r"\s", "", text)
