"""What the tool prints, in large pieces: a dump has millions of lines, each of which costs less than printing it would.

Keys and values are printed as the bytes they are, if these are UTF-8. What is printed of others is decided here.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, BinaryIO, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

PIECE_BYTES: Final = 256 * 1024
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


class Page:
    """Text on its way to a stream. What was put on it is written when it ends, however it ends."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._parts: list[bytes] = []
        self._size = 0

    def line(self, text: str) -> None:
        self.put(f"{text}\n".encode("utf-8", "surrogateescape"))

    def text(self, text: str) -> None:
        """The beginning of a line."""
        self.put(text.encode("utf-8", "surrogateescape"))

    def put(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= PIECE_BYTES:
            self._write()

    def put_lines_of_records(self, data: bytes) -> None:
        """Whole lines, with whatever bytes there are in keys and values."""
        self.put(data if data.isascii() else _in_utf8(data))

    def flush(self) -> None:
        self._write()
        self._stream.flush()

    def _write(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        self._stream.write(b"".join(parts))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, BrokenPipeError):
            self.flush()


def text_of(data: bytes) -> str:
    """Bytes as Java makes a string of them: what is not UTF-8 becomes a replacement character."""
    # A surrogate by itself is one such character for Java, and three for Python.
    return codecs.decode(_SURROGATE.sub(b"\xff", data), "utf-8", "replace")


def _in_utf8(data: bytes) -> bytes:
    try:
        data.decode()
    except UnicodeDecodeError:
        return text_of(data).encode()
    return data
