"""One merge round of one table: the changelog between two LSNs, applied to the lake table in one Delta commit.

The commit carries the LSN it reaches (``commit_log``), so the same round again makes no second commit, and after a
crash the table itself says where to go on. Three roads lead to the commit:

    append      only inserts, past the snapshot's overlap: the source's own key says that none of them is there yet
    MERGE       everything else with a key; an older change never overwrites a newer row (compare positions)
    overwrite   a truncate was in the slice, or rows of a table without a key went away
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core import failpoints
from cdc_core.errors import TableError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableSchema
from cdc_core.sink.delta.bag import arrivals, bag_after
from cdc_core.sink.delta.change_slice import Narrow, Survey, after_position, read_slice, row_type, survey
from cdc_core.sink.delta.commit_log import lake_position, merge_app, table_version
from cdc_core.sink.delta.keys import KeyColumns, merge_key
from cdc_core.sink.delta.reduce import DELETED, KEEP, joined_texts, kept_texts, key_names, reduce_slice
from cdc_core.sink.delta.retry import on_conflict
from cdc_core.sink.delta.target import LAKE_PROPERTIES, RESCUED, conform, ensure_table, lake_schema, quoted


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """What one merge did, from Delta's own metrics. ``events`` counts the change rows of the slice."""

    version: int
    events: int
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Round:
    """One table's merge: which rows of which changelog go where, and under which token.

    ``from_lsn`` is exclusive, ``to_lsn`` inclusive and the end of whole transactions. ``snapshot`` is the text of the
    pg_snapshot in force while the slice overlaps it: rows that it shows are in the lake already. Without it the slice
    lies past the overlap. ``narrow`` leaves rows out, such as quarantined ones.
    """

    slot: str
    table: TableSchema
    changelog: str
    lake: str
    from_lsn: int
    to_lsn: int
    token: int
    snapshot: str | None = None
    narrow: Narrow | None = None


def merge_round(spark: SparkSession, todo: Round) -> MergeFacts | None:
    """Bring the lake table to ``to_lsn``; None when it is there already or the slice is empty (nothing is committed).

    Runs in a session of its own, so tables may be merged side by side in threads. Safe to repeat, with the same bounds
    or other ones. Raises TableError when the lake cannot hold the rows, or the source does not say which rows changed;
    TransientError after repeated conflicts with another writer.
    """
    session = spark.newSession()
    reached = lake_position(session, todo.lake, todo.slot, todo.table.id).lsn
    if reached is not None and reached >= todo.to_lsn:
        return None
    start = todo.from_lsn if reached is None else max(todo.from_lsn, reached)
    rows = read_slice(session, todo.changelog, start, todo.to_lsn, todo.snapshot)
    rows = rows if todo.narrow is None else todo.narrow(rows)
    key = KeyColumns.of(merge_key(todo.table), row_type(rows))
    facts = survey(rows, key)
    if not facts.rows:
        return None
    if facts.without_before and (not key.names or "d" in facts.ops):
        _check_old_rows(rows, key, todo.table)
    schema = ensure_table(session, todo.lake, lake_schema(row_type(rows)), todo.table.id, LAKE_PROPERTIES)
    return on_conflict(lambda: _commit(session, todo, rows, key=key, facts=facts, schema=schema))


def _commit(
    session: SparkSession, todo: Round, rows: DataFrame, *, key: KeyColumns, facts: Survey, schema: T.StructType
) -> MergeFacts | None:
    """Choose the road and take it."""
    before = table_version(session, todo.lake)
    lake = session.read.format("delta").option("versionAsOf", before).load(todo.lake)
    failpoints.hit(failpoints.DURING_MERGE)
    events = facts.rows
    if facts.only_inserts and (not key.names or todo.snapshot is None):
        _write(arrivals(rows, schema), todo, "append")
        counts = (events, 0, 0)
    elif facts.truncated_at is not None:
        held = lake.count()
        rest = rows.filter(after_position(facts.truncated_at))
        content = _reduced(rest, key, facts, None, schema) if key.names else bag_after(rest, None, schema)
        _write(content, todo, "overwrite")
        counts = (session.read.format("delta").load(todo.lake).count(), 0, held)
    elif not key.names:
        held = lake.count()
        _write(bag_after(rows, lake, schema), todo, "overwrite")
        # A bag has no updates: what came and what went.
        came = facts.ops.get("c", 0) + facts.ops.get("u", 0)
        counts = (came, 0, held + came - session.read.format("delta").load(todo.lake).count())
    else:
        counts = _merge(session, todo, reduce_slice(rows, key, facts, lake), key=key, facts=facts, schema=schema)
    version = table_version(session, todo.lake)
    return MergeFacts(version, events, *counts) if version > before else None


def _reduced(
    rows: DataFrame, key: KeyColumns, facts: Survey, lake: DataFrame | None, schema: T.StructType
) -> DataFrame:
    return conform(reduce_slice(rows, key, facts, lake).filter(~F.col(DELETED)), schema)


def _write(content: DataFrame, todo: Round, mode: str) -> None:
    (
        content.write.format("delta")
        .mode(mode)
        .option("txnAppId", merge_app(todo.slot, todo.table.id, todo.token))
        .option("txnVersion", str(todo.to_lsn))
        .option("userMetadata", _metadata(todo))
        .save(todo.lake)
    )


def _merge(
    session: SparkSession, todo: Round, changes: DataFrame, *, key: KeyColumns, facts: Survey, schema: T.StructType
) -> tuple[int, int, int]:
    extra = [T.StructField(name, changes.schema[name].dataType) for name in (DELETED, KEEP, *key_names(key))]
    source = conform(changes, T.StructType([*schema.fields, *extra])).alias("s")
    values = {quoted(field.name): _value(field.name, facts.partial, bool(facts.partial)) for field in schema.fields}
    plain = {quoted(field.name): F.col(f"s.{quoted(field.name)}") for field in schema.fields}
    newer = F.lit(True) if todo.snapshot is not None else _newer()
    gone = F.col(f"s.{DELETED}")
    session.conf.set("spark.databricks.delta.write.txnAppId", merge_app(todo.slot, todo.table.id, todo.token))
    session.conf.set("spark.databricks.delta.write.txnVersion", str(todo.to_lsn))
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", _metadata(todo))
    done: Any = (
        DeltaTable.forPath(session, todo.lake)
        .alias("t")
        .merge(source, _matches(key))
        .whenMatchedDelete(gone & newer)
        .whenMatchedUpdate(~gone & newer, set=values)
        .whenNotMatchedInsert(~gone, values=plain)
        .execute()
    )
    counts = done.collect() if done is not None else []
    if not counts:
        return 0, 0, 0
    row = counts[0]
    return row["num_inserted_rows"], row["num_updated_rows"], row["num_deleted_rows"]


def _matches(key: KeyColumns) -> Column:
    on = F.lit(True)
    mine = key.parts(lambda name: F.col(f"t.{quoted(name)}"))
    first = True
    for part, name, null_safe in zip(mine, key_names(key), key.null_safe, strict=True):
        other = F.col(f"s.{name}")
        equal = part.eqNullSafe(other) if null_safe else part == other
        on = equal if first else on & equal
        first = False
    return on


def _newer() -> Column:
    lsn, index = F.col("s.__commit_lsn"), F.col("s.__tx_index")
    same = F.col("t.__commit_lsn")
    return (lsn > same) | ((lsn == same) & (index > F.col("t.__tx_index")))


def _value(name: str, partial: frozenset[str], keeps: bool) -> Column:
    """What an update sets a column to: the change's value, or the lake's where the change keeps it."""
    mine, keep = F.col(f"s.{quoted(name)}"), F.col(f"s.{KEEP}")
    if name in partial:
        return F.when(F.array_contains(keep, name), F.col(f"t.{quoted(name)}")).otherwise(mine)
    if name == RESCUED and keeps:
        none = F.create_map().cast("map<string,string>")
        return joined_texts(F.coalesce(mine, none), kept_texts(F.col(f"t.{RESCUED}"), keep))
    return mine


def _check_old_rows(rows: DataFrame, key: KeyColumns, table: TableSchema) -> None:
    lost = F.col("__op") == "d" if key.names else F.col("__op").isin("u", "d")
    if rows.filter(lost & F.col("before").isNull()).limit(1).count():
        raise TableError(
            f"{table.id} has updates or deletes that do not say which row they changed.",
            f"Give it a primary key, or ALTER TABLE {table.id} REPLICA IDENTITY FULL, and take a new snapshot of it.",
            str(table.id),
        )


def _metadata(todo: Round) -> str:
    return json.dumps({"slot": todo.slot, "lsn": str(Lsn(todo.to_lsn)), "snapshot": todo.token})
