"""The Delta tables' schemas: derived from the source's and widened with it, never changed silently.

A column added in the source is added (in ``before`` and ``after`` too). A column dropped there stays and is null from
then on. A column whose type changed stays if it can represent every value of the new type; otherwise the table stops
with a TableError that describes the remedy.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import pyarrow as pa

from cdc_core.errors import TableError
from cdc_core.lake.delete_columns import COLUMNS, NAMES
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.conform import plain_schema
from cdc_core.lake.delta.definition import LOG_KEPT
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.names import META
from cdc_core.lake.schema.casts import holds
from cdc_core.schema import TableId

_CHECKPOINT_INTERVAL, _CHECKPOINT_SPREAD = 42, 16

_CHECKPOINTS = "delta.checkpointInterval"


def lake_properties(history_minutes: int) -> dict[str, str]:
    """Return the properties of a lake table for a retention of ``history_minutes``; 0 for Delta's defaults."""
    kept = {_CHECKPOINTS: str(_CHECKPOINT_INTERVAL)}
    if history_minutes:
        kept[LOG_KEPT] = f"interval {history_minutes} minutes"
        kept["delta.deletedFileRetentionDuration"] = f"interval {file_minutes(history_minutes)} minutes"
    return kept


def spread(properties: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the properties with a checkpoint interval that differs by table.

    With the same interval, tables changed by the same rounds would all write their checkpoints in the same round.
    """
    own = {_CHECKPOINTS: str(_CHECKPOINT_INTERVAL + phase(path, _CHECKPOINT_SPREAD))} if properties else {}
    return {**properties, **own}


def phase(path: str, period: int) -> int:
    """Return a number less than ``period`` that differs between tables and is constant for one."""
    return zlib.crc32(path.encode()) % period


def file_minutes(history_minutes: int) -> int:
    """Return the minutes to keep replaced data files: the history, at least half an hour, for running queries."""
    return max(30, history_minutes)


def changelog_properties(history_minutes: int) -> dict[str, str]:
    """Return the properties of a changelog table."""
    # The only columns by which merges and retention filter; statistics of other columns would make every append slower.
    filtered = {"delta.dataSkippingStatsColumns": "__commit_lsn,__tx_index,__commit_ts"}
    return lake_properties(history_minutes) | filtered


def lake_schema(row: pa.StructType, mode: DeleteMode = DeleteMode.HARD) -> pa.Schema:
    """Return the lake table's schema from the struct of ``after``.

    Its columns, ``__rescued``, position and commit time, and the columns of the delete mode.
    """
    return plain_schema(pa.schema([*row, *META, *COLUMNS[mode]]))


def bare_schema(schema: pa.Schema) -> pa.Schema:
    """Return a lake table's schema without the columns of its delete mode."""
    return pa.schema([field for field in schema if field.name not in NAMES])


def ensure_table(
    path: str,
    schema: pa.Schema,
    table: TableId,
    properties: Mapping[str, str],
    opened: DeltaTable | None = None,
) -> DeltaTable:
    """Create the table, or add the columns that only ``schema`` has. ``opened``: the table if already open.

    Raises TableError for a type change that the existing column cannot represent, and for names that Delta cannot
    distinguish.
    """
    opened = opened or DeltaTable.open(path)
    if opened is not None and schema.equals(opened.schema):
        return opened
    target = plain_schema(schema)
    # Checked before the merge, which would keep only one of two names that differ by case only.
    check_names(target, table)
    if opened is None:
        return DeltaTable.create(path, target, spread(properties, path))
    there = opened

    def grow() -> None:
        merged = merge_schemas(there.schema, target, table)
        if not merged.equals(there.schema):
            there.commit(schema=merged)

    on_conflict(grow, there)
    return there


def merge_schemas(existing: pa.Schema, incoming: pa.Schema, table: TableId) -> pa.Schema:
    """Return ``existing`` with the fields that only ``incoming`` has appended, structs merged field by field.

    Like Delta, compares names without regard to case. Raises TableError if a type cannot be represented.
    """
    return pa.schema(_merged(list(existing), list(incoming), table, ""))


def check_names(schema: pa.Schema | pa.StructType, table: TableId, inside: str = "") -> None:
    """Raise TableError if two columns have names that Delta cannot distinguish."""
    seen: set[str] = set()
    for field in schema:
        if field.name.lower() in seen:
            raise TableError(
                f"Column {inside}{field.name} of {table} has the same name as another column: names are not "
                "case-sensitive in Delta, and wal2lake's metadata columns begin with __.",
                "Exclude one of them with column.exclude.list, or rename it in the source.",
                str(table),
            )
        seen.add(field.name.lower())
        if pa.types.is_struct(field.type):
            check_names(field.type, table, f"{field.name}.")


def _merged(existing: list[pa.Field], incoming: list[pa.Field], table: TableId, inside: str) -> list[pa.Field]:
    by_name = {field.name.lower(): field for field in incoming}
    fields = []
    for field in existing:
        new = by_name.pop(field.name.lower(), None)
        if new is None:
            fields.append(field)
        elif pa.types.is_struct(field.type) and pa.types.is_struct(new.type):
            inner = _merged(list(field.type), list(new.type), table, f"{inside}{field.name}.")
            fields.append(pa.field(field.name, pa.struct(inner)))
        elif holds(field.type, new.type):
            fields.append(field)
        else:
            raise TableError(
                f"Column {inside}{field.name} of {table} is {field.type} in the lake and changed to {new.type} in "
                "the source, which does not fit into it.",
                f"Move the table's lake and changelog folders away and take a new snapshot of {table}.",
                str(table),
            )
    return fields + list(by_name.values())
