"""What the tests of the plugin share."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def registered(tmp_path: Path) -> Path:
    """A folder that has what an installation of this tree tells pytest, whatever is installed here."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    folder = tmp_path / "installed"
    info = folder / "barnabas_test_kit-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: barnabas-test-kit\nVersion: 0\n")
    lines = [f"{name} = {module}" for name, module in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    return folder
