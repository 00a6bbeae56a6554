"""Applies staged versions with Spark: one MERGE ends rows and inserts versions (``apply/copy_on_write_history``).

The lake's current rows are read first: touches that a key's row already includes are left out, and versions get the
columns that they keep from them. Current rows are identified by ``__valid_to_lsn``; from the log's statistics, files
without nulls in it are skipped. The MERGE then matches only rows that end; versions match no row and are inserted.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from cdc_core.lake.apply.staging import KEEP, KEY, NUMBER, PUT, SEEK, TOUCH, StagedFacts
from cdc_core.lake.delete_columns import CURRENT, POSITION, TO, TO_LSN
from cdc_core.lake.names import OWN_NAMES, RESCUED, helper
from cdc_core.lake.spark.expressions import (
    Commit,
    Counts,
    before_truncation,
    comparable,
    field_of,
    merge_into,
    quoted,
    same_key,
    truncation_position,
    with_kept_texts,
)

_OWN, _LAKE, _ENDS, _PLACE = (helper(name) for name in ("__own", "__lake", "__ends", "__place"))


def apply_versions_staged(
    session: SparkSession, rows: DataFrame, lake: DataFrame, facts: StagedFacts, commit: Commit
) -> Counts:
    """Apply staged touches and versions; versions count as inserted, rows that ended as updated."""
    current = lake.filter(F.col(TO_LSN).isNull())
    fresh = _unseen(rows, current, lake, facts)
    first = Window.partitionBy(NUMBER).orderBy(TOUCH)
    met = fresh.filter(F.col(_OWN).isNotNull()).withColumn(_PLACE, F.row_number().over(first))
    ends = met.filter(F.col(_PLACE) == 1).drop(_PLACE).withColumn(_ENDS, F.lit(True))
    begun = fresh.filter(F.col(PUT))
    if facts.keeps:
        begun = _with_lake_values(begun, current, lake, facts)
    source = ends.drop(_OWN).unionByName(begun.drop(_OWN).withColumn(_ENDS, F.lit(False)))
    return _merge(session, source, lake, facts, commit)


def apply_placed_staged(
    session: SparkSession, rows: DataFrame, lake: DataFrame, facts: StagedFacts, commit: Commit
) -> Counts:
    """Apply staged versions of any time: existing ones get the ends of the staged ones, others are inserted."""
    same = same_key(lake.schema, facts.key, field_of("t"), field_of("s"))
    for name in POSITION[:2]:
        same = same & (F.col(f"t.{name}") == F.col(f"s.{name}"))
    # A version that ends where it begins was never valid, and is not one of the staged ones.
    ends = [F.col(f"t.{end}").eqNullSafe(F.col(f"t.{name}")) for end, name in zip(TO, POSITION[:2], strict=False)]
    same = same & ~(ends[0] & ends[1])
    set_ends = {name: F.col(f"s.{name}") for name in (*TO, CURRENT)}
    merge = merge_into(session, rows, commit, same).whenMatchedUpdate(set=set_ends)
    done: Any = merge.whenNotMatchedInsertAll().execute()
    counts = done.collect() if done is not None else []
    return Counts(counts[0]["num_inserted_rows"], counts[0]["num_updated_rows"], 0) if counts else Counts(0, 0, 0)


def _unseen(rows: DataFrame, current: DataFrame, lake: DataFrame, facts: StagedFacts) -> DataFrame:
    """Return the touches after the current row of their key, with that row's key and position (null for none)."""
    if facts.found:
        return _changed(rows, current, lake, facts)
    names = dict.fromkeys([*facts.key, *POSITION[:2], *([RESCUED] if RESCUED in _key_fields(rows) else [])])
    held = current.select(F.struct(*[F.col(quoted(name)) for name in names]).alias(_OWN))
    joined = rows.join(held, same_key(lake.schema, facts.key, field_of(_OWN), field_of(KEY)), "left")
    if not facts.guarded:
        return joined
    lsn, index = F.col(f"{_OWN}.{POSITION[0]}"), F.col(f"{_OWN}.{POSITION[1]}")
    mine = F.col(POSITION[0]), F.col(POSITION[1])
    newer = (mine[0] > lsn) | ((mine[0] == lsn) & (mine[1] > index))
    return joined.filter(F.col(_OWN).isNull() | newer)


def _changed(rows: DataFrame, current: DataFrame, lake: DataFrame, facts: StagedFacts) -> DataFrame:
    """Return the rows that were read and differ from the lake's, with the current row of their key."""
    types = {field.name: field.dataType for field in lake.schema.fields}
    names = [name for name in types if name not in OWN_NAMES]
    held = current.select(F.struct(*[F.col(quoted(name)) for name in lake.columns]).alias(_OWN))
    joined = rows.join(held, same_key(lake.schema, facts.key, field_of(_OWN), field_of(KEY)), "left")
    same = F.col(PUT) & F.col(_OWN).isNotNull()
    for name in names:
        mine, theirs = F.col(quoted(name)), field_of(_OWN)(name)
        same = same & comparable(mine, types[name]).eqNullSafe(comparable(theirs, types[name]))
    return joined.filter(~same)


def _key_fields(rows: DataFrame) -> list[str]:
    kind: Any = rows.schema[KEY].dataType
    return [field.name for field in kind.fields]


def _with_lake_values(begun: DataFrame, current: DataFrame, lake: DataFrame, facts: StagedFacts) -> DataFrame:
    """Return versions with the columns that they keep taken from the current row at the key in ``__seek``."""
    held = current.select(F.struct(*[F.col(quoted(name)) for name in lake.columns]).alias(_LAKE))
    seeks = F.col(SEEK).isNotNull()
    same = same_key(lake.schema, facts.key, field_of(_LAKE), field_of(SEEK), null_safe=True)
    joined = begun.join(held, seeks & same, "left")
    out: list[Column] = []
    for name in begun.columns:
        value = F.col(quoted(name))
        if name in facts.keeps:
            value = F.when(F.array_contains(KEEP, name), field_of(_LAKE)(name)).otherwise(value)
        elif name == RESCUED:
            value = F.when(seeks, with_kept_texts(value, field_of(_LAKE)(RESCUED), F.col(KEEP))).otherwise(value)
        out.append(value.alias(name))
    return joined.select(*out)


def _merge(session: SparkSession, source: DataFrame, lake: DataFrame, facts: StagedFacts, commit: Commit) -> Counts:
    """End the rows marked by ``_ENDS`` at the position of their touch, and insert the versions."""
    same = (
        F.col(f"t.{TO_LSN}").isNull()
        & F.col(f"s.{_ENDS}")
        & same_key(lake.schema, facts.key, field_of("t"), field_of(f"s.{KEY}"))
    )
    end = {name: F.col(f"s.{at}") for name, at in zip(TO, POSITION, strict=True)}
    values = {quoted(field.name): F.col(f"s.{quoted(field.name)}") for field in lake.schema.fields}
    merge = merge_into(session, source, commit, same).whenMatchedUpdate(set={**end, CURRENT: F.lit(False)})
    merge = merge.whenNotMatchedInsert(~F.col(f"s.{_ENDS}"), values=values)
    if facts.truncated is not None:
        truncated = F.col(f"t.{TO_LSN}").isNull() & before_truncation(facts)
        merge = merge.whenNotMatchedBySourceUpdate(
            truncated, set={**truncation_position(facts, TO), CURRENT: F.lit(False)}
        )
    done: Any = merge.execute()
    counts = done.collect() if done is not None else []
    return Counts(counts[0]["num_inserted_rows"], counts[0]["num_updated_rows"], 0) if counts else Counts(0, 0, 0)
