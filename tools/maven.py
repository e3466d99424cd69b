"""Jars from Maven, resolved on first use and kept in the cache."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools import cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    Artifacts = Sequence[tuple[str, str, str]]
    """Group, artifact and version, as Maven names them."""

SECONDS_MAX = 600.0

_WITHOUT_NEEDS = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class MavenError(RuntimeError):
    """Jars are not there, and Maven could not get them; the message says why in one line."""


def ensure_jars(name: str, artifacts: Artifacts, *, alone: bool = False) -> Path:
    """The folder of these artifacts' jars and all they need, or of them alone, under this name in the cache."""
    jars = cache.home() / name / "jars"
    pom = _pom(artifacts, _WITHOUT_NEEDS if alone else "")
    return cache.made_once(jars, lambda folder: _resolve(folder, jars, pom))


def _resolve(folder: Path, destination: Path, pom: str) -> None:
    """Has Maven copy the jars to a folder that then becomes the destination."""
    if shutil.which("mvn") is None:
        raise MavenError(f"its jars need Maven (mvn is not on PATH), or to be in {destination}")
    with tempfile.TemporaryDirectory(prefix="maven-") as scratch:
        (Path(scratch) / "pom.xml").write_text(pom)
        command = ["mvn", "--batch-mode", "--quiet", "-f", f"{scratch}/pom.xml", "dependency:copy-dependencies"]
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        try:
            done = subprocess.run(
                [*command, *options], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise MavenError(f"Maven did not resolve its jars in {SECONDS_MAX} s") from error
    if done.returncode != 0:
        first = next((line for line in done.stdout.splitlines() if "ERROR" in line), f"exit code {done.returncode}")
        raise MavenError(f"Maven could not resolve its jars: {first}")


def _pom(artifacts: Artifacts, exclusions: str) -> str:
    dependencies = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{exclusions}</dependency>"
        for group, artifact, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>barnabas</groupId><artifactId>peers</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
