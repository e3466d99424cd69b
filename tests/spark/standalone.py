"""Spark's standalone cluster: a master and workers as processes of their own, and a Python for their executors."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from barnabas.spark.java import find_java
from tests.peers import HOST, SHORT_LIVED, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARK_HOME = Path(pyspark.__file__).parent
START_S_MAX = 60.0
END_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Cluster:
    master: str
    folders: tuple[Path, ...]
    """Of the workers: each has a folder in it for every executor."""

    def executors(self) -> list[int]:
        """How many each worker has had."""
        return [len(list(folder.glob("app-*/*"))) for folder in self.folders]


@contextlib.contextmanager
def cluster(folder: Path, *, workers: int) -> Iterator[Cluster]:
    """For as long as the block lasts. Each worker has one core, so that an application with two needs two."""
    with contextlib.ExitStack() as stack:
        place = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        master_log = folder / "master.log"
        stack.enter_context(_process("master.Master", place, master_log))
        master = _said(master_log, r"Starting Spark master at (spark://\S+)")
        folders = tuple(folder / f"worker-{number}" for number in range(workers))
        for each in folders:
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(each)]
            stack.enter_context(_process("worker.Worker", [*place, *size, master], each.with_suffix(".log")))
        for each in folders:
            _said(each.with_suffix(".log"), r"(Successfully registered with master)")
        yield Cluster(master, folders)


def python_without_barnabas(folder: Path) -> Path:
    """An interpreter with the libraries of this one, but not with the package under test.

    Libraries are found through a path file. Those that lie beside them, among them the one of an editable install, are
    not read then.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    scheme = {"base": str(folder), "platbase": str(folder)}
    (Path(sysconfig.get_path("purelib", "venv", scheme)) / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    tried = subprocess.run(
        [python, "-c", "import pyarrow, pyspark; import barnabas"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'barnabas'" in tried.stderr, tried.stderr
    return python


@contextlib.contextmanager
def _process(name: str, arguments: list[str], log: Path) -> Iterator[None]:
    """One of Spark's daemons, which takes its executors along when it ends."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    # Executors are to have what they are given, and not what this process has in its environment.
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    environment |= {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(find_java()), "SPARK_LOCAL_IP": HOST}
    environment |= {"SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED["spark.driver.extraJavaOptions"]}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, cwd=log.parent, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(END_S_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _said(log: Path, pattern: str) -> str:
    found: list[str] = []

    def is_said() -> bool:
        found[:] = re.findall(pattern, log.read_text(errors="replace"))
        return bool(found)

    wait_until(is_said, f"{log} says {pattern}", START_S_MAX)
    return found[0]


def run_example(name: str, *arguments: str, python: Path, folder: Path) -> str:
    """An example as a user starts it, with executors that have this Python; what it printed.

    The cluster has two cores, for which Spark's 200 shuffle partitions are a hundred times too many.
    """
    settings = folder / "conf"
    settings.mkdir()
    flags = SHORT_LIVED["spark.driver.extraJavaOptions"]
    defaults = {**SHORT_LIVED, "spark.executor.extraJavaOptions": flags, "spark.sql.shuffle.partitions": "2"}
    (settings / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in defaults.items()))
    told = {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": HOST, "TMPDIR": folder, "SPARK_CONF_DIR": settings}
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}", *arguments],
        env={**os.environ, **{variable: str(value) for variable, value in told.items()}},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Py4JException" not in done.stderr, "it ends without noise"
    return done.stdout
