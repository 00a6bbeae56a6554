"""Finds surplus rows of a snapshot that was read in several attempts (reasons: ``cdc_core/snapshot/copy/resume``).

The snapshot in force shows everything up to V2; some of its rows are as of an earlier V1. Rows whose key no longer
exists at V2 were deleted, or changed their key, in transactions that V2 shows and V1 does not. The changelog has these
transactions: their changes are reduced by key, and the keys that end without a row are to be deleted from the lake.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from cdc_core.errors import RereadNeededError
from cdc_core.lake.epochs import ChangeRows
from cdc_core.lake.reduce.latest import image_schema, reduce_slice
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.rows.survey import check_old_rows, hidden, survey
from cdc_core.lake.stores.changelog import between
from cdc_core.schema import TableSchema


def changes_between(changelog: ChangeRows, since: str, visible: str) -> Iterator[pa.Table]:
    """Yield the change rows that the pg_snapshot ``visible`` shows and ``since`` does not, by file, in any order."""
    for file in changelog.files:
        if file.maximum.get("__tx_index") == -1:
            continue  # rows of a snapshot
        rows = between(changelog.read(file), 0, 2**63 - 1)
        rows = rows.filter(pa.array(~hidden(rows, visible) & hidden(rows, since)))
        if rows.num_rows:
            yield rows


class LastStates:
    """Collects, for each key touched by some changes, whether the last of them left a row there."""

    def __init__(self, table: TableSchema, lake: pa.Schema) -> None:
        self._table = table
        self._lake = lake
        self._key = KeyColumns.of(table.row_key, lake)
        self._parts: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add change rows in the lake's columns. At most one row per key is kept in memory.

        Raises TableError if deleted rows cannot be identified, RereadNeededError for a truncate.
        """
        facts = survey(rows)
        check_old_rows(facts, True, self._table)
        if facts.truncated_at is not None:
            raise RereadNeededError(
                f"{self._table.id} was truncated while it was read in several attempts.",
                f"Run wal2lake snapshot with {self._table.id}.",
                str(self._table.id),
            )
        reduced = reduce_slice(rows, self._table.row_key, self._lake)
        part = reduced.keys.select(self._key.read)
        for name in ("__commit_lsn", "__tx_index"):
            part = part.append_column(name, reduced.rows.column(name))
        self._parts.append(part.append_column("gone", pa.array(reduced.deleted)))

    def deletes(self) -> pa.Table:
        """Return change rows that delete the keys without a row: op d, without a transaction, before all others.

        Shape: -> change rows, images of the lake's columns
        """
        if not self._parts:
            return _deletes(pa.schema([self._lake.field(name) for name in self._key.read]).empty_table(), self._lake)
        every = pa.concat_tables(self._parts).combine_chunks()
        lsn, index = (column(every, name).to_numpy() for name in ("__commit_lsn", "__tx_index"))
        every = every.take(pa.array(np.lexsort((index, lsn))))
        _, codes = KeyIndex.of(self._key, every)
        last = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
        last[codes] = np.arange(len(codes))
        ends = every.take(pa.array(last))
        return _deletes(ends.filter(ends.column("gone")).select(self._key.read), self._lake)


def _deletes(keys: pa.Table, lake: pa.Schema) -> pa.Table:
    count = keys.num_rows
    fields = list(image_schema(lake))
    before = [
        column(keys, field.name) if field.name in keys.schema.names else pa.nulls(count, field.type) for field in fields
    ]
    zero = pa.array(np.zeros(count, dtype=np.int64))
    facts = {
        "__op": pa.array(np.full(count, "d", dtype=object), pa.string()),
        "__commit_lsn": zero,
        "__tx_index": zero,
        "__lsn": zero,
        "__xid": pa.nulls(count, pa.int64()),
        "__commit_ts": pa.nulls(count, pa.timestamp("us", tz="UTC")),
        "__unchanged": pa.nulls(count, pa.list_(pa.string())),
        "before": pa.StructArray.from_arrays(before, fields=fields),
        "after": pa.nulls(count, pa.struct(fields)),
    }
    return pa.table(facts)
