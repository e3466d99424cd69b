"""Spark's Python workers: how this package reaches them, and what it does to stay out of their way.

On a cluster, executors import the package as the driver has it (`ship`), so it does not have to be installed there. Its
dependencies (Arrow, NumPy, the codecs) contain compiled code and must be installed in the executors' Python.

A worker lives on between tasks (`settle_in`). After each task Spark has it collect garbage among all of its objects,
including those of every imported library. That took 20 ms each time, ten times per trigger of a small query. Objects
that exist when the first task begins live as long as the process does, so they are excluded from then on.

Spark hangs up on a worker that has been idle for a minute. The worker then exits, but first tries to answer, and over a
Unix domain socket that attempt prints a stack trace. Workers that come through here exit silently (`quiet`); the one
that Spark starts to look for data sources, once per program, does not come through here.
"""

from __future__ import annotations

import gc
import os
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import barnabas

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    Worker = Callable[[socket.socket, bool], int]

ARCHIVE: Final = "barnabas.zip"
PATHS: Final = "PYTHONPATH"

_DAEMON: Final = "pyspark.daemon"
"""The program that workers are forked from unless it is `spark_daemon`. They call its `worker` for each task."""

_settled_process_id: int | None = None


def ship(spark: SparkSession) -> None:
    """Makes executors import the package that this process has. In local mode they do so anyway."""
    context = spark.sparkContext
    if is_local(str(context.master)) or ARCHIVE in (context._python_includes or ()):  # noqa: SLF001
        return
    # In the session's own temporary folder, because executors may ask for the file as long as the session lives.
    package = str(archive(Path(context._temp_dir)))  # noqa: SLF001
    context.addPyFile(package)
    # Processes that plan beside the driver are not told about such files, and may run the executors' Python.
    paths = (context.environment.get(PATHS), package)
    context.environment[PATHS] = os.pathsep.join(path for path in paths if path)


def is_local(master: str) -> bool:
    """`local`, `local[4]`, `local[*,3]`; but not `local-cluster[…]`, which has executor processes."""
    return master == "local" or master.startswith("local[")


def archive(folder: Path) -> Path:
    """The package as a zip file that Python can import from."""
    package = Path(barnabas.__file__).parent
    with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                zipped.write(file, file.relative_to(package.parent))
    return folder / ARCHIVE


def settle_in() -> None:
    """Called in each process that plans or runs tasks, as late as possible; only the first call has an effect."""
    global _settled_process_id
    if _settled_process_id != os.getpid():
        _settled_process_id = os.getpid()
        gc.freeze()
        program = sys.modules["__main__"]
        if program.__spec__ is not None and program.__spec__.name == _DAEMON:
            vars(program)["worker"] = quiet(vars(program)["worker"])


def quiet(worker: Worker) -> Worker:
    """A worker that exits at once when Spark has hung up on it: nobody waits for its answer, and closing its streams
    would only try to send it again."""

    def run(connection: socket.socket, is_authenticated: bool) -> int:
        try:
            return worker(connection, is_authenticated)
        except BrokenPipeError:
            os._exit(0)

    return run
