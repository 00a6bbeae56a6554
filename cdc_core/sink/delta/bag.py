"""Tables without a key, as bags: equal rows are kept as often as the source has them.

With REPLICA IDENTITY FULL an update or delete names its old row by all its columns. Any of several equal rows may go,
so the table after a slice is (lake + every after) − every before, each before taking away one row equal to it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core.sink.delta.change_slice import row_type
from cdc_core.sink.delta.keys import field_of
from cdc_core.sink.delta.target import conform, quoted

_META = ("__commit_lsn", "__tx_index", "__commit_ts")


def bag_after(rows: DataFrame, lake: DataFrame | None, schema: T.StructType) -> DataFrame:
    """The table's whole content after a slice. Shape: changelog rows, lake rows -> lake rows of ``schema``."""
    plus = arrivals(rows, schema)
    if lake is not None:
        plus = conform(lake, schema).unionByName(plus)
    minus = _images(rows.filter("before is not null"), "before", schema)
    both = plus.withColumn("__sign", F.lit(1)).unionByName(minus.withColumn("__sign", F.lit(-1)))
    fields = [field for field in schema.fields if field.name not in _META]
    alike = Window.partitionBy(F.struct(*[_comparable(F.col(quoted(f.name)), f.dataType) for f in fields]))
    order = alike.orderBy(F.col("__sign").desc(), "__commit_lsn", "__tx_index")
    gone = F.count_if(F.col("__sign") < 0).over(alike)
    counted = both.withColumn("__gone", gone).withColumn("__place", F.row_number().over(order))
    left = counted.filter((F.col("__sign") > 0) & (F.col("__place") > F.col("__gone")))
    return left.drop("__sign", "__gone", "__place")


def arrivals(rows: DataFrame, schema: T.StructType) -> DataFrame:
    """The rows that a slice's events leave, as lake rows of ``schema``."""
    return _images(rows.filter("after is not null"), "after", schema)


def _images(rows: DataFrame, image: str, schema: T.StructType) -> DataFrame:
    fields = [field_of(image)(name).alias(name) for name in row_type(rows).fieldNames()]
    return conform(rows.select(*fields, *_META), schema)


def _comparable(value: Column, kind: T.DataType) -> Column:
    """An expression by which equal values group together and different ones do not, for types Spark will not group."""
    if isinstance(kind, T.MapType):
        return F.array_sort(F.map_entries(value))
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return value.cast("string")  # 0 and -0 are one group to Spark, but two texts in the source
    return value
