"""Expressions and the commit that all changes by Spark share: equality of keys and values, kept values, a MERGE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core.lake.apply.staging import StagedFacts
from cdc_core.lake.delta.definition import fields_of
from cdc_core.lake.names import META, RESCUED

# Types that represent every text that PostgreSQL prints (``row_keys.is_total`` for Spark types).
_TOTAL = (T.IntegralType, T.FloatType, T.DoubleType, T.StringType, T.BooleanType, T.BinaryType)
TEXTS = T.MapType(T.StringType(), T.StringType())
_META = tuple(each.name for each in META)


@dataclass(frozen=True, slots=True)
class Commit:
    """The target table and its commit: ``txn`` id and version, and ``metadata`` for its history."""

    lake: str
    txn: str
    version: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of inserted, updated and deleted rows."""

    inserted: int
    updated: int
    deleted: int


def quoted(name: str) -> str:
    """Quote a column's name for Spark's parser, with any characters."""
    return "`" + name.replace("`", "``") + "`"


def merge_into(session: SparkSession, rows: DataFrame, commit: Commit, condition: Column) -> Any:
    """Return a MERGE of rows ``s`` into the table ``t`` with the given commit's properties."""
    session.conf.set("spark.databricks.delta.write.txnAppId", commit.txn)
    session.conf.set("spark.databricks.delta.write.txnVersion", str(int(commit.version)))  # an Lsn prints otherwise
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", commit.metadata)
    return DeltaTable.forPath(session, commit.lake).alias("t").merge(rows.alias("s"), condition)


def before_truncation(facts: StagedFacts) -> Column:
    """Whether a row of the table ``t`` precedes the truncate."""
    assert facts.truncated is not None
    if not facts.guarded:
        return F.lit(True)
    lsn, index = F.col("t.__commit_lsn"), F.col("t.__tx_index")
    return (lsn < facts.truncated[0]) | ((lsn == facts.truncated[0]) & (index < facts.truncated[1]))


def truncation_position(facts: StagedFacts, names: Sequence[str] = _META) -> dict[str, Column]:
    """Return the truncate's position and time under three names."""
    assert facts.truncated is not None
    lsn, index, at = facts.truncated
    time = F.timestamp_micros(F.lit(at)) if at is not None else F.lit(None).cast("timestamp")
    return {names[0]: F.lit(lsn), names[1]: F.lit(index), names[2]: time}


def with_kept_texts(mine: Column, theirs: Column, keep: Column) -> Column:
    """Return a row's texts and those of the lake row for kept columns; null if there are none."""
    none = F.create_map().cast(TEXTS)
    kept = F.map_filter(F.coalesce(theirs, none), lambda name, _: F.array_contains(keep, name))
    joined = F.map_concat(F.coalesce(mine, none), kept)
    return F.when(F.size(joined) > 0, joined)


Field = Callable[[str], Column]


def field_of(struct: str) -> Field:
    """Return the accessor of a struct column's fields (or, with an alias such as ``t``, of a table's columns)."""
    return lambda name: F.col(f"{struct}.{quoted(name)}")


def same_key(schema: T.StructType, key: Sequence[str], one: Field, other: Field, null_safe: bool = False) -> Column:
    """Whether two rows have the same key, including texts that are part of it."""
    same = F.lit(True)
    for name in key:
        kind = schema[name].dataType
        mine, theirs = _comparable_key(one(name), kind), _comparable_key(other(name), kind)
        if isinstance(kind, _TOTAL):
            same = same & (mine.eqNullSafe(theirs) if null_safe else mine == theirs)
            continue
        same = same & mine.eqNullSafe(theirs)
        texts = [F.try_element_at(each(RESCUED), F.lit(name)) for each in (one, other)]
        same = same & texts[0].eqNullSafe(texts[1])
    return same


def _comparable_key(value: Column, kind: T.DataType) -> Column:
    return F.array_sort(F.map_entries(value)) if isinstance(kind, T.MapType) else value


def comparable(value: Column, kind: T.DataType) -> Column:
    """Return an expression for grouping equal values, for types by which Spark cannot group."""
    if isinstance(kind, T.MapType):
        return F.array_sort(F.map_entries(value))
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return value.cast("string")  # 0 and -0 are one group to Spark, but two texts in the source
    if "map<" in kind.simpleString():
        return F.to_json(value)  # a nested map
    return value


def parquet_files(session: SparkSession, *paths: str) -> DataFrame:
    """Return the rows of Parquet files; characters of patterns, such as ``*`` and ``[``, are those of the path."""
    return session.read.option("__globPaths__", "false").parquet(*paths)


def as_declared(rows: DataFrame, schema: pa.Schema) -> DataFrame:
    """Return the schema's columns in its order and types."""
    have = set(rows.columns)
    return rows.select(
        *[
            (F.col(quoted(each.name)) if each.name in have else F.lit(None))
            .cast(spark_type(each.type))
            .alias(each.name)
            for each in schema
        ]
    )


def spark_type(kind: pa.DataType) -> T.DataType:
    """Return the Spark type of a type of the lake."""
    fields = fields_of(pa.schema([pa.field("x", kind)]))
    return T.StructType.fromJson({"type": "struct", "fields": fields}).fields[0].dataType
