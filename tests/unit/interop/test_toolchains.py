"""Toolchains that are missing, too old or without a network, as programs of a few lines of shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from interop import toolchains

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Install = Callable[[str, str], None]

NEW_GO = 'if [ "$1" = version ]; then echo go version go1.99.1 linux/amd64; exit; fi\n'
NEW_NODE = "echo v99.1.0\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a program on a PATH that has nothing else of use, with an empty cache."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def install(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}")
        (folder / name).chmod(0o755)

    return install


@pytest.mark.parametrize(
    ("prepare", "needs"),
    [
        (toolchains.go, "needs Go 1.24 or newer: `go version` failed"),
        (toolchains.node, "needs Node.js 18.0 or newer: `node --version` failed"),
    ],
)
def test_what_is_missing_is_said_in_one_line(install: Install, prepare: Callable[[], object], needs: str) -> None:
    with pytest.raises(toolchains.MissingError) as missing:
        prepare()
    assert str(missing.value).startswith(needs)
    assert "\n" not in str(missing.value)


def test_one_that_is_too_old_is_named(install: Install) -> None:
    install("go", "echo go version go1.19.8 linux/amd64\n")
    with pytest.raises(toolchains.MissingError, match=r"needs Go 1\.24 or newer, found: go version go1\.19\.8"):
        toolchains.go()


def test_a_library_that_cannot_be_had_is_missing(install: Install) -> None:
    install("node", NEW_NODE)
    install("npm", "echo 'npm error network is unreachable' >&2\nexit 1\n")
    with pytest.raises(toolchains.MissingError, match=r"needs the KafkaJS package: .* network is unreachable"):
        toolchains.node()


def test_a_program_that_does_not_compile_is_a_failure_and_leaves_nothing_behind(
    install: Install, tmp_path: Path
) -> None:
    install("go", NEW_GO + 'if [ "$1" = build ]; then echo undefined: x >&2; exit 1; fi\n')
    with pytest.raises(toolchains.BuildError, match="undefined: x"):
        toolchains.go()
    assert [each.name for each in (tmp_path / "cache").rglob("*") if each.is_file()] == ["lock"]


def test_what_was_built_is_built_once(install: Install, tmp_path: Path) -> None:
    install("go", NEW_GO + f'echo "$1" >> {tmp_path}/runs\n')
    first = toolchains.go()
    assert toolchains.go() == first
    assert (tmp_path / "runs").read_text().split() == ["mod", "build"]
