"""What make does on a machine that lacks something, with an apt-get that only notes what it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools import prerequisites

ROOT = Path(__file__).parents[3]
BLOCKED = "import sys\nsys.modules['ensurepip'] = None\n"
"""As a module `sitecustomize`, which every Python imports at its start: that of Debian without python3-venv."""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for a machine whose Python has no ensurepip; `programs` in it is the whole PATH."""
    (tmp_path / "programs").mkdir()
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setattr(prerequisites, "DISTRIBUTION_FOLDER", Path(sys.executable).resolve().parent)
    return tmp_path


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def add_apt_get(machine: Path, *, has: str) -> None:
    """One that can install packages whose names match; ensurepip comes with any of them."""
    program = machine / "programs" / "apt-get"
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {machine}/asked\n'
        "for word; do name=$word; done\n"
        f'case "$1 $name" in "update -qq") exit 0;; "install "{has}) {shutil.which("rm", path="/bin:/usr/bin")} '
        f"-f {machine}/sitecustomize.py; exit 0;; esac\n"
        "exit 100\n"
    )
    program.chmod(0o755)


def asked(machine: Path) -> list[str]:
    """The packages that were to be installed."""
    lines = (machine / "asked").read_text().splitlines() if (machine / "asked").exists() else []
    return [line.split()[-1] for line in lines if line.startswith("install")]


@pytest.mark.usefixtures("as_root")
def test_where_nothing_is_missing_nothing_is_installed(machine: Path) -> None:
    add_apt_get(machine, has="*")
    (machine / "sitecustomize.py").unlink()
    assert prerequisites.main(["venv"]) == 0
    assert asked(machine) == []


@pytest.mark.usefixtures("as_root")
def test_root_gets_the_package_for_this_python(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    add_apt_get(machine, has="python3*-venv")
    assert prerequisites.main(["venv"]) == 0
    (package,) = asked(machine)
    assert package in ("python3-venv", f"python3.{sys.version_info.minor}-venv")
    assert capfd.readouterr().err == f"Virtual environments need {package}, which is installed now\n"


@pytest.mark.usefixtures("as_user")
def test_a_user_is_told_the_one_line_that_does_it(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    add_apt_get(machine, has="*")
    assert prerequisites.main(["venv"]) == 1
    assert asked(machine) == []
    said = capfd.readouterr().err
    assert said.endswith("-venv\n")
    assert "has no ensurepip: sudo apt-get install python3" in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("as_root")
def test_root_is_told_the_same_where_the_package_cannot_be_had(
    machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    add_apt_get(machine, has="nothing")
    assert prerequisites.main(["venv"]) == 1
    assert "has no ensurepip: sudo apt-get install python3" in capfd.readouterr().err


@pytest.mark.usefixtures("as_root")
def test_without_apt_get_the_line_says_what_to_look_for(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert prerequisites.main(["venv"]) == 1
    said = capfd.readouterr().err
    assert "install the package of your distribution that brings it" in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("as_root")
def test_for_a_python_from_elsewhere_nothing_is_installed(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    add_apt_get(machine, has="*")
    monkeypatch.setattr(prerequisites, "DISTRIBUTION_FOLDER", machine)
    assert prerequisites.main(["venv"]) == 1
    assert asked(machine) == []
    assert "set PYTHON to a Python 3.11 or newer that has it" in capfd.readouterr().err


def test_the_distributions_default_python_and_its_others_have_packages_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("python3.11", "python3.13"):
        (tmp_path / name).touch()
    (tmp_path / "python3").symlink_to("python3.11")
    monkeypatch.setattr(prerequisites, "DISTRIBUTION_FOLDER", tmp_path.resolve())
    assert prerequisites.venv_package(tmp_path / "python3", (3, 11)) == "python3-venv"
    assert prerequisites.venv_package(tmp_path / "python3.11", (3, 11)) == "python3-venv"
    assert prerequisites.venv_package(tmp_path / "python3.13", (3, 13)) == "python3.13-venv"


@pytest.mark.usefixtures("as_root")
def test_of_several_packages_with_java_the_first_that_there_is_gets_installed(machine: Path) -> None:
    add_apt_get(machine, has="openjdk-21-*")
    assert prerequisites.install("Spark needs", prerequisites.JAVA_PACKAGES)
    assert asked(machine) == ["openjdk-17-jre-headless", "openjdk-21-jre-headless"]


def test_make_stops_where_it_cannot_make_an_environment(machine: Path) -> None:
    make = shutil.which("make", path="/usr/bin:/bin:/usr/local/bin")
    assert make is not None
    folder = machine / "clone"
    shutil.copytree(ROOT / "tools", folder / "tools")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    # Without apt-get on the PATH: what make runs beside Python is the shell, which it has by its full name.
    done = subprocess.run(
        [make, "setup", f"PYTHON={sys.executable}"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "cannot make virtual environments, as it has no ensurepip" in done.stderr
    assert not (folder / ".venv").exists()
