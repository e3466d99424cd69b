"""One Spark session for all tests of pipelines: starting one takes longer than most of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import barnabas.spark
from tests.peers import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

QUICK_START: Final = Path(__file__).with_name("quick_start")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(QUICK_START), prepend=os.pathsep)
        session = start(folder)
        yield session
        session.stop()


def start(folder: Path) -> SparkSession:
    settings = {
        **SHORT_LIVED,
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.streaming.stopTimeout": "60s",
    }
    session = barnabas.spark.session("tests", master="local[2]", settings=settings)
    session.sparkContext.setLogLevel("ERROR")
    return session
