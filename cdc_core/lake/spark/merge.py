"""Applies staged slices with Spark: for tables too large for copy-on-write, or that only Delta on Spark can write.

One Delta commit with the position that it reaches; the same rows result in the same table as with ``apply``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core.lake.apply.changes import MergeStrategy
from cdc_core.lake.apply.staging import GONE, KEEP, KEY, SEEK, SIGN, StagedFacts
from cdc_core.lake.delete_columns import DELETED
from cdc_core.lake.names import META, RESCUED, helper

# Types that represent every text that PostgreSQL prints (``row_keys.is_total`` for Spark types).
_TOTAL = (T.IntegralType, T.FloatType, T.DoubleType, T.StringType, T.BooleanType, T.BinaryType)
_TEXTS = T.MapType(T.StringType(), T.StringType())
_DELETION_VECTORS = "delta.enableDeletionVectors"
_SMALL_BYTES = 16 << 20
_PARTITION_BYTES = 64 << 20
_META = tuple(each.name for each in META)
_LAKE, _TAKEN, _PLACE = helper("__lake"), helper("__taken"), helper("__place")


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


def apply_staged(spark: SparkSession, staged: str, facts: StagedFacts, commit: Commit) -> Counts:
    """Apply the rows staged as Parquet under ``staged`` to an existing lake table that has their columns.

    Uses a separate session, so tables may be merged in parallel by several threads. Commits nothing if the table
    already has this ``txn`` at this version or a later one.
    """
    session = spark.newSession()
    if facts.strategy in (MergeStrategy.MERGE, MergeStrategy.VERSIONS, MergeStrategy.PLACED):
        _mark_deleted_rows(session, commit.lake)
    if facts.large:
        _divide(session, facts.large)
    rows = session.read.parquet(staged)
    lake = session.read.format("delta").load(commit.lake)
    if facts.strategy is MergeStrategy.MERGE:
        return _merge(session, rows, lake, facts, commit)
    if facts.strategy is MergeStrategy.VERSIONS:
        from cdc_core.lake.spark.merge_history import apply_versions_staged

        return apply_versions_staged(session, rows, lake, facts, commit)
    if facts.strategy is MergeStrategy.PLACED:
        from cdc_core.lake.spark.merge_history import apply_placed_staged

        return apply_placed_staged(session, rows, lake, facts, commit)
    if facts.strategy is MergeStrategy.APPEND:
        _write(rows, commit, "append")
        return Counts(rows.count(), 0, 0)
    held = lake.count()
    if facts.strategy is MergeStrategy.REPLACE:
        _write(rows, commit, "overwrite")
        return Counts(rows.count(), 0, held)
    _write(multiset_after(rows, lake), commit, "overwrite")
    left = session.read.format("delta").load(commit.lake).count()
    return Counts(facts.came, 0, held + facts.came - left)


def compact(spark: SparkSession, lake: str) -> int:
    """Compact the small files of a lake table, without those that are large enough; returns their number.

    A clustered table's files are clustered by its key. Takes a few seconds.
    """
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.optimize.minFileSize", str(_SMALL_BYTES))
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(4 * _SMALL_BYTES))
    done = DeltaTable.forPath(session, lake).optimize().executeCompaction().select("metrics.numFilesRemoved").collect()
    return int(done[0][0]) if done else 0


def vacuum(spark: SparkSession, lake: str, hours: int) -> int:
    """Remove files not referenced by the table for ``hours``; returns their number."""
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    session.conf.set("spark.databricks.delta.vacuum.logging.enabled", "true")
    table = DeltaTable.forPath(session, lake)
    table.vacuum(hours)
    told = table.history(1).select("operation", "operationMetrics").collect()[0]
    return int((told[1] or {}).get("numDeletedFiles", 0)) if told[0] == "VACUUM END" else 0


def _divide(session: SparkSession, octets: int) -> None:
    """Divide a large merge into shuffle partitions that are sorted in memory; sizes on disk do not show its size."""
    parts = max(int(session.conf.get("spark.sql.shuffle.partitions") or 1), -(-octets // _PARTITION_BYTES))
    session.conf.set("spark.sql.shuffle.partitions", str(parts))
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    session.conf.set("spark.sql.files.maxPartitionBytes", str(_SMALL_BYTES))


def _mark_deleted_rows(session: SparkSession, lake: str) -> None:
    """Enable deletion vectors: this table is merged here because rewriting its files would cost too much."""
    kept = DeltaTable.forPath(session, lake).detail().select("properties").collect()[0]["properties"]
    if kept.get(_DELETION_VECTORS) != "true":
        session.sql(f"ALTER TABLE delta.{quoted(lake)} SET TBLPROPERTIES ('{_DELETION_VECTORS}' = 'true')")


def multiset_after(rows: DataFrame, lake: DataFrame) -> DataFrame:
    """Return a multiset's entire content after staged rows; each removal removes one row equal to it."""
    both = lake.withColumn(SIGN, F.lit(1)).unionByName(rows)
    fields = [field for field in lake.schema.fields if field.name not in _META]
    alike = Window.partitionBy(F.struct(*[comparable(F.col(quoted(f.name)), f.dataType) for f in fields]))
    order = alike.orderBy(F.col(SIGN).desc(), "__commit_lsn", "__tx_index")
    gone = F.count_if(F.col(SIGN) < 0).over(alike)
    counted = both.withColumn(_TAKEN, gone).withColumn(_PLACE, F.row_number().over(order))
    left = counted.filter((F.col(SIGN) > 0) & (F.col(_PLACE) > F.col(_TAKEN)))
    return left.drop(SIGN, _TAKEN, _PLACE)


def quoted(name: str) -> str:
    """Quote a column's name for Spark's parser, with any characters."""
    return "`" + name.replace("`", "``") + "`"


def _write(content: DataFrame, commit: Commit, mode: str) -> None:
    (
        content.write.format("delta")
        .mode(mode)
        .option("txnAppId", commit.txn)
        .option("txnVersion", str(int(commit.version)))
        .option("userMetadata", commit.metadata)
        .save(commit.lake)
    )


def _merge(session: SparkSession, rows: DataFrame, lake: DataFrame, facts: StagedFacts, commit: Commit) -> Counts:
    rows = _with_moved_values(rows, lake, facts) if facts.seeks else rows
    names = [field.name for field in lake.schema.fields]
    values = {quoted(name): _value(name, facts.keeps) for name in names}
    if facts.marks:
        own = {*_META, DELETED}
        kept = {name for name in names if name not in own}
        bare = F.col(f"s.{GONE}")
        values |= {quoted(n): F.when(bare, F.col(f"t.{quoted(n)}")).otherwise(values[quoted(n)]) for n in kept}
    plain = {quoted(name): F.col(f"s.{quoted(name)}") for name in names}
    newer = _newer() if facts.guarded else F.lit(True)
    gone = F.col(f"s.{GONE}")
    merge = merge_into(session, rows, commit, same_key(lake.schema, facts.key, field_of("t"), field_of(f"s.{KEY}")))
    if facts.marks:
        merge = merge.whenMatchedUpdate(newer & ~(gone & F.col(f"t.{DELETED}")), set=values)
        if facts.truncated is not None:
            earlier = before_truncation(facts) & ~F.col(f"t.{DELETED}")
            merge = merge.whenNotMatchedBySourceUpdate(
                earlier, set={**truncation_position(facts), DELETED: F.lit(True)}
            )
    else:
        merge = merge.whenMatchedDelete(gone & newer).whenMatchedUpdate(~gone & newer, set=values)
    done: Any = merge.whenNotMatchedInsert(~gone, values=plain).execute()
    counts = done.collect() if done is not None else []
    if not counts:
        return Counts(0, 0, 0)
    row = counts[0]
    return Counts(row["num_inserted_rows"], row["num_updated_rows"], row["num_deleted_rows"])


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


def _newer() -> Column:
    lsn, index = F.col("s.__commit_lsn"), F.col("s.__tx_index")
    same = F.col("t.__commit_lsn")
    return (lsn > same) | ((lsn == same) & (index > F.col("t.__tx_index")))


def _value(name: str, keeps: Sequence[str]) -> Column:
    """Return a column's value in an update: the change's value, or the lake's if the change keeps it."""
    mine, keep = F.col(f"s.{quoted(name)}"), F.col(f"s.{KEEP}")
    if name in keeps:
        return F.when(F.array_contains(keep, name), F.col(f"t.{quoted(name)}")).otherwise(mine)
    if name == RESCUED and keeps:
        return with_kept_texts(mine, F.col(f"t.{RESCUED}"), keep)
    return mine


def with_kept_texts(mine: Column, theirs: Column, keep: Column) -> Column:
    """Return a row's texts and those of the lake row for kept columns; null if there are none."""
    none = F.create_map().cast(_TEXTS)
    kept = F.map_filter(F.coalesce(theirs, none), lambda name, _: F.array_contains(keep, name))
    joined = F.map_concat(F.coalesce(mine, none), kept)
    return F.when(F.size(joined) > 0, joined)


def _with_moved_values(rows: DataFrame, lake: DataFrame, facts: StagedFacts) -> DataFrame:
    """Set kept columns of rows that changed their key from the lake row at their old key; they keep nothing then."""
    there = F.struct(*[F.col(quoted(name)) for name in lake.columns])
    seeks = F.col(SEEK).isNotNull()
    same = same_key(lake.schema, facts.key, field_of(_LAKE), field_of(SEEK), null_safe=True)
    joined = rows.join(lake.select(there.alias(_LAKE)), seeks & same, "left")
    out = []
    for name in rows.columns:
        value = F.col(quoted(name))
        if name in facts.keeps:
            value = F.when(seeks & F.array_contains(KEEP, name), field_of(_LAKE)(name)).otherwise(value)
        elif name == RESCUED:
            texts = with_kept_texts(value, field_of(_LAKE)(RESCUED), F.col(KEEP))
            value = F.when(seeks, texts).otherwise(value)
        elif name == KEEP:
            value = F.when(seeks, F.array().cast("array<string>")).otherwise(value)
        out.append(value.alias(name))
    return joined.select(*out)


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
