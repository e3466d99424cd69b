"""The names of a segment's files as the tool takes them apart."""

from __future__ import annotations

import re

from barnabas.cli.kafka.flags import read_long
from barnabas.cli.kafka.tool import ToolError


def as_java_has_it(path: str) -> str:
    """A path without double slashes, and without one at the end."""
    shorter = re.sub("/+", "/", path)
    return shorter[:-1] if len(shorter) > 1 and shorter.endswith("/") else shorter


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def suffix_of(path: str) -> str:
    """From the last point on; empty without one."""
    _, point, suffix = name_of(path).rpartition(".")
    return point + suffix


def base_offset_in(path: str) -> int:
    text = name_of(path).partition(".")[0]
    try:
        return read_long(text)
    except ValueError:
        raise ToolError(f'For input string: "{text}"') from None


def beside(path: str, suffix: str) -> str:
    """The file of the same segment that has this suffix."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.partition('.')[0]}{suffix}"
