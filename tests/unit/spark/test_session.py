"""What a session is made of, short of making one."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import barnabas.spark
from barnabas.spark.java import JavaMissingError
from barnabas.spark.session import (
    DEFAULTS,
    LOCAL_DEFAULTS,
    SAME_PYTHON_DEFAULTS,
    given_settings,
    prepare_environment,
    remaining_defaults,
)

# The package calls the function by the same name.
session_module = import_module("barnabas.spark.session")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing set that matters to Spark, and what a test sets undone after it."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Path:
    home = Path("/opt/java-17")
    monkeypatch.setattr(session_module, "find_java", lambda: home)
    return home


def no_java() -> Path:
    raise JavaMissingError("Spark needs Java")


def test_spark_is_given_the_java_that_was_found_and_this_python(java: Path) -> None:
    prepare_environment()
    assert os.environ["JAVA_HOME"] == str(java)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_java_home_that_will_not_do_is_replaced(monkeypatch: pytest.MonkeyPatch, java: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/java-8")
    prepare_environment()
    assert os.environ["JAVA_HOME"] == str(java)


def test_a_python_that_is_named_for_the_workers_is_left_alone(monkeypatch: pytest.MonkeyPatch, java: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"


def test_under_spark_submit_java_is_there_already_and_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "find_java", no_java)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "25333")
    prepare_environment()
    assert "JAVA_HOME" not in os.environ


def test_without_java_there_is_no_session_but_a_line_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_has_session", lambda: False)
    monkeypatch.setattr(session_module, "find_java", no_java)
    with pytest.raises(JavaMissingError, match="Spark needs Java"):
        barnabas.spark.session()


def test_settings_that_are_given_win_over_name_and_master() -> None:
    assert given_settings("app", None, None) == {"spark.app.name": "app"}
    assert given_settings("app", "local[2]", {"spark.ui.enabled": "true"}) == {
        "spark.app.name": "app",
        "spark.master": "local[2]",
        "spark.ui.enabled": "true",
    }
    assert given_settings("app", "local[2]", {"spark.master": "yarn"})["spark.master"] == "yarn"


def test_defaults_are_for_what_nobody_has_said() -> None:
    assert remaining_defaults({}) == {**DEFAULTS, **LOCAL_DEFAULTS}
    assert DEFAULTS["spark.master"] == "local[*]"
    said = dict.fromkeys({**DEFAULTS, "spark.sql.shuffle.partitions": "9"}, "local")
    assert remaining_defaults(said) == {"spark.ui.enabled": "false"}


def test_a_cluster_has_its_own_number_of_shuffle_partitions_and_its_own_pages() -> None:
    assert remaining_defaults({"spark.master": "yarn"}).keys() == DEFAULTS.keys() - {"spark.master"}


def test_tasks_begin_with_this_package_imported_where_they_run_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert remaining_defaults({}) == {**DEFAULTS, **LOCAL_DEFAULTS, **SAME_PYTHON_DEFAULTS}
    assert SAME_PYTHON_DEFAULTS.keys().isdisjoint(remaining_defaults({"spark.master": "spark://master:7077"}))
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/another/bin/python")
    assert SAME_PYTHON_DEFAULTS.keys().isdisjoint(remaining_defaults({}))


def test_a_package_that_tasks_are_only_told_of_cannot_be_there_when_they_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_installed(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr("importlib.metadata.distribution", not_installed)
    assert SAME_PYTHON_DEFAULTS.keys().isdisjoint(remaining_defaults({}))
