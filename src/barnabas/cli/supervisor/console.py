"""One console for several nodes: each line with the name of its node before it, in colour at a terminal."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TextIO

LINE_BYTES_MAX: Final = 64 * 1024
"""A longer line is shown in pieces."""

_COLOURS: Final = (36, 33, 35, 32, 34, 31)
_RESET: Final = "\x1b[0m"


class Console:
    def __init__(self, stream: TextIO, names: Iterable[str]) -> None:
        self._stream = stream
        names = list(names)
        width = max(map(len, names))
        in_colour = stream.isatty() and not os.environ.get("NO_COLOR")
        self._heads = {
            name: head(name.ljust(width), _COLOURS[number % len(_COLOURS)] if in_colour else None)
            for number, name in enumerate(names)
        }

    def show(self, name: str, line: str) -> None:
        """The whole line is written at once, so that lines of several nodes never mix."""
        self._stream.write(f"{self._heads[name]}{line}\n")
        self._stream.flush()


class JsonConsole:
    """The same for lines that are JSON objects: each gets the name of its node as a field."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, name: str, line: str) -> None:
        if line.startswith("{") and line.endswith("}"):
            text = f'{{"node": {json.dumps(name)}, {line[1:]}'
        else:
            text = json.dumps({"node": name, "message": line}, ensure_ascii=False)
        self._stream.write(f"{text}\n")
        self._stream.flush()


def head(name: str, colour: int | None) -> str:
    return f"{name} | " if colour is None else f"\x1b[{colour}m{name} |{_RESET} "


class LineSplitter:
    """Cuts what a pipe brings, in pieces of any size, into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield text_of(line)
        while len(self._rest) >= LINE_BYTES_MAX:
            yield text_of(self._rest[:LINE_BYTES_MAX])
            self._rest = self._rest[LINE_BYTES_MAX:]

    def end(self) -> Iterator[str]:
        """What is left without a line's end."""
        if self._rest:
            yield text_of(self._rest)
            self._rest = b""


def text_of(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
