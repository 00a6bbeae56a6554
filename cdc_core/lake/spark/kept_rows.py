"""Re-reads a large table whose delete mode keeps rows (``kept_rows`` for Spark): one Delta commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc_core.lake.apply.kept_rows import LSN_COLUMNS, MOST_EARLIER, KeptRows, grown_schema
from cdc_core.lake.delete_columns import (
    CURRENT,
    DELETED,
    FROM_LSN,
    FROM_TIME,
    POSITION,
    TO,
    TO_INDEX,
    TO_LSN,
    mode_of,
)
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.definition import fields_of
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.names import RESCUED, helper
from cdc_core.lake.reduce.latest import image_schema
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.schema.lake_schema import holds
from cdc_core.lake.spark.commit import transaction
from cdc_core.lake.spark.expressions import (
    TEXTS,
    as_declared,
    comparable,
    field_of,
    parquet_files,
    quoted,
    same_key,
    spark_type,
)

_SHOWN, _ROW = helper("__shown"), helper("__row")


def keep_by_spark(
    spark: SparkSession,
    lake: DeltaTable,
    files: Sequence[str],
    snapshot: pa.Schema,
    kept: KeptRows,
    txns: Mapping[str, int],
    metadata: Mapping[str, Any],
) -> int:
    """Replace the table's content by the snapshot's rows (Parquet files) and kept rows; returns the new version."""
    schema = grown_schema(lake.schema, snapshot, kept)
    with transaction(spark, lake.path) as begun:
        held = _earlier(_adapted(begun.content, lake.schema, schema), kept)
        shown = parquet_files(begun.session, *files) if files else held.limit(0)
        shown = as_declared(shown, schema)
        after = _soft if mode_of(schema.names) is DeleteMode.SOFT else _history
        begun.replace(as_declared(after(held, shown, snapshot, kept), schema), fields_of(schema))
        return begun.commit(txns, metadata)


def _soft(held: DataFrame, shown: DataFrame, snapshot: pa.Schema, kept: KeptRows) -> DataFrame:
    keys = shown.select(F.struct(*[F.col(quoted(name)) for name in (*kept.key, RESCUED)]).alias(_SHOWN))
    same = same_key(held.schema, kept.key, field_of(_ROW), field_of(_SHOWN))
    whole = held.select(F.struct("*").alias(_ROW))
    others = whole.join(keys, same, "left_anti").select(f"{_ROW}.*")
    live = ~F.coalesce(F.col(DELETED), F.lit(False))
    stays = others.filter(~(live & _is_after(kept.at)))
    position = dict(zip(POSITION, _place(kept.at), strict=True))
    marked = {name: F.when(live, value).otherwise(F.col(name)) for name, value in position.items()}
    return shown.unionByName(stays.withColumns({**marked, DELETED: F.lit(True)}))


def _history(held: DataFrame, shown: DataFrame, snapshot: pa.Schema, kept: KeptRows) -> DataFrame:
    undone = held.filter(~_is_after(kept.at))
    goes_on = _is_after(kept.at, (TO_LSN, TO_INDEX))
    again = {name: F.when(goes_on, F.lit(None)).otherwise(F.col(name)) for name in TO}
    undone = undone.withColumns({**again, CURRENT: F.col(CURRENT) | goes_on})
    current, past = undone.filter(F.col(CURRENT)), undone.filter(~F.col(CURRENT))
    names = image_schema(snapshot).names
    in_force = current.withColumn(_ROW, _content(current, names))
    now = shown.withColumn(_SHOWN, _content(shown, names))
    same = F.col(_ROW).eqNullSafe(F.col(_SHOWN))
    stays = in_force.join(now.select(_SHOWN), same, "left_semi").drop(_ROW)
    ends = in_force.join(now.select(_SHOWN), same, "left_anti").drop(_ROW)
    came = now.join(in_force.select(_ROW), same, "left_anti").drop(_SHOWN)
    position = dict(zip(TO, _place(kept.at), strict=True))
    ended = ends.withColumns({**position, CURRENT: F.lit(False)})
    return past.unionByName(stays).unionByName(ended).unionByName(came)


def _content(rows: DataFrame, names: Sequence[str]) -> Column:
    """Return a row's values as one comparable value."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    return F.struct(*[comparable(F.col(quoted(name)), types[name]).alias(f"c{n}") for n, name in enumerate(names)])


def _is_after(at: Truncation, names: Sequence[str] = POSITION) -> Column:
    found = (F.col(names[0]) >= at.lsn) & (F.col(names[1]) >= 0)
    return F.coalesce(found, F.lit(False))


def _place(at: Truncation) -> tuple[Column, Column, Column]:
    time = F.timestamp_micros(F.lit(at.at.value)) if at.at.is_valid else F.lit(None).cast("timestamp")
    return F.lit(at.lsn), F.lit(at.index), time


def _earlier(rows: DataFrame, kept: KeptRows) -> DataFrame:
    """``kept_rows.earlier`` for Spark."""
    names = [name for name in LSN_COLUMNS if kept.epochs and name in rows.columns]
    moved = {name: F.col(name) - F.lit(kept.earlier_by).cast("long") for name in names}
    far = {name: F.col(name) < F.lit(-MOST_EARLIER).cast("long") for name in names}
    return rows.withColumns({name: F.when(far[name], F.col(name)).otherwise(moved[name]) for name in names})


def _adapted(rows: DataFrame, lake: pa.Schema, schema: pa.Schema) -> DataFrame:
    """``kept_rows.adapted`` for Spark: converts the lake's rows to another schema and its delete mode."""
    wanted = mode_of(schema.names)
    if mode_of(lake.names) is not wanted:
        rows = rows.withColumns(_live_columns(wanted))
    held = {each.name.lower(): each for each in lake}
    out: list[Column] = []
    texts: list[Column] = []
    for each in image_schema(schema):
        have = held.get(each.name.lower())
        if each.name == RESCUED:
            continue
        if have is None:
            value = F.lit(None)
        elif holds(each.type, have.type):
            value = F.col(quoted(have.name))
        else:
            value = F.lit(None)
            if not pa.types.is_nested(have.type):
                texts += [F.lit(each.name), F.col(quoted(have.name)).cast("string")]
        out.append(value.cast(spark_type(each.type)).alias(each.name))
    names = F.array(*[F.lit(each.name) for each in image_schema(schema)])
    none = F.create_map().cast(TEXTS)
    mine = F.map_filter(F.coalesce(F.col(RESCUED), none), lambda name, _: F.array_contains(names, name))
    if texts:
        added = F.map_filter(F.create_map(*texts), lambda _, text: text.isNotNull())
        mine = F.map_concat(mine, added.cast(TEXTS))
    rescued = F.when(F.size(mine) > 0, mine).alias(RESCUED)
    images = set(image_schema(schema).names)
    own = [F.col(each.name).cast(spark_type(each.type)).alias(each.name) for each in schema if each.name not in images]
    return rows.select(*out, rescued, *own)


def _live_columns(mode: DeleteMode) -> dict[str, Column]:
    if mode is DeleteMode.SOFT:
        return {DELETED: F.lit(False)}
    begun = {FROM_LSN: F.col(POSITION[0]), FROM_TIME: F.col(POSITION[2]), CURRENT: F.lit(True)}
    return {**begun, TO[0]: F.lit(None), TO[1]: F.lit(None), TO[2]: F.lit(None)}
