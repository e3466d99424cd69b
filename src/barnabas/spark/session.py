"""A Spark session in which `format("barnabas")` is known: `local[*]` unless told otherwise.

The same code runs on a cluster by another master. What is given to `session` wins over what `spark-submit` and
`spark-defaults.conf` say, and they win over the defaults here.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from barnabas.spark.java import find_java
from barnabas.spark.python_workers import is_local, ship
from barnabas.spark.registration import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

DEFAULTS: Mapping[str, str] = {
    "spark.master": "local[*]",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What suits a pipeline anywhere. Over TCP each exchange of Java with a Python process may wait 40 ms for an
acknowledgement that is delayed, which most of the time of a small trigger was. A batch that is run again must have its
rows in the same tasks as before, or the sink cannot tell what it has written: so tasks are not for sizes to decide."""

LOCAL_DEFAULTS: Mapping[str, str] = {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
"""What suits one machine besides. Spark's 200 shuffle partitions are made for hundreds of cores."""

SAME_PYTHON_DEFAULTS: Mapping[str, str] = {"spark.python.daemon.module": "barnabas.spark_daemon"}
"""What suits one machine where Spark runs this Python, which has this package: tasks begin with all of it imported."""

_MASTER = "spark.master"
_PYTHON = "PYSPARK_PYTHON"
_SET_BY_SPARK = ("spark.ui.showConsoleProgress",)
"""What Spark sets by itself for every Python program that it takes for a shell: nobody has asked for it."""

_JVM_IS_THERE = "PYSPARK_GATEWAY_PORT"
"""What `spark-submit` tells the Python that it starts."""


def session(
    app_name: str = "barnabas", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, made if there is none yet. JavaMissingError says what to install.

    A session that is there already keeps its settings, but for those that are given.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    given = given_settings(app_name, master, settings)
    builder = SparkSession.builder.config(map=dict(given))
    if not _has_session():
        prepare_environment()
        # The JVM must be told when it starts how much memory it may have, and only then knows spark-defaults.conf.
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(given.items())))  # noqa: SLF001
        known = {name: value for name, value in SparkConf().getAll() if name not in _SET_BY_SPARK}
        builder = builder.config(map=dict(remaining_defaults({**known, **given})))
    spark = builder.getOrCreate()
    ship(spark)  # first, as what is registered remembers what it comes with
    register(spark)
    return spark


def given_settings(app_name: str, master: str | None, settings: Mapping[str, str] | None) -> dict[str, str]:
    """What the caller says, as settings of Spark."""
    named = {"spark.app.name": app_name} if master is None else {"spark.app.name": app_name, _MASTER: master}
    return {**named, **(settings or {})}


def remaining_defaults(known: Mapping[str, str]) -> dict[str, str]:
    """The defaults about which nobody has said anything."""
    defaults = dict(DEFAULTS)
    if is_local(known.get(_MASTER, DEFAULTS[_MASTER])):
        defaults |= LOCAL_DEFAULTS
        if os.environ.get(_PYTHON) == sys.executable and is_installed():
            defaults |= SAME_PYTHON_DEFAULTS
    return {name: value for name, value in defaults.items() if name not in known}


def prepare_environment() -> None:
    """What Spark takes from the environment: its Java, and the Python of its workers."""
    if _JVM_IS_THERE not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java())
    # Workers are to be the same Python with the same packages, not whatever the PATH finds first.
    if not os.environ.get(_PYTHON):
        os.environ[_PYTHON] = sys.executable


def is_installed() -> bool:
    """Whether any process of this Python has this package, not just those that are told where it is."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution("barnabas")
    except PackageNotFoundError:
        return False
    return True


def _has_session() -> bool:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        SparkSession.active()
    except PySparkRuntimeError:
        return False
    return True
