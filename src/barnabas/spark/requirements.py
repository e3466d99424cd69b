"""What pipelines need of a Python: of this one, and of the one in which Spark runs tasks.

This one must have the extra `spark`. Spark's workers run the Python that `PYSPARK_PYTHON` named when the session was
made, else the first `python3` of the PATH. Where the environment of this program is not activated, that is another
Python, which has none of these packages: the first read would then fail on pages of Java.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.spark.python_workers import PATHS, is_local

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

EXTRA: Final = ("pyspark", "pyarrow")
"""What the extra `spark` brings. Avro's library is left out: only those who use Avro miss it."""

NEEDED_BY_TASKS: Final = ("barnabas.spark", "pyarrow", "numpy", "crc32c", "cramjam", "xxhash")
"""PySpark is not among them, as Spark brings its own along."""

ANSWER_S_MAX: Final = 60.0

_QUESTION: Final = """
import importlib.util, json, sys
places, names = json.loads(sys.argv[1])
sys.path[1:1] = places
def is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
print(json.dumps([list(sys.version_info[:2]), [name for name in names if not is_there(name)]]))
"""


class WorkerPythonError(RuntimeError):
    """Spark's workers run a Python that cannot run tasks of ours; the message says what to set."""


class Answer(NamedTuple):
    version: tuple[int, int]
    missing: tuple[str, ...]


def require_extra(modules: tuple[str, ...] = EXTRA) -> None:
    """ModuleNotFoundError with what to install, where this Python lacks one of these."""
    for name in modules:
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"No module named {name!r}, which barnabas.spark needs: pip install 'barnabas[spark]'", name=name
            )


def check_worker_python(spark: SparkSession) -> None:
    """WorkerPythonError where tasks are certain to fail.

    Only on one machine: executors elsewhere have a Python of their own, at a path that may exist only there. Nor is a
    session of Spark Connect asked, whose driver is elsewhere.
    """
    if not hasattr(spark, "_jsparkSession") or not is_local(str(spark.sparkContext.master)):
        return
    context = spark.sparkContext
    python = str(context.pythonExec)
    if is_this_python(python):
        return
    try:
        answer = ask(python, _environment(context), _places(context))
    except subprocess.TimeoutExpired:
        warnings.warn(f"{python}, which Spark's workers run, does not answer: tasks may fail", stacklevel=3)
        return
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise WorkerPythonError(_message(python, f"which does not run ({error})")) from error
    if answer.version != sys.version_info[:2]:
        ours, theirs = (f"{major}.{minor}" for major, minor in (sys.version_info[:2], answer.version))
        raise WorkerPythonError(_message(python, f"which is Python {theirs} where this program runs {ours}"))
    if answer.missing:
        lacks = ", ".join(name.partition(".")[0] for name in answer.missing)
        raise WorkerPythonError(_message(python, f"which lacks {lacks}"))


def is_this_python(python: str) -> bool:
    """Whether a program, as named for workers, is the interpreter of this process in the same environment.

    What a link leads to does not tell: the Pythons of all environments are links to the same program.
    """
    found = shutil.which(python)
    if found is None or not sys.executable:
        return False
    theirs, ours = Path(found).absolute(), Path(sys.executable).absolute()
    return theirs.parent == ours.parent and theirs.resolve() == ours.resolve()


def ask(python: str, environment: Mapping[str, str], places: list[str]) -> Answer:
    """Which version a Python has, and what it lacks that tasks need."""
    asked = subprocess.run(  # noqa: S603 (Spark runs the same program)
        [python, "-c", _QUESTION, json.dumps([places, NEEDED_BY_TASKS])],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=ANSWER_S_MAX,
        check=True,
    )
    version, missing = json.loads(asked.stdout.splitlines()[-1])
    return Answer((version[0], version[1]), tuple(missing))


def _environment(context: SparkContext) -> dict[str, str]:
    """That of workers, as far as it says where modules are."""
    paths = (context.environment.get(PATHS), os.environ.get(PATHS))
    return {**os.environ, PATHS: os.pathsep.join(path for path in paths if path)}


def _places(context: SparkContext) -> list[str]:
    """Where workers look for modules that were given to the session by `addPyFile`."""
    from pyspark import SparkFiles

    folder = SparkFiles.getRootDirectory()
    included: list[Any] = context._python_includes or []  # noqa: SLF001 (PySpark has no other way to tell)
    return [folder, *(os.path.join(folder, str(name)) for name in included)]


def _message(python: str, problem: str) -> str:
    found = shutil.which(python) or python
    return (
        f"Spark's workers run {found}, {problem}: set PYSPARK_PYTHON={sys.executable} before the session starts "
        "(or spark.pyspark.python, with spark-submit), or use barnabas.spark.session()"
    )
