"""Prepares rows of chunks, read from the source at some moment, for a lake table that has been merged further since.

A chunk contains the rows returned by one SELECT under the snapshot V. Afterwards the end of the WAL was R. The lake
table is merged up to M >= R: it contains the effect of every transaction committed by M on the rows that it had. E are
the changes up to M that V does not show; the changelog has all of them, each with its transaction.

Why a written key is exactly the source's at M. Every transaction that V shows committed before R, because a commit is
in the WAL before it becomes visible; so V's rows and E together are the source at M. It remains to be shown that for
one key the changes of E follow those that V shows, although their WAL positions need not be in this order: a
transaction that changes a row, writes a row at a key that another row has left, or truncates the table waits until the
transaction that did so before it has *ended*, which is when snapshots begin to show it. So if V shows a change of a
key, it shows every earlier one of it. Hence:

* A key that no change of E touches: the chunk's row, unchanged.
* A key whose changes in E all keep the key of their row: the chunk's row as a read before them, then the changes, by
  the ordinary reduction. An unchanged TOAST value is found in the read, so the lake's own row, which may be damaged or
  missing, is never used. A row that was deleted since ends as deleted.
* A key that a change of E moved a row to or away from: left out. The merges of the stream write its last state, because
  each such row was written by an event that contains the complete row, with one exception:
* A row that was moved to another key with unchanged TOAST columns takes them, when it is merged, from the lake's row at
  the old key, which may be missing or damaged. ``moved_unsent`` finds these keys among *all* changes since the last
  chunks were written, because a row may also move from keys that are not yet read to keys that were; they are re-read.
  A chunk that does not show such a change does not find the row at its new key: the key is then re-read once more.
* A key that was queried by its value, and that V does not show (``gone``): a delete in the place of the read.
* A truncate in E: the chunk is dropped. All rows that the table contains after it are in the stream.

Several chunks are written together, each with its own V. A key that is in two of them is taken from the later one.

If the delete mode keeps rows, a key that ends as deleted is marked, or its version ends; in history mode a row that
equals the lake's stays, and one that differs begins a version at (M, -1). Where readers see the changes of a commit
(``Definition.shows_changes``) a row that equals the lake's stays in every mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.clock import now_us
from cdc_core.lake.apply.changes import Changes
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.apply.versioned import VersionedChanges
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.names import RESCUED
from cdc_core.lake.reduce.history import found_versions
from cdc_core.lake.reduce.latest import ReducedSlice, image_schema, images_of_keys, reduce_slice
from cdc_core.lake.reduce.soft import reduce_soft
from cdc_core.lake.rows.images import chosen, column, image, texts_of, validity
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.rows.survey import hidden, is_op, unsent
from cdc_core.lake.schema.lake_schema import bare_schema
from cdc_core.lake.stores.snapshot_events import as_reads

_POSITION = ("__commit_lsn", "__tx_index")


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """The lake rows of one chunk; ``visible`` is the text of its pg_snapshot. One row per key.

    ``gone`` are queried keys that the snapshot does not show: the key's columns, None for none.
    """

    rows: pa.Table
    visible: str
    gone: pa.Table | None = None

    def reads(self, schema: pa.Schema) -> pa.Table:
        """Return the rows as reads, and a delete for each key in ``gone``, at their position."""
        reads = as_reads(conform(self.rows, schema))
        if self.gone is None or not self.gone.num_rows:
            return reads
        count, row = self.gone.num_rows, reads.schema.field("before").type
        image_rows = conform(self.gone, pa.schema(list(row)))
        made = {
            "__op": pa.array(["d"] * count, pa.string()),
            "__commit_lsn": pa.array(np.zeros(count, dtype=np.int64)),
            "__tx_index": pa.array(np.full(count, -1, dtype=np.int64)),
            "__commit_ts": pa.array([now_us()] * count, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "__unchanged": pa.array([[]] * count, pa.list_(pa.string())),
            "before": pa.StructArray.from_arrays(
                [column(image_rows, name) for name in image_rows.schema.names], fields=list(row)
            ),
        }
        deletes = pa.table({name: made.get(name, pa.nulls(count, kind.type)) for name, kind in _fields(reads.schema)})
        return pa.concat_tables([reads, deletes.cast(reads.schema)])


def _fields(schema: pa.Schema) -> list[tuple[str, pa.Field]]:
    return [(field.name, field) for field in schema]


@dataclass(frozen=True, slots=True)
class ChunkStates:
    """The states that keys get by chunks, for a lake table of ``schema`` that is merged up to the LSN ``at``.

    ``events`` is the number of rows and changes that they are made of.
    """

    reduced: ReducedSlice
    schema: pa.Schema
    at: int
    events: int

    @property
    def rows(self) -> pa.Table:
        """The states of keys that have one; in mode soft also of rows that were deleted since. Shape: lake rows[S]"""
        return self.reduced.rows.filter(pa.array(~self.reduced.deleted))

    @property
    def keys(self) -> pa.Table:
        """Their keys. Shape: [S]"""
        return self.reduced.keys.filter(pa.array(~self.reduced.deleted))

    def changes(self, *, leaves_equal: bool = False) -> Changes:
        """Return the changes that these states make to the lake table. ``leaves_equal`` as in ``KeyedChanges``."""
        if mode_of(self.schema.names) is DeleteMode.HISTORY:
            return VersionedChanges(self.events, False, found_versions(self.reduced, self.schema, self.at))
        return KeyedChanges(self.events, False, self.reduced, leaves_equal)


def chunk_states(
    chunks: Sequence[ChunkRows], changes: pa.Table, key: Sequence[str], schema: pa.Schema, at: int
) -> ChunkStates:
    """Return the states of the keys of chunks, in reading order, in a lake table merged up to the LSN ``at``.

    ``changes`` are change rows of ``schema``'s columns (a part of them) committed up to ``at``, at least all that one
    of the chunks does not show, without those that a rule refused. ``schema`` is the lake's. If the table keeps deleted
    rows (delete mode soft), they take their last values from the reads as well. Rows that no later change touched have
    position (``at``, -1) afterwards, so that every later change follows them.
    """
    mode = mode_of(schema.names)
    reads = [chunk.reads(schema) for chunk in chunks]
    every = pa.concat_tables([conform(part, reads[0].schema) for part in (*reads, changes)]).combine_chunks()
    owner = np.concatenate([np.full(read.num_rows, number) for number, read in enumerate(reads)]).astype(np.int64)
    hides = np.stack([hidden(changes, chunk.visible) for chunk in chunks]) if changes.num_rows else None
    kept = _kept(every, owner, hides, KeyColumns.of(key, schema), len(chunks))
    rows = every if kept.all() else every.filter(pa.array(kept))
    if mode is DeleteMode.SOFT:
        reduced = reduce_soft(_reads_first(rows), key, schema)
    else:
        reduced = reduce_slice(_reads_first(rows), key, bare_schema(schema))
    place = reduced.rows.schema.get_field_index("__commit_lsn")
    is_read = column(reduced.rows, "__tx_index").to_numpy() < 0
    lsn = np.where(is_read, at, column(reduced.rows, "__commit_lsn").to_numpy())
    made = reduced.rows.set_column(place, reduced.rows.schema.field(place), pa.array(lsn, pa.int64()))
    return ChunkStates(replace(reduced, rows=made), schema, at, rows.num_rows)


def without_keys(
    chunks: Sequence[ChunkRows],
    changes: pa.Table,
    keys: pa.Table,
    key: KeyColumns,
    schema: pa.Schema,
    *,
    are_gone: bool = False,
) -> tuple[list[ChunkRows], pa.Table]:
    """Return chunks and changes without those of some keys. ``are_gone``: their rows are deleted in the lake instead.

    Shape: keys[K] with the columns of ``KeyColumns.read``
    """
    index, key_schema = KeyIndex.of(key, keys)[0], pa.schema([schema.field(name) for name in key.read])

    def rest(rows: pa.Table) -> pa.Table:
        return rows.filter(pa.array(index.match(conform(rows, key_schema)) < 0))

    left = []
    for number, chunk in enumerate(chunks):
        gone = None if chunk.gone is None else rest(chunk.gone)
        if are_gone and number == len(chunks) - 1:
            gone = pa.concat_tables([conform(part, key_schema) for part in (gone, keys) if part is not None])
        left.append(replace(chunk, rows=rest(chunk.rows), gone=gone))
    if not changes.num_rows:
        return left, changes
    after, before, has_before = images_of_keys(changes, key, image_schema(schema))
    touched = validity(column(changes, "after")) & (index.coder.codes(after) >= 0)
    touched |= has_before & (index.coder.codes(before) >= 0)
    return left, changes.filter(pa.array(~touched))


def moved_unsent(changes: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the distinct keys to which changes moved a row with unsent columns: the columns ``KeyColumns.read``."""
    columns = KeyColumns.of(key, schema)
    key_schema = pa.schema([schema.field(name) for name in columns.read])
    bare = np.zeros(changes.num_rows, dtype=bool)
    for mask in unsent(changes).values():
        bare |= mask
    some = changes.filter(pa.array(bare & is_op(changes, "u") & validity(column(changes, "before"))))
    if not some.num_rows:
        return key_schema.empty_table()
    after, before = (conform(image(some, name), key_schema) for name in ("after", "before"))
    after = _with_unsent_keys(after, before, some, columns)
    _, codes = KeyIndex.of(columns, pa.concat_tables([after, before]).combine_chunks())
    new, old = codes[: some.num_rows], codes[some.num_rows :]
    moved = np.flatnonzero(new != old)
    _, first = np.unique(new[moved], return_index=True)
    return after.take(pa.array(np.sort(moved[first])))


def key_texts(keys: pa.Table, names: Sequence[str]) -> list[tuple[str, ...]] | None:
    """Return keys as PostgreSQL input text, in the order of ``names``; None if a type has no such text here."""
    by_name = {name.lower(): name for name in keys.schema.names}
    rescued = texts_of(column(keys, RESCUED)) if RESCUED in keys.schema.names else {}
    texts = []
    for name in names:
        values = column(keys, by_name[name.lower()])
        if not _is_plain(values.type):
            return None
        text = values.cast(pa.string())
        if by_name[name.lower()] in rescued:
            text = pc.coalesce(text, rescued[by_name[name.lower()]])
        if text.null_count:
            return None
        texts.append(text.to_pylist())  # row-wise: few, because they become SQL
    return list(zip(*texts, strict=True))


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _kept(every: pa.Table, owner: np.ndarray, hides: np.ndarray | None, key: KeyColumns, chunks: int) -> Bools:
    """Return which rows are used: reads first, ``owner`` their chunks, then changes. Shape: table[N] -> bool[N]."""
    reads, kept = len(owner), np.zeros(every.num_rows, dtype=bool)
    new, old, count = _keys(every, key)
    # For each key, the chunk and the read that it is taken from, -1 if there is none: the last read of a key is used.
    chunk_of, read_of = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    own = np.where(new[:reads] >= 0, new[:reads], old[:reads])  # a key that is gone has an old image only
    chunk_of[own], read_of[own] = owner, np.arange(reads)
    left_out = np.zeros(count, dtype=bool)
    if hides is not None:
        changes = every.slice(reads)
        new, old = new[reads:], old[reads:]
        truncates, deletes, updates = (is_op(changes, op) for op in ("t", "d", "u"))
        dropped: Bools = np.any(hides & truncates, axis=1)
        left_out |= (chunk_of >= 0) & dropped[chunk_of]
        moves = updates & (old >= 0) & (old != new)
        for keys in (new, old):
            at = np.flatnonzero(moves)
            at = at[_is_hidden(hides, chunk_of, keys, at)]
            left_out[keys[at]] = True
        mine = np.where(deletes, old, new)
        at = np.flatnonzero(~moves & (mine >= 0))
        at = at[_is_hidden(hides, chunk_of, mine, at)]
        kept[reads + at[~left_out[mine[at]]]] = True
    applied = (read_of >= 0) & ~left_out
    kept[read_of[applied]] = True
    return kept


def _is_hidden(hides: np.ndarray, chunk_of: np.ndarray, keys: np.ndarray, at: np.ndarray) -> Bools:
    """Whether the chunk that has a change's key does not show the change. Shape: keys[N], at[A] -> bool[A]."""
    chunk = chunk_of[keys[at]]
    return np.asarray((chunk >= 0) & hides[chunk, at])


def _keys(every: pa.Table, key: KeyColumns) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the numbers of each row's new and old key, -1 if it has none, and the number of keys."""
    schema = pa.schema([every.schema.field("after").type.field(name) for name in key.read])
    after, before = (conform(image(every, name), schema) for name in ("after", "before"))
    after = _with_unsent_keys(after, before, every, key)
    into = np.flatnonzero(validity(column(every, "after")))
    out = np.flatnonzero(validity(column(every, "before")))
    _, codes = KeyIndex.of(
        key, pa.concat_tables([after.take(pa.array(into)), before.take(pa.array(out))]).combine_chunks()
    )
    new, old = np.full(every.num_rows, -1, dtype=np.int64), np.full(every.num_rows, -1, dtype=np.int64)
    new[into], old[out] = codes[: len(into)], codes[len(into) :]
    return new, old, int(codes.max(initial=-1)) + 1


def _with_unsent_keys(after: pa.Table, before: pa.Table, rows: pa.Table, key: KeyColumns) -> pa.Table:
    """Replace unsent key values: an unchanged key stored out of line is not sent again, but is in the old tuple."""
    lost = {name.lower(): mask for name, mask in unsent(rows).items()}
    for name in key.names:
        mask = lost.get(name.lower())
        if mask is not None:
            value = chosen(mask, column(before, name), column(after, name))
            after = after.set_column(after.schema.get_field_index(name), after.schema.field(name), value)
    return after


def _reads_first(rows: pa.Table) -> pa.Table:
    """Return the rows with the reads at a position before every change."""
    place = rows.schema.get_field_index("__commit_lsn")
    lsn = np.where(column(rows, "__tx_index").to_numpy() < 0, 0, column(rows, "__commit_lsn").to_numpy())
    return rows.set_column(place, rows.schema.field(place), pa.array(lsn, pa.int64()))
