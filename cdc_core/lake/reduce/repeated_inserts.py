"""Finds inserts of a key that an earlier insert of the same batch wrote and no event in between removed.

A source with a unique key cannot write that, so the second insert is wrong, or an event between the two is missing. A
row is removed by a delete, an update that changes the key, and a truncate. Snapshot rows are not considered: they may
be in the stream as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools, Ints
from cdc_core.lake.rows.images import column, validity
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex


def repeated_inserts(rows: pa.Table, key: Sequence[str], since: int = 0) -> Bools | None:
    """Return which change rows insert a key again; None if there are none. Shape: table[N] -> bool[N].

    Rows up to the commit LSN ``since`` are left out, because the table may have had a different key then. If the keys
    of all inserts differ, which is the usual case, nothing else is read.
    """
    counted = rows.column("__commit_lsn").fill_null(0).to_numpy() > since
    inserts = np.flatnonzero(_is(rows, "c") & counted & validity(column(rows.select(["after"]), "after")))
    if len(inserts) < 2:
        return None
    columns = KeyColumns.of(key, pa.schema(list(rows.schema.field("after").type)))
    images = _images(rows, "after", columns, inserts)
    if _is_rising(images):
        return None
    index, codes = KeyIndex.of(columns, images)
    if np.bincount(codes).max() < 2:
        return None
    leaving, left = _leaving(rows, columns, index, counted)
    if leaving is None:
        return None
    place = _places(rows)
    truncates = np.sort(place[_is(rows, "t")])
    row = np.concatenate([inserts, leaving])
    code, at = np.concatenate([codes, left]), place[row]
    is_insert = np.arange(len(row)) < len(inserts)
    order = np.lexsort((at, code))
    row, code, is_insert = row[order], code[order], is_insert[order]
    life = np.searchsorted(truncates, at[order])
    again = (code[1:] == code[:-1]) & (life[1:] == life[:-1]) & is_insert[1:] & is_insert[:-1]
    if not again.any():
        return None
    out = np.zeros(rows.num_rows, dtype=bool)
    out[row[1:][again]] = True
    return out


def has_repeated_keys(parts: Sequence[pa.Table], key: Sequence[str]) -> bool:
    """Whether two of some lake rows have the same key."""
    rows = pa.concat_tables(parts)
    columns = KeyColumns.of(key, rows.schema)
    return rows.num_rows > 1 and bool(np.bincount(KeyIndex.of(columns, rows)[1]).max() > 1)


def _is_rising(keys: pa.Table) -> bool:
    """Whether the key is one integer that increases from row to row, as with a sequence."""
    if keys.num_columns > 1 or not pa.types.is_integer(keys.schema.types[0]) or keys.column(0).null_count:
        return False
    values = keys.column(0).to_numpy()
    return bool((values[1:] > values[:-1]).all())


def _leaving(
    rows: pa.Table, columns: KeyColumns, index: KeyIndex, counted: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the rows that remove a row at an inserted key, and the keys' numbers; None if a delete has no old row.

    A key column that an update did not send counts as changed: this may find too many removals, never too few.
    """
    deletes, has_old = _is(rows, "d"), validity(column(rows.select(["before"]), "before"))
    if (deletes & ~has_old).any():
        return None, np.zeros(0, dtype=np.int64)
    some = np.flatnonzero((deletes | _is(rows, "u")) & has_old & counted)
    old = index.match(_images(rows, "before", columns, some)) if len(some) else np.zeros(0, dtype=np.int64)
    some, old = some[old >= 0], old[old >= 0]
    moved = deletes[some]
    if len(some) and not moved.all():
        moved |= index.match(_images(rows, "after", columns, some)) != old
    return some[moved], old[moved]


def _is(rows: pa.Table, op: str) -> Bools:
    """Return rows of one operation, which may be null before rules are checked. Shape: table[N] -> bool[N]."""
    return np.asarray(pc.equal(rows.column("__op").fill_null(""), op).to_numpy())


def _images(rows: pa.Table, name: str, columns: KeyColumns, places: np.ndarray) -> pa.Table:
    """Return the key's columns of an image of some rows. Shape: table[N], int64[M] -> table[M]."""
    parts = {key_name: pc.struct_field(rows.column(name), [key_name]) for key_name in columns.read}
    images = pa.table(parts)
    return (images if len(places) == rows.num_rows else images.take(pa.array(places))).combine_chunks()


def _places(rows: pa.Table) -> Ints:
    """Return each row's index in stream order. Shape: table[N] -> int64[N]."""
    lsn, at = (rows.column(name).fill_null(0).to_numpy() for name in ("__commit_lsn", "__tx_index"))
    place = np.empty(rows.num_rows, dtype=np.int64)
    place[np.lexsort((at, lsn))] = np.arange(rows.num_rows)
    return place
