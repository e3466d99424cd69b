"""What this Python and that of Spark's workers must have, asked of real interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from barnabas.spark import python_workers, requirements
from barnabas.spark.requirements import NEEDED_BY_TASKS, ask, is_this_python
from tests.spark.standalone import python_without_barnabas

WITHOUT = "import sys; sys.modules['{}'] = None; import barnabas.spark"


@pytest.mark.parametrize("module", requirements.EXTRA)
def test_without_the_extra_the_last_line_says_what_to_install(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(module)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: No module named '{module}', which barnabas.spark needs: pip install 'barnabas[spark]'"
    )


def test_the_extra_is_what_the_package_declares() -> None:
    with (Path(__file__).parents[3] / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)["project"]["optional-dependencies"]["spark"]
    assert {*requirements.EXTRA, "fastavro"} == {each.partition(">")[0] for each in declared}


def test_a_python_of_the_same_environment_is_this_one_whatever_it_is_called(tmp_path: Path) -> None:
    here = Path(sys.executable).parent
    assert is_this_python(sys.executable)
    assert is_this_python(str(here / "python3"))
    venv.create(tmp_path, symlinks=True)
    assert (tmp_path / "bin" / "python3").resolve() == Path(sys.executable).resolve()
    assert not is_this_python(str(tmp_path / "bin" / "python3"))
    assert not is_this_python("no-python-at-all")


def test_a_bare_name_is_looked_up_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert is_this_python("python3")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not is_this_python("python3")


def test_a_python_says_what_it_lacks(tmp_path: Path) -> None:
    assert ask(sys.executable, os.environ, []) == (sys.version_info[:2], ())
    venv.create(tmp_path, symlinks=True)
    empty = str(tmp_path / "bin" / "python3")
    assert ask(empty, {}, []) == (sys.version_info[:2], NEEDED_BY_TASKS)


def test_a_package_that_the_session_was_given_is_not_lacking(tmp_path: Path) -> None:
    python = str(python_without_barnabas(tmp_path / "python"))
    assert ask(python, {}, []).missing == ("barnabas.spark",)
    package = python_workers.archive(tmp_path)
    assert ask(python, {}, [str(package)]).missing == ()
    assert ask(python, {"PYTHONPATH": str(package)}, []).missing == ()
