"""The keys that changed since a moment, from the changelog and the slot."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from cdc_core.lake.compare.between import ChangesInSlot, stored_changes
from cdc_core.lake.compare.rows import KeyedColumns
from cdc_core.lake.compare.target import Target
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import expired_app
from cdc_core.lake.reduce.latest import Upserts, image_schema, numbered_keys
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.survey import is_op
from cdc_core.lake.stores.changelog import between as changes_between
from cdc_core.lake.stores.changelog import files_between
from cdc_core.lsn import Lsn

_LAST = 2**62

Since = Lsn | datetime


def keys_since(target: Target, paths: LakePaths, scope: str, since: Since, waiting: ChangesInSlot) -> pa.Table | None:
    """Return the keys that changes touch which were committed after an LSN, or not before a time.

    The changes are those in the changelog, and all of those that are ``waiting`` in the slot.

    Shape: keys[K] with the columns of ``KeyColumns.read``. None if all rows have to be compared: the table was
    truncated or read since, or the changelog does not reach as far back. Raises NotComparableError for changes with
    other columns.
    """
    table, compared = target.table.id, target.compared
    changelog = DeltaTable.open(paths.changelog(table))
    if not isinstance(compared, KeyedColumns) or changelog is None or table in waiting.altered:
        return None
    low = int(since) if isinstance(since, Lsn) else 0
    if low < target.version.read_at or changelog.txn(expired_app(scope, table)) is not None:
        return None
    parts, rows = [compared.key_schema.empty_table()], EpochRows.of(changelog, scope)
    for file in files_between(rows, low, _LAST):
        change_rows = changes_between(rows.read(file), low, _LAST)
        if isinstance(since, datetime):
            at = column(change_rows, "__commit_ts").cast(pa.int64()).fill_null(0).to_numpy()
            change_rows = change_rows.filter(pa.array(at >= int(since.timestamp() * 1_000_000)))
        if change_rows.num_rows and is_op(change_rows, "t").any():
            return None
        if change_rows.num_rows:
            parts.append(_keys_of(stored_changes(change_rows, target.typer, target.version.schema_version), compared))
    for change_rows in waiting.changes.get(table, ()):
        if is_op(change_rows, "t").any():
            return None
        parts.append(_keys_of(conform(change_rows, target.typer.change_schema), compared))
    return compared.distinct(pa.concat_tables(parts).combine_chunks())


def _keys_of(changes: pa.Table, compared: KeyedColumns) -> pa.Table:
    upserts = Upserts.of(changes, compared.key, image_schema(compared.schema))
    return numbered_keys(changes, compared.key, upserts, is_op(changes, "d"))[1]
