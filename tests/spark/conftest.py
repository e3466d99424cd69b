"""One Spark session for all tests of pipelines: starting one takes longer than most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import barnabas.spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.streaming.stopTimeout": "60s",
    }
    session = barnabas.spark.session("tests", master="local[2]", settings=settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
