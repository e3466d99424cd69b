"""Draw `docs/rooms.svg`: the packages in their layers, and the ways that requests take through them.

    python -m tools.draw_rooms

The layers are those of the import contract in `pyproject.toml`, and what a room is for is the first line of its
package. So the picture cannot show what `lint-imports` would not allow; a test compares it with the file in the tree.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "docs" / "rooms.svg"
PACKAGE = ROOT / "src" / "barnabas"

WIDTH = 1080
MARGIN = 24
ROW_HEIGHT_MIN = 30
ROW_GAP = 12
BOX_GAP = 14
TITLE_HEIGHT = 112
LINE_HEIGHT = 15
CHARACTER_WIDTH = 6.1
BADGE_RADIUS = 9

LEFT_OUT = {"spark_daemon"}
"""A start-up module, no room."""


class Way(NamedTuple):
    name: str
    colour: str
    rooms: tuple[str, ...]


WAYS = (
    Way("a record coming in", "#c2410c", ("net", "broker", "replication", "log")),
    Way("a record going out", "#1d4ed8", ("net", "broker", "replication", "log", "net")),
    Way("a change of the cluster", "#15803d", ("broker", "controller", "raft", "metadata", "broker")),
    Way("a step of a group or transaction", "#7e22ce", ("broker", "groups", "replication", "log")),
    Way("a row of a pipeline", "#0f766e", ("spark", "client", "net")),
)

STYLE = """
  .room { fill: #f8fafc; stroke: #64748b; }
  .pure { fill: #ecfdf5; stroke: #059669; }
  .name { font: bold 14px sans-serif; fill: #0f172a; }
  .what { font: 11px sans-serif; fill: #334155; }
  .title { font: bold 17px sans-serif; fill: #0f172a; }
  .legend { font: 12px sans-serif; fill: #334155; }
  .badge { font: bold 11px sans-serif; fill: #ffffff; text-anchor: middle; }
  .paper { fill: #ffffff; }
"""


def layers() -> list[list[str]]:
    """The packages from top to bottom, those of one layer beside each other."""
    contracts = _contracts()
    (found,) = [each["layers"] for each in contracts if each["name"] == "dependencies point downwards"]
    rows = [[name.strip() for name in layer.split("|")] for layer in found]
    return [kept for row in rows if (kept := [name for name in row if name not in LEFT_OUT])]


def pure() -> set[str]:
    """Packages that the contract keeps free of input and output as a whole."""
    (found,) = [each["source_modules"] for each in _contracts() if each["name"] == "pure packages stay free of I/O"]
    return {name.removeprefix("barnabas.") for name in found}


def purpose(name: str) -> str:
    """The first sentence of a package, or of a module that is a room by itself."""
    path = PACKAGE / name / "__init__.py"
    source = (path if path.exists() else PACKAGE / f"{name}.py").read_text()
    text = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].replace("\n", " ").replace("`", "")
    return text.split(". ")[0].rstrip(".")


def draw() -> str:
    rows = layers()
    heights = [_height(row) for row in rows]
    height = TITLE_HEIGHT + sum(heights) + len(rows) * ROW_GAP + MARGIN
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'aria-label="The rooms of Barnabas in their layers">'
        ),
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>',
        f'<text class="title" x="{MARGIN}" y="36">The rooms, and the ways through them</text>',
        *_legend(),
    ]
    y = TITLE_HEIGHT
    for row, row_height in zip(rows, heights, strict=True):
        parts += _row(row, y, row_height)
        y += row_height + ROW_GAP
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    parts = [
        (
            f'<text class="legend" x="{MARGIN}" y="58">A room imports only from those below it. '
            "Green rooms are pure: no clock, socket, file or chance inside.</text>"
        )
    ]
    x: float = MARGIN
    for way in WAYS:
        parts.append(f'<circle cx="{x + BADGE_RADIUS}" cy="84" r="{BADGE_RADIUS}" fill="{way.colour}"/>')
        parts.append(f'<text class="legend" x="{x + 2 * BADGE_RADIUS + 6}" y="88">{escape(way.name)}</text>')
        x += 2 * BADGE_RADIUS + 26 + len(way.name) * CHARACTER_WIDTH
    return parts


def _width(row: list[str]) -> float:
    return (WIDTH - 2 * MARGIN - (len(row) - 1) * BOX_GAP) / len(row)


def _height(row: list[str]) -> int:
    return ROW_HEIGHT_MIN + LINE_HEIGHT * max(len(_lines(name, _width(row))) for name in row)


def _lines(name: str, width: float) -> list[str]:
    return textwrap.wrap(purpose(name), int((width - 24) / CHARACTER_WIDTH))


def _row(row: list[str], y: int, height: int) -> list[str]:
    width = _width(row)
    parts: list[str] = []
    for number, name in enumerate(row):
        parts += _box(name, MARGIN + number * (width + BOX_GAP), y, width, height)
    return parts


def _box(name: str, x: float, y: int, width: float, height: int) -> list[str]:
    kind = "pure" if name in pure() else "room"
    parts = [
        f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{height}" rx="6"/>',
        f'<text class="name" x="{x + 12:.0f}" y="{y + 20}">{escape(name)}</text>',
    ]
    for number, line in enumerate(_lines(name, width)):
        parts.append(f'<text class="what" x="{x + 12:.0f}" y="{y + 37 + number * LINE_HEIGHT}">{escape(line)}</text>')
    return parts + _badges(name, x + width - 10, y + 15)


def _badges(name: str, right: float, y: float) -> list[str]:
    """A numbered mark for each time that a way comes through this room."""
    marks = [(way.colour, step) for way in WAYS for step, room in enumerate(way.rooms, start=1) if room == name]
    parts = []
    for number, (colour, step) in enumerate(reversed(marks)):
        x = right - BADGE_RADIUS - number * (2 * BADGE_RADIUS + 3)
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{BADGE_RADIUS}" fill="{colour}"/>')
        parts.append(f'<text class="badge" x="{x:.0f}" y="{y + 4:.0f}">{step}</text>')
    return parts


def _contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return contracts


if __name__ == "__main__":
    OUTPUT.write_text(draw())
    print(f"{OUTPUT.relative_to(ROOT)} has {len(layers())} layers")
