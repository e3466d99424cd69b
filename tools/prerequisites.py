"""`python -m tools.prerequisites venv` and `… java`: what make needs of the machine before it can do anything.

Each is found, installed where that is possible (by root, where there is `apt-get`), or asked for in one line. The first
runs before there is a virtual environment, so this module imports nothing but the standard library until it is asked
for Java.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
"""As Debian and Ubuntu call it: older releases have the first, newer ones the others."""

DISTRIBUTION_FOLDER = Path("/usr/bin")
"""Where Debian and Ubuntu have their Pythons, and nobody else should."""


def main(arguments: Sequence[str]) -> int:
    (name,) = arguments
    missing = {"venv": ensure_venv, "java": ensure_java}[name]()
    if missing is not None:
        print(missing, file=sys.stderr)
        return 1
    return 0


def ensure_venv() -> str | None:
    """What to do so that this Python can make virtual environments; None if it can."""
    if makes_environments():
        return None
    package = venv_package(Path(sys.executable), sys.version_info[:2])
    problem = f"{sys.executable} cannot make virtual environments, as it has no ensurepip"
    if package is None:
        return f"{problem}: set PYTHON to a Python 3.11 or newer that has it, as in `make PYTHON=/usr/bin/python3 …`"
    if shutil.which("apt-get") is None:
        return (
            f"{problem}: install the package of your distribution that brings it ({package} in Debian and Ubuntu), "
            "or set PYTHON to a Python 3.11 or newer that has it"
        )
    if install("Virtual environments need", [package]) and makes_environments():
        return None
    return f"{problem}: sudo apt-get install {package}"


def makes_environments() -> bool:
    """Asks a new process, as this one remembers what it did not find before."""
    asked = subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True, check=False)
    return asked.returncode == 0


def venv_package(python: Path, version: tuple[int, ...]) -> str | None:
    """What Debian and Ubuntu call the package for this Python; None for a Python that is not the distribution's."""
    real = python.resolve()
    if real.parent != DISTRIBUTION_FOLDER:
        return None
    is_default = real == (DISTRIBUTION_FOLDER / "python3").resolve()
    return "python3-venv" if is_default else f"python{version[0]}.{version[1]}-venv"


def ensure_java() -> str | None:
    """What to do so that Spark has a Java; None if it has one."""
    from barnabas.spark.java import JavaMissingError, find_java

    try:
        find_java()
    except JavaMissingError as missing:
        if not install("Spark needs", JAVA_PACKAGES):
            return str(missing)
        try:
            find_java()
        except JavaMissingError as still_missing:
            return str(still_missing)
    return None


def install(who_needs: str, packages: Sequence[str]) -> bool:
    """Whether one of these packages, the first that there is, was installed: by root, where there is `apt-get`."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    print(f"{who_needs} {packages[0]}, which is installed now", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, stdout=subprocess.DEVNULL, check=False)
    return any(
        subprocess.run(
            ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", package],
            env=environment,
            stdout=subprocess.DEVNULL,
            check=False,
        ).returncode
        == 0
        for package in packages
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
