"""The example project passes its own tests, as its README says to run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "tested_application"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pytest", "-p", "no:cacheprovider", "test_orders.py"], "6 passed"),
        (["pytest", "-p", "no:cacheprovider", "-n", "2", "test_orders.py"], "6 passed"),
        (["unittest"], "Ran 3 tests"),
    ],
    ids=["pytest", "xdist", "unittest"],
)
def test_the_application_is_tested_as_its_readme_says(words: list[str], said: str, registered: Path) -> None:
    path = os.pathsep.join([str(registered), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
