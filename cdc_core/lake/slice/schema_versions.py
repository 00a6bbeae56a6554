"""Converts change rows of several schema versions into slices in the lake table's current one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cdc_core.errors import RereadNeededError
from cdc_core.lake.rows.survey import invisible
from cdc_core.lake.schema.change_columns import SCHEMA_VERSION, schema_versions_of, viewed
from cdc_core.lake.schema.project import project_changes
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.schema.view import SchemaView
from cdc_core.lake.slice.order import Merge
from cdc_core.schema import TableId, TableSchema

Decoded = tuple[int, pa.Table]
"""The number of a schema version, and change rows that were decoded under it."""


def by_schema_version(rows: pa.Table) -> list[Decoded]:
    """Split changelog rows in stream order where the schema version changes; the columns remain the changelog's."""
    numbers = schema_versions_of(rows)
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    bounds = [0, *cuts.tolist(), len(numbers)]
    return [(int(numbers[low]), rows.slice(low, high - low)) for low, high in itertools.pairwise(bounds) if high > low]


def unseen(rows: pa.Table, visible: str | None) -> pa.Table:
    """Return the rows that the snapshot does not show; all rows if there is no overlap."""
    return rows if visible is None else invisible(rows, visible)


def of_one_key(merge: Merge, versions: Sequence[Decoded]) -> tuple[Merge, tuple[Decoded, ...]]:
    """Return the merge of the changes before the table's key changes, all of them if it does not, and these changes.

    ``versions`` are in stream order. Changes identify their rows by the key in force at their time. Raises
    RereadNeededError if that key's columns no longer exist, or it changed within a transaction that changed rows before
    and after.
    """
    schema = merge.schema
    if not schema.views or not versions:
        return merge, tuple(versions)
    keys = [_key_since(schema, schema_version) for schema_version, _ in versions]
    merge = merge.under_key_of(_at(schema, keys[0]))
    count = next((number for number, key in enumerate(keys) if key != keys[0]), len(keys))
    if count < len(keys):
        end, begin = _commits(versions[count - 1][1])[-1], _commits(versions[count][1])[0]
        if end >= begin:
            raise _unreadable(schema.table.id, "its key changed in a transaction that also changed rows")
        merge = merge.up_to(int(end))
    return merge, tuple(versions[:count])


def has_had_keys(schema: TargetSchema) -> bool:
    """Whether rows of some schema versions may be identified by other columns than those of others."""
    return len({_key_since(schema, number) for number in (*schema.views, schema.schema_version)}) > 1


def in_force(schema: TargetSchema, versions: Sequence[Decoded]) -> pa.Table:
    """Return changes, at least of one version, in the columns of the version in force.

    Raises RereadNeededError if rows of some schema version cannot be converted to it.
    """
    rows = [projected(schema, number, rows) if schema.views else rows for number, rows in versions]
    return pa.concat_tables(rows, promote_options="default")


def _key_since(schema: TargetSchema, schema_version: int) -> int:
    """Return the first schema version from which on the table has had the key that it has under this one."""
    key = _key(schema, schema_version)
    for number in sorted(schema.views, reverse=True):
        if number <= schema_version and _key(schema, number) != key:
            break
        schema_version = min(schema_version, number)
    return schema_version


def require_key_of(schema: TargetSchema, schema_version: int, table: TableSchema) -> None:
    """Raise RereadNeededError if updates and deletes of a version identify rows by another key than ``table`` has."""
    if _key(schema, schema_version)[0] != table.row_key:
        raise _unreadable(table.id, "its key is another one than that of updates or deletes in quarantine")


def _key(schema: TargetSchema, schema_version: int) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the key columns under a version, by their current names, and the columns that its old rows lack of one.

    The first is None if a key column no longer exists.
    """
    view = schema.views.get(schema_version)
    table = schema.table if view is None else view.table
    return table.row_key if view is None else _named_now(view, table.row_key), table.unsent_identity


def _named_now(view: SchemaView, names: tuple[str, ...]) -> tuple[str, ...] | None:
    for step in view.steps or ():
        moved = {column.source: column.name for column in step.columns if column.source is not None}
        if any(name not in moved for name in names):
            return None
        names = tuple(moved[name] for name in names)
    return names


def _at(schema: TargetSchema, schema_version: int) -> TableSchema:
    """Return the schema's table with the key of a version. Raises RereadNeededError if a key column was dropped."""
    view = schema.views.get(schema_version)
    if view is None or _key(schema, schema_version) == (schema.table.row_key, schema.table.unsent_identity):
        return schema.table
    keyed = view.table
    # Under REPLICA IDENTITY FULL every column is flagged, and a column dropped since does not identify rows.
    flagged = tuple(name for former in keyed.identity_key for name in _named_now(view, (former,)) or ())
    primary, unique = _named_now(view, keyed.primary_key), _named_now(view, keyed.unique_key)
    # Columns that are not streamed are in no step: a key with one is kept as it is, and identifies no rows.
    if not {column.name for column in keyed.columns}.issuperset(keyed.primary_key):
        primary = keyed.primary_key
    if keyed.unsent_identity:
        flagged = keyed.identity_key
    if _key(schema, schema_version)[0] is None or primary is None:
        raise _unreadable(schema.table.id, "a key column that its changes refer to no longer exists")
    return replace(
        schema.table,
        primary_key=primary,
        unique_key=unique or (),
        identity=keyed.identity,
        identity_key=flagged,
        is_key_deferrable=keyed.is_key_deferrable,
    )


def projected(schema: TargetSchema, schema_version: int, rows: pa.Table) -> pa.Table:
    """Convert changelog rows of one version to the one in force. Raises RereadNeededError if that is not possible."""
    view: SchemaView | None = schema.views.get(schema_version)
    if view is None:
        raise _unreadable(schema.table.id, f"schema version {schema_version} is not recorded")
    if view.steps is None:
        raise _unreadable(schema.table.id, "it has changes of an earlier table of the same name")
    rows = viewed(rows, schema_version, view.columns) if SCHEMA_VERSION in rows.schema.names else rows
    return project_changes(rows, view.steps)


def _commits(rows: pa.Table) -> np.ndarray:
    return np.asarray(rows.column("__commit_lsn").to_numpy())


def _unreadable(table: TableId, why: str) -> RereadNeededError:
    return RereadNeededError(
        f"Changes of {table} cannot be merged into its lake table: {why}.",
        f"Run wal2lake snapshot with {table}.",
        str(table),
    )
