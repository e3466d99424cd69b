"""Paths in the tree with `*`, `?` and `{one,other}` in them, as Kafka's shell resolves them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.kafka.files.metadata_shell.tree import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.cli.kafka.files.metadata_shell.tree import Node

_SPECIAL = frozenset("$()+.[]^{|*?\\}")


class Place(NamedTuple):
    """A node, and the names that lead to it from the root."""

    path: tuple[str, ...]
    node: Node

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else "/"

    @property
    def absolute(self) -> str:
        return "/" + "/".join(self.path)


def resolved(root: Folder, working_folder: str, path: str) -> Iterator[Place]:
    """Every node that a path stands for, in the order of their names."""
    full = path if path.startswith("/") else f"{working_folder}/{path}"
    return _found(root, parts_of(full), ())


def parts_of(path: str) -> list[str]:
    """The names in a path, with `.` and `..` resolved."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part and part != ".":
            parts.append(part)
    return parts


def _found(node: Node, parts: Sequence[str], path: tuple[str, ...]) -> Iterator[Place]:
    if not parts:
        yield Place(path, node)
        return
    if not isinstance(node, Folder):
        return
    pattern = _pattern(parts[0])
    for name in [parts[0]] if pattern is None else filter(pattern.fullmatch, node.names):
        child = node.child(name)
        if child is not None:
            yield from _found(child, parts[1:], (*path, name))


def _pattern(glob: str) -> re.Pattern[str] | None:
    """None for a name that stands only for itself, also because what is special in it makes no sense."""
    out: list[str] = []
    is_literal, in_group = True, False
    rest = iter(glob)
    for char in rest:
        if char in "?*":
            is_literal = False
            out.append("." if char == "?" else ".*")
        elif char == "\\":
            following = next(rest, "\\")
            out.append(f"\\{following}" if following in _SPECIAL else following)
        elif char == "{":
            if in_group:
                return None
            is_literal, in_group = False, True
            out.append("(?:(?:")
        elif char == "," and in_group:
            out.append(")|(?:")
        elif char == "}" and in_group:
            in_group = False
            out.append("))")
        else:
            out.append(re.escape(char))
    return None if is_literal or in_group else re.compile("".join(out), re.DOTALL)
