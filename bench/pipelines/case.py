"""What a case of the pipelines' benchmark is, and what it runs on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.case import LOAD_SECONDS_MAX, CaseError, run_load
from bench.loads.produce import ProduceLoad
from bench.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

    from bench.case import Row
    from bench.nodes import Node
    from bench.results import Figures

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rows go through."""

    small_rows: int = 4_000_000
    large_rows: int = 1_000_000
    short_topic_rows: int = 1_000_000
    long_topic_rows: int = 10_000_000
    sink_rows: int = 4_000_000
    triggers: int = 50
    warm_up_triggers: int = 10
    rows_per_trigger: int = 100


QUICK = Plan(
    small_rows=200_000,
    large_rows=50_000,
    short_topic_rows=50_000,
    long_topic_rows=500_000,
    sink_rows=50_000,
    triggers=5,
    warm_up_triggers=2,
)


@dataclass(frozen=True, slots=True)
class Connector:
    label: str
    format: str


OURS = Connector("Barnabas", "barnabas")
SPARKS = Connector("Spark's connector", "kafka")


@dataclass(frozen=True, slots=True)
class Data:
    """A topic that is filled once and read by everyone."""

    rows: int
    record_bytes: int = 100
    codec: str = "none"


@dataclass(slots=True)
class Bench:
    """One node and one session, for all connectors and rounds."""

    spark: SparkSession
    node: Node
    plan: Plan
    folder: Path
    _filled: dict[Data, tuple[Topic, int]] = field(default_factory=dict)

    def topic_with(self, data: Data) -> tuple[str, int]:
        """The name of the topic with this data, and how many records it really has."""
        if data not in self._filled:
            self._filled[data] = self._fill(data)
        topic, rows = self._filled[data]
        return topic.name, rows

    def _fill(self, data: Data) -> tuple[Topic, int]:
        topic = Topic.create(self.node.bootstrap, PARTITIONS)
        load = ProduceLoad(
            bootstrap=self.node.bootstrap,
            broker_pid=self.node.pid,
            topic=topic.name,
            partitions=PARTITIONS,
            record_bytes=data.record_bytes,
            acks="1",
            codec=data.codec,
            seconds=LOAD_SECONDS_MAX,
            records_max=data.rows,
        )
        acknowledged = int(run_load("produce", load)["records_total"])
        if (found := topic.record_count()) != acknowledged:
            raise CaseError(f"{topic.name} holds {found:,} records, but {acknowledged:,} were acknowledged")
        return topic, acknowledged

    def read(self, connector: Connector, topic: str) -> DataFrameReader:
        reader = self.spark.read.format(connector.format)
        return reader.option("kafka.bootstrap.servers", self.node.bootstrap).option("subscribe", topic)

    def write(self, connector: Connector, frame: DataFrame, topic: str) -> DataFrameWriter:
        writer = frame.write.format(connector.format).mode("append")
        return writer.option("kafka.bootstrap.servers", self.node.bootstrap).option("topic", topic)


@dataclass(frozen=True, slots=True)
class PipelineCase:
    name: str
    rows: tuple[Row, ...]
    run: Callable[[Bench, Connector], Figures]
    ours_only: bool = False
    """For what the other connector does not have."""
