"""Re-reads a table that keeps rows: by its delete mode those that the snapshot does not show, as deleted or past.

    soft      the snapshot's rows; every other row is marked as deleted at the snapshot's position
    history   an unchanged row stays; a changed one ends at the snapshot's position, where the snapshot's begins; one
              that no longer exists ends
    feed      of a table with a change data feed or row tracking an unchanged row stays, so that only what differs is
              a change to their readers

Changes after the snapshot that the lake already has are undone, because they are merged again after it: rows that they
wrote are removed, versions that they ended continue. Rows get the columns of the snapshot: a column that it no longer
has stays with its old values (or is dropped, by wal2lake.lake.dropped.columns), and a value that the new type cannot
represent becomes text in ``__rescued``.

The snapshot's rows and the table's meet in parts, by the hash of what they are compared by, so that a table of any size
takes the memory of a part; parts of a table that is larger than one are on local disk (``lake/rows/buckets``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.errors import TableError
from cdc_core.lake.apply.change_feed import replacement_files
from cdc_core.lake.apply.next_content import KeptRows, NextContent, adapted
from cdc_core.lake.delete_columns import POSITION, TO_INDEX, TO_LSN, is_live, mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.names import OWN_NAMES, RESCUED
from cdc_core.lake.reduce.history import closed, reopened
from cdc_core.lake.reduce.latest import image_schema
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.reduce.soft import marked
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.feed_rows import equal_rows
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """A table's next content: ``added`` files under ``schema``, ``removed`` ones, and ``unused`` ones of the snapshot.

    Files are unused if their rows are in other files.
    """

    schema: pa.Schema
    added: list[DataFile]
    removed: list[DataFile]
    unused: list[DataFile]


def keeps_rows(lake: DeltaTable, schema: pa.Schema) -> bool:
    """Whether a snapshot of ``schema`` must not simply replace the table's content."""
    is_kept = mode_of(schema.names) is not DeleteMode.HARD or lake.definition.shows_changes
    return is_kept and bool(lake.files)


def grown_schema(lake: pa.Schema, snapshot: pa.Schema, kept: KeptRows) -> pa.Schema:
    """Return the snapshot's columns, those that only the lake has, and the snapshot's metadata columns.

    In delete mode hard only the snapshot's.
    """
    if mode_of(snapshot.names) is DeleteMode.HARD:
        return snapshot
    names = {field.name.lower() for field in snapshot}
    retired = [field for field in image_schema(lake) if field.name.lower() not in names] if kept.keeps_dropped else []
    own = [field for field in snapshot if field.name in OWN_NAMES or field.name == RESCUED]
    return pa.schema([*[field for field in snapshot if field not in own], *retired, *own])


def check_modes(lake: pa.Schema, snapshot: pa.Schema, table: TableId) -> None:
    """Raise TableError if rows of the lake's mode cannot be converted to the snapshot's mode."""
    lake_mode, snapshot_mode = mode_of(lake.names), mode_of(snapshot.names)
    if lake_mode not in (DeleteMode.HARD, snapshot_mode):
        raise TableError(
            f"The lake table of {table} is in delete mode {lake_mode.value}, whose rows lack the data that mode "
            f"{snapshot_mode.value} needs.",
            f"Move the table's lake folder away and run wal2lake snapshot with {table}.",
            str(table),
        )


def merged(lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, kept: KeptRows) -> MergedFiles:
    """Merge the table's content with the snapshot's ``files``; writes files, but commits nothing."""
    schema = grown_schema(lake.schema, snapshot, kept)
    merge = _history if mode_of(snapshot.names) is DeleteMode.HISTORY else _soft
    if merge is _soft and lake.definition.shows_changes:
        merge = _differing
    with tempfile.TemporaryDirectory(prefix="wal2lake-") as folder:
        return merge(lake, files, snapshot, NextContent(lake, schema, kept, Path(folder)), kept)


def is_after(rows: pa.Table, at: Truncation, names: Sequence[str] = POSITION) -> Bools:
    """Return rows whose event the snapshot may not show; ``names``: LSN and index. Shape: table[N] -> bool[N]."""
    lsn = column(rows, names[0]).fill_null(-1).to_numpy(zero_copy_only=False)
    index = column(rows, names[1]).fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray((lsn >= at.lsn) & (index >= 0))


def _soft(
    lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, content: NextContent, kept: KeptRows
) -> MergedFiles:
    columns, parts = KeyColumns.of(kept.key, snapshot), content.parts
    for file in files:
        for keys in lake.batches_as(file, pa.schema([snapshot.field(name) for name in columns.read])):
            parts.add(keys, columns.parts(keys), is_new=True)
    for file in lake.files:
        for rows in content.lake_rows(file):
            kept_rows = rows.filter(pa.array(~(is_live(rows) & is_after(rows, kept.at))))
            parts.add(kept_rows, columns.parts(kept_rows), is_new=False)
    gone = content.files()
    for lake_rows, shown in parts:
        index, _ = KeyIndex.of(columns, shown.select(columns.read).combine_chunks())
        rows = lake_rows.filter(pa.array(index.match(lake_rows.select(columns.read)) < 0))
        gone.add(marked(rows, np.flatnonzero(is_live(rows)), kept.at))
    return MergedFiles(content.schema, [*files, *gone.files], list(lake.files), [])


def _differing(
    lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, content: NextContent, kept: KeptRows
) -> MergedFiles:
    """As ``_soft``, also for tables that keep no deleted rows; a row that has the snapshot's values stays as it is."""
    names, is_soft = image_schema(snapshot).names, mode_of(snapshot.names) is DeleteMode.SOFT
    key, out = KeyColumns.of(kept.key, snapshot) if kept.key else None, content.files()

    def add(rows: pa.Table, *, is_new: bool) -> None:
        values = [column(rows, name) for name in names] if key is None else key.parts(rows)
        content.parts.add(rows, values, is_new=is_new)

    for file in files:
        for rows in lake.batches_as(file, snapshot):
            add(rows, is_new=True)
    for file in lake.files:
        for rows in content.lake_rows(file):
            # Changes after the snapshot are merged again, and positions of another server are not this one's.
            is_undone = is_live(rows) & (is_after(rows, kept.at) | bool(kept.epochs and not is_soft))
            add(rows.filter(pa.array(~is_undone)), is_new=False)
    for lake_rows, shown in content.parts:
        live = lake_rows.filter(pa.array(is_live(lake_rows)))
        stays, is_known = equal_rows(live, shown, names)
        out.add(live.filter(pa.array(stays)))
        fresh = shown.filter(pa.array(~is_known))
        out.add(fresh if key is None else content.succeeding(fresh, lake_rows, key))
        if key is not None and is_soft:
            index, _ = KeyIndex.of(key, shown.select(key.read).combine_chunks())
            rest = lake_rows.filter(pa.array(index.match(lake_rows.select(key.read)) < 0))
            was_live = is_live(rest)
            out.add(content.updated(marked(rest, np.flatnonzero(was_live), kept.at), was_live))
    return MergedFiles(content.schema, out.files, list(lake.files), list(files))


def _history(
    lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, content: NextContent, kept: KeptRows
) -> MergedFiles:
    names, parts = image_schema(snapshot).names, content.parts
    past, current = content.files(), content.files()
    same_columns, removed = content.schema.equals(lake.schema), list[DataFile]()
    for file in files:
        for rows in lake.batches_as(file, snapshot):
            parts.add(rows, [column(rows, name) for name in names], is_new=True)
    for file in lake.files:
        if same_columns and not kept.epochs and file.is_history and file.maximum.get(TO_LSN, kept.at.lsn) < kept.at.lsn:
            continue
        removed.append(file)
        for every in content.lake_rows(file):
            rows = every.filter(pa.array(~is_after(every, kept.at)))
            continues = is_after(rows, kept.at, (TO_LSN, TO_INDEX))
            rows = content.updated(reopened(rows, np.flatnonzero(continues)), continues)
            live = is_live(rows)
            past.add(rows.filter(pa.array(~live)))
            rows = rows.filter(pa.array(live))
            parts.add(rows, [column(rows, name) for name in names], is_new=False)
    for lake_rows, shown in parts:
        coder, codes = Tuples.number([column(shown, name) for name in names], exact=True)
        lake_codes = coder.codes([column(lake_rows, name) for name in names])
        gone = closed(lake_rows.filter(pa.array(lake_codes < 0)), kept.at)
        past.add(content.updated(gone, np.ones(gone.num_rows, dtype=bool)))
        current.add(lake_rows.filter(pa.array(lake_codes >= 0)))
        current.add(shown.filter(pa.array(~np.isin(codes, lake_codes))))
    return MergedFiles(content.schema, current.files + past.files, removed, list(files))


def commit_merged(
    lake: DeltaTable, content: MergedFiles, key: Sequence[str], txns: Mapping[str, int], metadata: Mapping[str, Any]
) -> int:
    """Commit the content of a table with this key; returns the version. Raises CommitConflictError."""
    added, removed, schema = content.added, content.removed, content.schema
    feed = replacement_files(lake, added, removed, schema, lambda rows: adapted(rows, schema), key)
    if schema.equals(lake.schema):
        version = lake.commit(added, removed, changes=feed, txns=txns, metadata=metadata)
    else:
        version = lake.commit(added, changes=feed, txns=txns, metadata=metadata, schema=schema, replace=True)
    lake.discard(content.unused)
    return version
