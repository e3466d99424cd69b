"""The daemon that Spark forks its Python workers from, with everything that tasks need already imported.

There are as many workers as cores, and Spark ends those that have been idle for a minute. Each one would import
PySpark, Arrow and this package by itself, and PySpark from an archive without bytecode, which Spark puts before the
installed package: a second of work before the first row. Here that is done once, before the fork. (Processes that plan
beside the driver are forked from PySpark's own daemon, whatever the settings say.)

PySpark's daemon imports nothing large before it forks, because libraries may start threads, which do not survive a
fork. None of the threads that start here is missed: OpenBLAS stops its own before a fork, and that of jemalloc, a spare
allocator of Arrow's, only cleans up. Nothing may be allocated in Arrow here: its first allocation reserves a gigabyte
of address space, and whatever is reserved before the fork counts against `spark.executor.pyspark.memory`.

This module is outside of `barnabas.spark`, which would import PySpark before anything here could run. It is started as
`python -m barnabas.spark_daemon pyspark.worker`, by `spark.python.daemon.module` (see `barnabas.spark.session`).
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
NEEDED: Final = (
    "barnabas.spark.write.sink",
    "barnabas.spark.write.delivery",
    "barnabas.spark.data_source",
    "barnabas.spark.read.range_reader",
)


def main() -> None:
    prefer_installed()
    from pyspark import daemon

    from barnabas.spark.python_workers import quiet

    for module in (WORKER, *NEEDED):
        importlib.import_module(module)
    os.register_at_fork(after_in_child=reseed)
    vars(daemon)["worker"] = quiet(daemon.worker)
    gc.freeze()
    daemon.manager()


def prefer_installed() -> None:
    """Makes PySpark be imported from the installed package if the archive belongs to that package."""
    archive = next((path for path in sys.path if Path(path).name == ARCHIVE), None)
    if archive is None:
        return
    place = sys.path.index(archive)
    sys.path.remove(archive)
    installed = importlib.util.find_spec("pyspark")
    if installed is None or installed.origin is None or Path(installed.origin).parent not in Path(archive).parents:
        sys.path.insert(place, archive)


def reseed() -> None:
    """Gives each process random numbers of its own. Python does so by itself after a fork, NumPy does not."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


if __name__ == "__main__":
    main()
