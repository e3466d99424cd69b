"""Finding the Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from glob import glob
from pathlib import Path

VERSION_MIN = 17
USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_PATIENCE_S = 60


class JavaMissingError(RuntimeError):
    """There is no Java for Spark to run on; the message says what to do."""


def find_java() -> Path:
    """The home of a Java that is new enough: JAVA_HOME, else the one on the PATH, else one in a usual place.

    Of several in usual places the oldest is taken: it is the one that Spark has been used with for longest.
    """
    found: dict[Path, int] = {}
    for homes in (_named(), _on_path(), _in_usual_places()):
        versions = {home: version for home in homes if (version := _version_of(home)) is not None}
        if new_enough := [home for home, version in versions.items() if version >= VERSION_MIN]:
            return min(new_enough, key=versions.__getitem__)
        found |= versions
    old = f"; only Java {max(found.values())} was found, in {max(found, key=found.__getitem__)}" if found else ""
    raise JavaMissingError(
        f"Spark needs Java {VERSION_MIN} or newer{old}: apt-get install openjdk-{VERSION_MIN}-jre-headless, "
        "or set JAVA_HOME to its folder"
    )


def _named() -> list[Path]:
    # Spark's scripts treat an empty JAVA_HOME like one that is not set.
    return [Path(named)] if (named := os.environ.get("JAVA_HOME")) else []


def _on_path() -> list[Path]:
    return [Path(java).resolve().parent.parent] if (java := shutil.which("java")) is not None else []


def _in_usual_places() -> list[Path]:
    homes = [Path(home).resolve() for place in USUAL_PLACES for home in sorted(glob(os.path.expanduser(place)))]
    return list(dict.fromkeys(homes))


def _version_of(home: Path) -> int | None:
    """The major version of the Java in this folder; None if there is none that runs."""
    try:
        said = subprocess.run(  # noqa: S603 (whoever sets JAVA_HOME decides what runs)
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(said.stderr + said.stdout)
    return None if found is None else int(found[1])
