"""A session of its own in a process of its own: what Spark makes of what it was told, and by whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyspark

import barnabas.spark

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
    told = {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "7", "spark.ui.enabled": "true"}
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
        modules = "barnabas.spark.writing", "barnabas.spark.reading"
        return program and program.name, sys.modules["pyspark"].__file__, *(name in sys.modules for name in modules)

    found = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert found == [("barnabas.spark_daemon", pyspark.__file__, True, True)]


LIMITED_PROGRAM = """
import sys, barnabas.spark
settings = {"spark.driver.memory": "600m", "spark.executor.pyspark.memory": "1g"}
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
