"""The Delta tables' shape: made from the source's, grown with it, never shrunk, never silently bent.

A column the source gained is added (inside ``before`` and ``after`` too). A column it dropped stays and holds null from
then on. A column whose type changed goes on when the existing one holds every value of the new one; else the table
stops with a TableError that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core.errors import TableError
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.commit_log import table_exists

RESCUED = "__rescued"
META = (
    T.StructField("__commit_lsn", T.LongType()),
    T.StructField("__tx_index", T.LongType()),
    T.StructField("__commit_ts", T.TimestampType()),
)
CHANGELOG_PROPERTIES = {
    # The only columns that merges and retention filter by; statistics of values would make every append dearer.
    "delta.dataSkippingStatsColumns": "__commit_lsn,__tx_index,__commit_ts",
    "delta.checkpointInterval": "50",
}
# Deletion vectors would save little on tables of this engine's usual size and shut plain Parquet-minded readers out.
LAKE_PROPERTIES = {"delta.enableDeletionVectors": "false"}

_NEEDS_MAPPING = set(" ,;{}()\n\t=")
_DIGITS = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}


def lake_schema(row: T.StructType) -> T.StructType:
    """The lake table's schema from the struct of ``after``: columns, ``__rescued``, position and commit time."""
    return T.StructType([*row.fields, *META])


def ensure_table(
    spark: SparkSession, path: str, schema: T.StructType, table: TableId, properties: Mapping[str, str]
) -> T.StructType:
    """Make the table, or add what ``schema`` has more than it; the table's schema afterwards.

    Raises TableError for a type change that the existing column cannot hold, and for names Delta cannot tell apart.
    """
    schema = nullable(schema)
    _check_names(schema, table)
    if not table_exists(spark, path):
        builder = DeltaTable.createIfNotExists(spark).location(path).addColumns(schema)
        for name, value in {**properties, **_features(schema)}.items():
            builder = builder.property(name, value)
        builder.execute()
        return schema
    existing = nullable(spark.read.format("delta").load(path).schema)
    merged = merge_schemas(existing, schema, table)
    if merged == existing:
        return existing
    _enable(spark, path, _features(merged), _features(existing))
    empty = spark.createDataFrame([], merged)
    empty.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    return merged


def prepare_overwrite(
    spark: SparkSession, path: str, schema: T.StructType, table: TableId, properties: Mapping[str, str]
) -> None:
    """Make the table when it is missing, or switch on the Delta features that replacing its schema will need."""
    if not table_exists(spark, path):
        ensure_table(spark, path, schema, table, properties)
        return
    _check_names(schema, table)
    _enable(spark, path, _features(schema), _features(spark.read.format("delta").load(path).schema))


def merge_schemas(existing: T.StructType, incoming: T.StructType, table: TableId, inside: str = "") -> T.StructType:
    """``existing`` with the fields that only ``incoming`` has at its end, structs merged field by field.

    Names are compared as Delta does, without regard to case. Raises TableError where a type cannot be held.
    """
    by_name = {field.name.lower(): field for field in incoming.fields}
    fields = []
    for field in existing.fields:
        new = by_name.pop(field.name.lower(), None)
        if new is None:
            fields.append(field)
            continue
        name = f"{inside}{field.name}"
        if isinstance(field.dataType, T.StructType) and isinstance(new.dataType, T.StructType):
            merged = merge_schemas(field.dataType, new.dataType, table, f"{name}.")
            fields.append(T.StructField(field.name, merged))
            continue
        if not holds(field.dataType, new.dataType):
            raise TableError(
                f"Column {name} of {table} is {field.dataType.simpleString()} in the lake and became "
                f"{new.dataType.simpleString()} in the source, which it cannot hold.",
                f"Move the table's lake and changelog folders away and take a new snapshot of {table}.",
                str(table),
            )
        fields.append(field)
    return T.StructType(fields + [T.StructField(field.name, field.dataType) for field in by_name.values()])


def holds(existing: T.DataType, new: T.DataType) -> bool:
    """Whether every value of ``new`` can be cast to ``existing`` and stay the same value."""
    match existing, new:
        case T.ArrayType(), T.ArrayType():
            held = holds(existing.elementType, new.elementType)
        case T.DecimalType(), T.DecimalType():
            whole = existing.precision - existing.scale >= new.precision - new.scale
            held = whole and existing.scale >= new.scale
        case T.DecimalType(), T.IntegralType():
            held = existing.precision - existing.scale >= _DIGITS[type(new)]
        case T.IntegralType(), T.IntegralType():
            held = _DIGITS[type(existing)] >= _DIGITS[type(new)]
        case T.DoubleType(), T.FloatType() | T.ByteType() | T.ShortType() | T.IntegerType():
            held = True
        case T.TimestampNTZType(), T.DateType():
            held = True
        case _:
            held = existing == new
    return bool(held)


def conform(rows: DataFrame, schema: T.StructType) -> DataFrame:
    """``rows`` with exactly the columns of ``schema``, in its order and types; what is missing is null."""
    have = {field.name.lower(): field for field in rows.schema.fields}
    return rows.select(
        *[
            _conformed(F.col(quoted(field.name)), have[field.name.lower()].dataType, field.dataType).alias(field.name)
            if field.name.lower() in have
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in schema.fields
        ]
    )


def quoted(name: str) -> str:
    """A column's name as Spark's parser takes it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


def nullable(schema: T.StructType) -> T.StructType:
    """The schema with every field, element and value nullable, as Delta keeps it; field metadata is left out."""
    return T.StructType([T.StructField(field.name, _nullable(field.dataType)) for field in schema.fields])


def _conformed(value: Column, have: T.DataType, want: T.DataType) -> Column:
    if _nullable(have) == want:
        return value
    if isinstance(have, T.StructType) and isinstance(want, T.StructType):
        inner = {field.name.lower(): field for field in have.fields}
        fields = [
            _conformed(value.getField(inner[f.name.lower()].name), inner[f.name.lower()].dataType, f.dataType)
            if f.name.lower() in inner
            else F.lit(None).cast(f.dataType)
            for f in want.fields
        ]
        named = [field.alias(f.name) for field, f in zip(fields, want.fields, strict=True)]
        return F.when(value.isNotNull(), F.struct(*named)).otherwise(F.lit(None).cast(want))
    return value.cast(want)


def _nullable(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return nullable(kind)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def _features(schema: T.StructType) -> dict[str, str]:
    out = {}
    if any(_NEEDS_MAPPING & set(name) for name in _names(schema)):
        out["delta.columnMapping.mode"] = "name"
    if "timestamp_ntz" in schema.simpleString():
        out["delta.feature.timestampNtz"] = "supported"
    return out


def _enable(spark: SparkSession, path: str, wanted: dict[str, str], had: dict[str, str]) -> None:
    new = {name: value for name, value in wanted.items() if name not in had}
    if new:
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in new.items())
        spark.sql(f"ALTER TABLE delta.{quoted(path)} SET TBLPROPERTIES ({listed})")


def _names(schema: T.StructType) -> list[str]:
    inner = [f.dataType for f in schema.fields if isinstance(f.dataType, T.StructType)]
    return [field.name for field in schema.fields] + [name for struct in inner for name in _names(struct)]


def _check_names(schema: T.StructType, table: TableId, inside: str = "") -> None:
    seen: set[str] = set()
    for field in schema.fields:
        if field.name.lower() in seen:
            raise TableError(
                f"Column {inside}{field.name} of {table} meets another of the same name: Delta tells no cases apart, "
                "and wal2lake's own columns begin with __.",
                "Leave one of them out by column.exclude.list, or rename it in the source.",
                str(table),
            )
        seen.add(field.name.lower())
        if isinstance(field.dataType, T.StructType):
            _check_names(field.dataType, table, f"{field.name}.")
