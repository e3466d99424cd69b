"""What the driver hands to the tasks of a read: how to read, the same for all of them, and each its range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from barnabas.client.offsets import READ_COMMITTED, READ_UNCOMMITTED
from barnabas.spark.options import Query, SourceOptions, parse_source
from barnabas.spark.resident import settle_in
from barnabas.spark.settings import OF_SOURCE, FetchSettings, client_settings, ignored, naming_the_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow

    from barnabas.client.settings import ClientSettings
    from barnabas.spark.planning import OffsetRange


class RangePartition(InputPartition):
    """The range of one task."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)


@dataclass(frozen=True)
class ReadPlan:
    """How to read, as the options say. It travels to the tasks."""

    options: SourceOptions
    settings: ClientSettings
    fetch: FetchSettings
    warnings: tuple[str, ...]
    """What was given and has no effect."""


def plan_read(options: Mapping[str, str], query: Query) -> ReadPlan:
    """All that options say about a read, or what is wrong with them."""
    settle_in()
    parsed = parse_source(options, query)
    settings = client_settings(parsed.client)
    with naming_the_option():
        fetch = FetchSettings.from_options(parsed.client, parsed.poll_timeout_ms)
    return ReadPlan(parsed, settings, fetch, parsed.warnings + ignored(settings, OF_SOURCE, "this source"))


def read_partition(plan: ReadPlan, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
    """The rows of one task. Spark makes up a partition without a range where there is nothing to read."""
    if not isinstance(partition, RangePartition):
        return iter(())
    from barnabas.spark.reading import read_range

    settle_in()
    return read_range(
        plan.settings,
        partition.value,
        include_headers=plan.options.include_headers,
        isolation_level=READ_COMMITTED if plan.options.read_committed else READ_UNCOMMITTED,
        fail_on_data_loss=plan.options.fail_on_data_loss,
        fetch_settings=plan.fetch,
    )
