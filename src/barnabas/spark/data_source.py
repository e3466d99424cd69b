"""`format("barnabas")`: the entry point at which Spark asks for readers and writers.

Options are checked when a query is loaded, as far as that is possible before it is known whether it is a batch or a
streaming query, and again when it is planned or started. Spark takes each of these steps in a process of its own, so
each part is imported only where it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.spark.python_workers import settle_in
from barnabas.spark.raw_options import FORMAT, OptionError
from barnabas.spark.read.read_plan import ReadPlan, plan_read
from barnabas.spark.read.source_options import Query, SourceOptions, parse_source

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

    from barnabas.spark.read.batch_reader import BatchReader
    from barnabas.spark.read.stream_reader import StreamReader

COLUMNS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS_WITH_HEADERS: Final = StructType([*COLUMNS.fields, StructField("headers", ArrayType(HEADER))])


class BarnabasDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        settle_in()
        return _columns(parse_source(self.options, query=None))

    def reader(self, schema: StructType) -> BatchReader:
        from barnabas.spark.read.batch_reader import BatchReader, FilteringBatchReader
        from barnabas.spark.read.pushdown import filters_are_pushed

        plan = self._plan(Query.BATCH, schema)
        return FilteringBatchReader(plan) if filters_are_pushed() else BatchReader(plan)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        from barnabas.spark.read.stream_reader import RefusedStreamReader, StreamReader

        try:
            return StreamReader(self._plan(Query.STREAMING, schema))
        except OptionError as refusal:
            return RefusedStreamReader(refusal)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from barnabas.spark.write.sink import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from barnabas.spark.write.sink import StreamWriter

        return StreamWriter(self.options, schema, overwrite)

    def _plan(self, query: Query, schema: StructType) -> ReadPlan:
        plan = plan_read(self.options, query)
        ours = _columns(plan.options)
        if _names_and_types(schema) != _names_and_types(ours):
            raise OptionError("schema", f"cannot be chosen: a topic always has the columns {ours.simpleString()}")
        return plan


def _columns(options: SourceOptions) -> StructType:
    return COLUMNS_WITH_HEADERS if options.include_headers else COLUMNS


def _names_and_types(schema: StructType) -> list[tuple[str, DataType]]:
    return [(each.name, each.dataType) for each in schema.fields]
