"""This package on the executors of a cluster, in the version of the driver, without anybody installing it there.

What it needs beside itself (Arrow, NumPy, the codecs) holds compiled code and has to be in the Python of the executors.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import barnabas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE: Final = "barnabas.zip"
PATHS: Final = "PYTHONPATH"


def ship(spark: SparkSession) -> None:
    """Has executors import the package that this process has. On one machine they do so anyway."""
    context = spark.sparkContext
    if is_local(str(context.master)) or ARCHIVE in (context._python_includes or ()):  # noqa: SLF001
        return
    # The session's own folder for temporary files, as executors may ask for it as long as there is a session.
    package = str(archive(Path(context._temp_dir)))  # noqa: SLF001
    context.addPyFile(package)
    # Processes that plan beside the driver are not told of such files, and may have the Python of the executors.
    paths = (context.environment.get(PATHS), package)
    context.environment[PATHS] = os.pathsep.join(path for path in paths if path)


def is_local(master: str) -> bool:
    """`local`, `local[4]`, `local[*,3]`; `local-cluster[…]` has processes of its own."""
    return master == "local" or master.startswith("local[")


def archive(folder: Path) -> Path:
    """The package as a file from which Python imports."""
    package = Path(barnabas.__file__).parent
    with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                zipped.write(file, file.relative_to(package.parent))
    return folder / ARCHIVE
