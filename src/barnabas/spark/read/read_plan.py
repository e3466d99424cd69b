"""What the driver sends to the tasks of a read: one plan for all of them, and a range for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from barnabas.client.offset_queries import READ_COMMITTED, READ_UNCOMMITTED
from barnabas.spark.client_options import CONSUMER_SETTINGS, client_settings, ignored_settings, naming_options
from barnabas.spark.python_workers import settle_in
from barnabas.spark.read.fetch_settings import FetchSettings
from barnabas.spark.read.source_options import Query, SourceOptions, parse_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow

    from barnabas.client.client_settings import ClientSettings
    from barnabas.spark.read.offset_ranges import OffsetRange


class RangePartition(InputPartition):
    """The range of one task."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)


@dataclass(frozen=True)
class ReadPlan:
    """How to read, according to the options. It is sent to the tasks."""

    options: SourceOptions
    settings: ClientSettings
    fetch: FetchSettings
    warnings: tuple[str, ...]
    """About options that have no effect."""


def plan_read(options: Mapping[str, str], query: Query) -> ReadPlan:
    """The plan of a read; OptionError if an option is wrong."""
    settle_in()
    parsed = parse_source(options, query)
    settings = client_settings(parsed.client)
    with naming_options():
        fetch = FetchSettings.from_options(parsed.client, parsed.poll_timeout_ms)
    return ReadPlan(
        parsed, settings, fetch, parsed.warnings + ignored_settings(settings, CONSUMER_SETTINGS, "this source")
    )


def read_partition(plan: ReadPlan, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
    """The rows of one task. If there is nothing to read, Spark makes up a partition that has no range."""
    if not isinstance(partition, RangePartition):
        return iter(())
    from barnabas.spark.read.range_reader import read_range

    settle_in()
    return read_range(
        plan.settings,
        partition.value,
        include_headers=plan.options.include_headers,
        isolation_level=READ_COMMITTED if plan.options.read_committed else READ_UNCOMMITTED,
        fail_on_data_loss=plan.options.fail_on_data_loss,
        fetch_settings=plan.fetch,
    )
