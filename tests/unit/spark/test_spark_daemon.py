"""Tasks import the installed PySpark, not the archive that Spark puts before it, where both are the same."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark

PROGRAM = """
from barnabas.spark_daemon import prefer_installed
prefer_installed()
import pyspark
print(pyspark.__file__)
"""
INSTALLED = Path(pyspark.__file__)


def imported_with(path: str) -> Path:
    environment = os.environ | {"PYTHONPATH": path}
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=60
    )
    return Path(output.stdout.strip())


def test_the_archive_of_the_installed_package_is_passed_over() -> None:
    archive = INSTALLED.parent / "python" / "lib" / "pyspark.zip"
    assert archive.exists()
    assert imported_with(f"/nowhere{os.pathsep}{archive}") == INSTALLED


def test_the_archive_of_another_spark_stays_first(tmp_path: Path) -> None:
    archive = tmp_path / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("pyspark/__init__.py", "")
    assert imported_with(str(archive)) == archive / "pyspark" / "__init__.py"


def test_without_an_archive_nothing_changes() -> None:
    assert imported_with("") == INSTALLED


FORKS = """
import os
import numpy.random
from barnabas.spark_daemon import reseed
os.register_at_fork(after_in_child=reseed)
for _ in range(2):
    if os.fork() == 0:
        print(numpy.random.randint(1 << 60), flush=True)
        os._exit(0)
    os.wait()
"""


def test_processes_draw_random_numbers_of_their_own() -> None:
    output = subprocess.run([sys.executable, "-c", FORKS], check=True, stdout=subprocess.PIPE, text=True, timeout=60)
    assert len(set(output.stdout.split())) == 2


ADDRESSES_MAX_KB = 600_000
"""Libraries take some 350 MB, and Arrow reserves another gigabyte with the first thing that it allocates."""
IMPORTS = """
import importlib
from pathlib import Path
from barnabas.spark_daemon import NEEDED, WORKER
for module in (WORKER, *NEEDED):
    importlib.import_module(module)
print(Path("/proc/self/status").read_text())
"""


def test_imports_leave_tasks_the_addresses_that_spark_limits() -> None:
    # What is taken before the fork counts in every task against spark.executor.pyspark.memory. With many cores OpenBLAS
    # would take more, but Spark tells its Python processes not to have more threads than a task has cores.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    output = subprocess.run(
        [sys.executable, "-c", IMPORTS], env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=60
    )
    status = dict(line.split(":", 1) for line in output.stdout.splitlines() if ":" in line)
    assert int(status["VmSize"].removesuffix("kB")) < ADDRESSES_MAX_KB
