"""Run a plain Arrow reader in Spark tasks: one item, one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_core.spark.errors import sent

Item = TypeVar("Item")


def to_spark_schema(schema: pa.Schema) -> StructType:
    """Arrow's schema as Spark's: timestamps without a zone become ``timestamp_ntz``, those with one ``timestamp``.

    Raises pyspark's UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION for a type that Spark has not.
    """
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def read_by_tasks(
    spark: SparkSession,
    items: Sequence[Item],
    read: Callable[[Item], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """A DataFrame whose partition n holds what ``read(items[n])`` yields, read on the workers when it is asked for.

    ``items`` and ``read`` are pickled into the task, so an item is a path or a range, never data. ``read`` may run
    again (a retry, a second action) and must then yield the same. Batches are cast to ``schema`` where they differ
    from it. With no items the DataFrame is empty.
    """
    held = tuple(items)

    def run(ids: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with sent():
            for batch in ids:
                for number in batch.column(0).to_pylist():
                    for read_batch in read(held[number]):
                        yield read_batch if read_batch.schema.equals(schema) else read_batch.cast(schema)

    count = len(held)
    return spark.range(0, count, 1, max(count, 1)).mapInArrow(run, to_spark_schema(schema))
