"""The process that Spark forks the Python processes of its tasks from, with what they need imported already.

Tasks have as many as there are cores, and Spark ends those that have had nothing to do for a minute. Each would import
PySpark, Arrow and this package by itself, and PySpark from an archive without bytecode at that, which Spark puts before
the installed package: a second of work before the first row. Here that is done once, before the fork. (What plans
beside the driver is forked from PySpark's own, whatever the settings say.)

PySpark imports nothing big before it forks, as libraries may start threads then, which a fork does not take along.
Those that start here are none that a fork would miss: OpenBLAS stops its own for it, and the one of jemalloc, which
Arrow has in reserve, only tidies up. Nor may anything be allocated in Arrow here: with the first allocation it reserves
a gigabyte of addresses, and all that is taken before the fork counts against `spark.executor.pyspark.memory`.

It stands outside of `barnabas.spark`, which would import PySpark before anything here is run. It is started as
`python -m barnabas.spark_daemon pyspark.worker`, by `spark.python.daemon.module` (`barnabas.spark.session`).
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Final

ARCHIVE: Final = "pyspark.zip"
WORKER: Final = "pyspark.worker"
NEEDED: Final = ("barnabas.spark.sink", "barnabas.spark.writing", "barnabas.spark.source", "barnabas.spark.reading")


def main() -> None:
    prefer_installed()
    from pyspark import daemon

    from barnabas.spark.resident import quiet

    for module in (WORKER, *NEEDED):
        importlib.import_module(module)
    os.register_at_fork(after_in_child=reseed)
    vars(daemon)["worker"] = quiet(daemon.worker)
    gc.freeze()
    daemon.manager()


def prefer_installed() -> None:
    """Has PySpark imported from the installed package, where that is the one the archive belongs to."""
    archive = next((path for path in sys.path if Path(path).name == ARCHIVE), None)
    if archive is None:
        return
    place = sys.path.index(archive)
    sys.path.remove(archive)
    installed = importlib.util.find_spec("pyspark")
    if installed is None or installed.origin is None or Path(installed.origin).parent not in Path(archive).parents:
        sys.path.insert(place, archive)


def reseed() -> None:
    """Has processes draw random numbers of their own. Python sees to that by itself, NumPy does not."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


if __name__ == "__main__":
    main()
