"""A session of its own in a process of its own: what Spark makes of what it was told, and by whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyspark
import pytest

import barnabas.spark
from barnabas.spark.requirements import check_worker_python
from tests.peers import SHORT_LIVED
from tests.spark.standalone import python_without_barnabas

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NAMES = (
    "spark.master",
    "spark.app.name",
    "spark.driver.memory",
    "spark.sql.shuffle.partitions",
    "spark.sql.session.timeZone",
    "spark.ui.enabled",
    "spark.ui.showConsoleProgress",
)
PROGRAM = f"""
import json, barnabas.spark
spark = barnabas.spark.session(settings={{"spark.driver.memory": "600m", "spark.ui.enabled": "false"}})
print(json.dumps({{name: spark.conf.get(name) for name in {NAMES}}}))
print(spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory())
spark.stop()
"""


def test_given_settings_win_over_spark_defaults_and_they_win_over_ours(tmp_path: Path) -> None:
    told = {**SHORT_LIVED, "spark.master": "local[1]", "spark.sql.shuffle.partitions": "7", "spark.ui.enabled": "true"}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in told.items()))
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    settings, memory_bytes = ran.stdout.splitlines()
    assert json.loads(settings) == {
        "spark.master": "local[1]",
        "spark.app.name": "barnabas",
        "spark.driver.memory": "600m",
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    assert int(memory_bytes) < 700 * 2**20


def test_a_session_that_is_there_is_taken_with_its_settings(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    same = barnabas.spark.session("tests", settings={"spark.sql.caseSensitive": "false"})
    assert same.sparkContext is spark.sparkContext
    assert same.conf.get("spark.sql.shuffle.partitions") == before


def test_tasks_begin_with_everything_imported_from_installed_packages(spark: SparkSession) -> None:
    def look(_: int) -> tuple[object, ...]:
        program = sys.modules["__main__"].__spec__
        modules = "barnabas.spark.write.delivery", "barnabas.spark.read.range_reader"
        return program and program.name, sys.modules["pyspark"].__file__, *(name in sys.modules for name in modules)

    found = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert found == [("barnabas.spark_daemon", pyspark.__file__, True, True)]


LIMITED_PROGRAM = f"""
import sys, barnabas.spark
settings = {{"spark.driver.memory": "600m", "spark.executor.pyspark.memory": "1g", **{dict(SHORT_LIVED)}}}
spark = barnabas.spark.session(master="local[2]", settings=settings)

def build(_):
    import resource
    return sys.modules["__main__"].__spec__.name, len(bytearray(200 << 20)), resource.getrlimit(resource.RLIMIT_AS)[0]

print(spark.sparkContext.parallelize([0], 1).map(build).collect())
spark.stop()
"""


def test_tasks_with_limited_memory_have_it_for_themselves() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED_PROGRAM], capture_output=True, text=True, timeout=110, check=False
    )
    assert ran.stdout.strip() == str([("barnabas.spark_daemon", 200 << 20, 1 << 30)]), ran.stderr


def test_workers_whose_python_lacks_the_package_are_an_error_of_one_line_when_the_format_is_registered(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = python_without_barnabas(tmp_path / "python")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    with pytest.raises(barnabas.spark.WorkerPythonError) as caught:
        barnabas.spark.register(spark)
    assert str(caught.value) == (
        f"Spark's workers run {python}, which lacks barnabas: set PYSPARK_PYTHON={sys.executable} before the session "
        "starts (or spark.pyspark.python, with spark-submit), or use barnabas.spark.session()"
    )


def test_workers_with_another_version_of_python_or_none_are_an_error_too(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\necho '[[3, 9], []]'\n")
    old.chmod(0o755)
    for python, problem in ((old, r"which is Python 3\.9 where this program runs 3\.\d+:"), (tmp_path, "does not run")):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
        with pytest.raises(barnabas.spark.WorkerPythonError, match=problem):
            barnabas.spark.register(spark)


def test_executors_elsewhere_may_have_a_python_that_is_not_here(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "./environment/bin/python")
    with pytest.raises(barnabas.spark.WorkerPythonError):
        check_worker_python(spark)
    monkeypatch.setattr(spark.sparkContext, "master", "spark://host:7077")
    check_worker_python(spark)
