"""What the documentation says of the code is what the code says of itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import draw_rooms

from barnabas.broker.api.registry import ROUTES, register_all
from barnabas.protocol.api import APIS

register_all()

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def name_of(key: int) -> str:
    return APIS[key].request.removesuffix("Request")


def test_the_table_of_apis_lists_what_has_a_handler_in_its_versions() -> None:
    served = {name_of(key): (route.min_version, route.max_version) for key, route in ROUTES.items()}
    page = (ROOT / "docs" / "compatibility.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+)(?: to (\d+))? \|", page, re.MULTILINE)
    assert {name: (int(low), int(high or low)) for name, low, high in rows} == served


def test_the_list_of_missing_apis_is_complete() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    listed = re.search(r"^Not served yet: (.*?)\.$", page, re.MULTILINE | re.DOTALL)
    assert listed is not None
    missing = {name_of(key) for key in APIS if "broker" in APIS[key].listeners} - {name_of(key) for key in ROUTES}
    assert set(re.split(r",\s+", listed[1])) == missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:src|tests|tools|docs)/[\w./-]+)`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_modules_that_the_map_names_exist() -> None:
    """Paths are told from the package on, and a module without its suffix: `log/partition_log`."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "src" / "barnabas"
    rooms = "|".join(path.name for path in package.iterdir() if path.is_dir())
    named = set(re.findall(rf"`((?:{rooms})/[\w/]+)`", page))
    assert named
    assert [name for name in named if not (package / f"{name}.py").exists() and not (package / name).is_dir()] == []


def test_the_picture_of_the_rooms_is_the_one_that_the_contracts_draw() -> None:
    assert draw_rooms.OUTPUT.read_text() == draw_rooms.draw(), "python -m tools.draw_rooms"
