"""Applies staged slices with Spark: for tables too large for copy-on-write, or that only Delta on Spark can write.

One Delta commit with the position that it reaches; the same rows result in the same table as with ``apply``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from cdc_core.errors import MissingRowsError
from cdc_core.lake.apply.staging import GONE, KEEP, KEY, NEEDS, SEEK, SIGN, StagedFacts
from cdc_core.lake.apply.strategy import MergeStrategy
from cdc_core.lake.delete_columns import DELETED, TO_LSN
from cdc_core.lake.names import META, RESCUED, helper
from cdc_core.lake.spark.expressions import (
    Commit,
    Counts,
    before_truncation,
    comparable,
    field_of,
    merge_into,
    parquet_files,
    quoted,
    same_key,
    truncation_position,
    with_kept_texts,
)
from cdc_core.lake.spark.merge_history import apply_placed_staged, apply_versions_staged
from cdc_core.lake.spark.optimize import SMALL_BYTES

_DELETION_VECTORS = "delta.enableDeletionVectors"
_PARTITION_BYTES = 64 << 20
_META = tuple(each.name for each in META)
_LAKE, _TAKEN, _PLACE = helper("__lake"), helper("__taken"), helper("__place")


def apply_staged(
    spark: SparkSession, staged: str, facts: StagedFacts, commit: Commit, enables_vectors: bool = False, table: str = ""
) -> Counts:
    """Apply the rows staged as Parquet under ``staged`` to an existing lake table that has their columns.

    Uses a separate session, so tables may be merged in parallel by several threads. Commits nothing if the table
    already has this ``txn`` at this version or a later one. ``enables_vectors``: the table has no deletion vectors, and
    may get them. Raises MissingRowsError for the source's ``table`` if rows are absent that must be there.
    """
    session = spark.newSession()
    if enables_vectors and facts.strategy in (MergeStrategy.MERGE, MergeStrategy.VERSIONS, MergeStrategy.PLACED):
        # This table is merged here because rewriting its files would cost too much.
        session.sql(f"ALTER TABLE delta.{quoted(commit.lake)} SET TBLPROPERTIES ('{_DELETION_VECTORS}' = 'true')")
    if facts.large:
        _divide(session, facts.large)
    rows = parquet_files(session, staged)
    lake = session.read.format("delta").load(commit.lake)
    if NEEDS in rows.columns:
        _check_needed(rows.filter(F.col(NEEDS).isNotNull()), lake, facts, table)
        rows = rows.drop(NEEDS)
    if facts.strategy is MergeStrategy.MERGE:
        return _merge(session, rows, lake, facts, commit)
    if facts.strategy is MergeStrategy.VERSIONS:
        return apply_versions_staged(session, rows, lake, facts, commit)
    if facts.strategy is MergeStrategy.PLACED:
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


def _check_needed(rows: DataFrame, lake: DataFrame, facts: StagedFacts, table: str) -> None:
    """Raise MissingRowsError if the lake does not have the row of each of these staged rows."""
    if facts.strategy is MergeStrategy.MULTISET:
        alike = [comparable(F.col(quoted(f.name)), f.dataType) for f in lake.schema.fields if f.name not in _META]
        both = lake.withColumn(NEEDS, F.lit(None).cast("bigint")).unionByName(rows.drop(SIGN))
        lacks = F.count(NEEDS) - F.count_if(F.col(NEEDS).isNull())
        absent = both.groupBy(F.struct(*alike)).agg(lacks.alias(_PLACE), F.min(NEEDS).alias(NEEDS))
        absent = absent.filter(F.col(_PLACE) > 0)
    else:
        same = same_key(lake.schema, facts.key, field_of("t"), field_of(f"s.{KEY}"))
        if facts.marks:
            same = same & (~F.col(f"t.{DELETED}") | ~_newer())
        current = lake.filter(F.col(TO_LSN).isNull()) if facts.strategy is MergeStrategy.VERSIONS else lake
        absent = rows.alias("s").join(current.alias("t"), same, "left_anti").withColumn(_PLACE, F.lit(1))
    (found,) = absent.agg(F.sum(_PLACE), F.min(NEEDS)).collect()
    if found[0]:
        raise MissingRowsError(table, found[0], found[1])


def _divide(session: SparkSession, octets: int) -> None:
    """Divide a large merge into shuffle partitions that are sorted in memory; sizes on disk do not show its size."""
    parts = max(int(session.conf.get("spark.sql.shuffle.partitions") or 1), -(-octets // _PARTITION_BYTES))
    session.conf.set("spark.sql.shuffle.partitions", str(parts))
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    session.conf.set("spark.sql.files.maxPartitionBytes", str(SMALL_BYTES))


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
