"""Which Java Spark is given, with Javas that only say their version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.spark import java
from barnabas.spark.java import JavaMissingError, find_java

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(java, "USUAL_PLACES", (str(tmp_path / "usual" / "*"),))


def install(home: Path, says: str, *, exit_code: int = 0) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {exit_code}\n")
    program.chmod(0o755)
    return home


def put_on_path(home: Path, tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(home / "bin" / "java")


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = install(tmp_path / "named", 'openjdk version "21.0.2" 2024-01-16')
    put_on_path(install(tmp_path / "other", 'openjdk version "17.0.15" 2025-04-15'), tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert find_java() == named


def test_without_java_home_it_is_the_java_on_the_path_where_that_really_is(tmp_path: Path) -> None:
    home = install(tmp_path / "jdk-17", 'openjdk version "17.0.15" 2025-04-15')
    put_on_path(home, tmp_path)
    assert find_java() == home


@pytest.mark.parametrize("named", ["", "/nowhere/at/all"])
def test_a_java_home_with_no_java_in_it_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str
) -> None:
    home = install(tmp_path / "jdk-17", 'openjdk version "17"')
    put_on_path(home, tmp_path)
    monkeypatch.setenv("JAVA_HOME", named)
    assert find_java() == home


def test_a_java_home_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", 'java version "1.8.0_392"')))
    home = install(tmp_path / "usual" / "jdk-17", 'openjdk version "17.0.15" 2025-04-15')
    assert find_java() == home


def test_in_usual_places_the_oldest_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    install(tmp_path / "usual" / "a-11", 'openjdk version "11.0.22"')
    install(tmp_path / "usual" / "b-25", 'openjdk version "25"')
    home = install(tmp_path / "usual" / "c-17", 'openjdk version "17.0.15"')
    assert find_java() == home


def test_without_any_java_one_line_says_what_to_do() -> None:
    with pytest.raises(JavaMissingError) as caught:
        find_java()
    assert str(caught.value) == (
        "Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless, or set JAVA_HOME to its folder"
    )


def test_with_nothing_but_old_javas_the_line_names_the_newest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "eight", 'java version "1.8.0_392"')))
    newest = install(tmp_path / "usual" / "eleven", 'openjdk version "11.0.22" 2024-01-16')
    with pytest.raises(JavaMissingError, match=f"newer; only Java 11 was found, in {newest}: apt-get") as caught:
        find_java()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("says", "exit_code"), [("no JVM could be found", 1), ('version "17"', 1), ("hello", 0)])
def test_a_program_that_is_no_working_java_does_not_count(tmp_path: Path, says: str, exit_code: int) -> None:
    put_on_path(install(tmp_path / "broken", says, exit_code=exit_code), tmp_path)
    with pytest.raises(JavaMissingError, match="newer: apt-get"):
        find_java()
