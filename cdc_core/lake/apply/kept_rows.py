"""Re-reads a table that keeps rows: by its delete mode those that the snapshot does not show, as deleted or past.

    soft      the snapshot's rows; every other row is marked as deleted at the snapshot's position
    history   an unchanged row stays; a changed one ends at the snapshot's position, where the snapshot's begins; one
              that no longer exists ends
    feed      of a table with a change data feed an unchanged row stays, so that the feed has only what differs

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

from cdc_core.errors import TableError
from cdc_core.lake.apply.change_feed import replacement_files
from cdc_core.lake.apply.paired_parts import PART_BYTES, PairedParts
from cdc_core.lake.delete_columns import FROM_LSN, POSITION, TO_INDEX, TO_LSN, as_live, is_live, mode_of, with_column
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.names import OWN_NAMES, RESCUED
from cdc_core.lake.reduce.history import closed, reopened
from cdc_core.lake.reduce.latest import image_schema
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.reduce.soft import marked
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.feed_rows import equal_rows
from cdc_core.lake.rows.images import column, rescued_of, texts_of, validity
from cdc_core.lake.rows.key_hash import row_hashes
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.schema.lake_schema import holds
from cdc_core.schema import TableId

EPOCH_LSNS = 2**56
"""More than any LSN. A kept row of an earlier epoch has its LSNs less this number for each epoch since: they are
negative, so the row is before everything of the present epoch, and their order is the same.
"""
MOST_EARLIER = 2**62
LSN_COLUMNS = (POSITION[0], FROM_LSN, TO_LSN)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The key of the rows and the position of the snapshot.

    ``keeps_dropped``: columns missing in the snapshot stay. ``part_bytes``: rows in memory at a time, about.
    ``epochs``: the number of epochs (``epochs``) since the one of the table's rows, 0 for rows of the snapshot's own.
    """

    key: tuple[str, ...]
    at: Truncation
    keeps_dropped: bool = True
    epochs: int = 0
    part_bytes: int = PART_BYTES

    @property
    def earlier_by(self) -> int:
        """The number that is subtracted from the LSNs of the table's rows."""
        return min(self.epochs * EPOCH_LSNS, MOST_EARLIER)


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
    is_kept = mode_of(schema.names) is not DeleteMode.HARD or lake.definition.feeds_changes
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
    if merge is _soft and lake.definition.feeds_changes:
        merge = _differing
    with tempfile.TemporaryDirectory(prefix="wal2lake-") as folder:
        return merge(lake, files, snapshot, PairedParts(Path(folder), schema, kept.part_bytes), kept)


def adapted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert lake rows to another schema and its delete mode; unrepresentable values go to ``__rescued``."""
    mode = mode_of(schema.names)
    if mode_of(rows.schema.names) is not mode:
        rows = as_live(rows, mode)
    texts = texts_of(column(rows, RESCUED))
    by_name = {field.name.lower(): field for field in rows.schema}
    for field in image_schema(schema):
        have = by_name.get(field.name.lower())
        if have is None or holds(field.type, have.type):
            continue
        place = rows.schema.get_field_index(have.name)
        values = column(rows, have.name)
        text = _texts(values)
        if text is not None:
            texts[field.name] = text
        rows = rows.set_column(place, pa.field(have.name, field.type), pa.nulls(rows.num_rows, field.type))
    names = {field.name for field in image_schema(schema)}
    texts = {name: values for name, values in texts.items() if name in names}
    place = rows.schema.get_field_index(RESCUED)
    return conform(rows.set_column(place, rows.schema.field(place), rescued_of(texts, rows.num_rows)), schema)


def earlier(rows: pa.Table, kept: KeptRows) -> pa.Table:
    """Return lake rows of an earlier epoch with their LSNs before the present epoch's; rows of the same one unchanged.

    Shape: table[N] -> table[N]
    """
    for name in LSN_COLUMNS if kept.epochs else ():
        if name in rows.schema.names:
            values = column(rows, name)
            lsn = values.fill_null(0).to_numpy(zero_copy_only=False)
            # Below this there is no room for a further epoch: the order among epochs so long ago is given up.
            moved = np.where(lsn < -MOST_EARLIER, lsn, lsn - kept.earlier_by)
            rows = with_column(rows, name, pa.array(moved, pa.int64(), mask=~validity(values)))
    return rows


def _texts(values: pa.Array) -> pa.Array | None:
    try:
        return values.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return None


def is_after(rows: pa.Table, at: Truncation, names: Sequence[str] = POSITION) -> np.ndarray:
    """Return rows whose event the snapshot may not show; ``names``: LSN and index. Shape: table[N] -> bool[N]."""
    lsn = column(rows, names[0]).fill_null(-1).to_numpy(zero_copy_only=False)
    index = column(rows, names[1]).fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray((lsn >= at.lsn) & (index >= 0))


class _WrittenFiles:
    """Files that are written as rows come, of about the size of a part."""

    def __init__(self, lake: DeltaTable, parts: PairedParts) -> None:
        self._lake, self._schema, self._most_bytes = lake, parts.schema, parts.most_bytes
        self._held: list[pa.Table] = []
        self._files: list[DataFile] = []

    def add(self, rows: pa.Table) -> None:
        """Write rows, or keep them for the next file."""
        if rows.num_rows:
            self._held.append(rows)
        if sum(part.nbytes for part in self._held) > self._most_bytes:
            self._write()

    @property
    def files(self) -> list[DataFile]:
        """The files with all rows."""
        self._write()
        return self._files

    def _write(self) -> None:
        if self._held:
            self._files.append(self._lake.write_as(pa.concat_tables(self._held), self._schema))
        self._held = []


def _soft(
    lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, parts: PairedParts, kept: KeptRows
) -> MergedFiles:
    columns = KeyColumns.of(kept.key, snapshot)
    for file in files:
        keys = lake.read_as(file, pa.schema([snapshot.field(name) for name in columns.read]))
        parts.add(keys, row_hashes(columns.parts(keys)), is_new=True)
    for file in lake.files:
        for batch in lake.batches(file):
            rows = earlier(adapted(batch, parts.schema), kept)
            rows = rows.filter(pa.array(~(is_live(rows) & is_after(rows, kept.at))))
            parts.add(rows, row_hashes(columns.parts(rows)), is_new=False)
    gone = _WrittenFiles(lake, parts)
    for lake_rows, shown in parts:
        index, _ = KeyIndex.of(columns, shown.select(columns.read).combine_chunks())
        rows = lake_rows.filter(pa.array(index.match(lake_rows.select(columns.read)) < 0))
        gone.add(marked(rows, np.flatnonzero(is_live(rows)), kept.at))
    return MergedFiles(parts.schema, [*files, *gone.files], list(lake.files), [])


def _differing(
    lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, parts: PairedParts, kept: KeptRows
) -> MergedFiles:
    """As ``_soft``, also for tables that keep no deleted rows; a row that has the snapshot's values stays as it is."""
    names, is_soft = image_schema(snapshot).names, mode_of(snapshot.names) is DeleteMode.SOFT
    key = KeyColumns.of(kept.key, snapshot) if kept.key else None
    out = _WrittenFiles(lake, parts)

    def add(rows: pa.Table, *, is_new: bool) -> None:
        values = [column(rows, name) for name in names] if key is None else key.parts(rows)
        parts.add(rows, row_hashes(values), is_new=is_new)

    for file in files:
        add(lake.read_as(file, snapshot), is_new=True)
    for file in lake.files:
        for batch in lake.batches(file):
            rows = earlier(adapted(batch, parts.schema), kept)
            # Changes after the snapshot are merged again, and positions of another server are not this one's.
            is_undone = is_live(rows) & (is_after(rows, kept.at) | bool(kept.epochs and not is_soft))
            add(rows.filter(pa.array(~is_undone)), is_new=False)
    for lake_rows, shown in parts:
        live = lake_rows.filter(pa.array(is_live(lake_rows)))
        stays, is_known = equal_rows(live, shown, names)
        out.add(live.filter(pa.array(stays)))
        out.add(shown.filter(pa.array(~is_known)))
        if key is not None and is_soft:
            index, _ = KeyIndex.of(key, shown.select(key.read).combine_chunks())
            rows = lake_rows.filter(pa.array(index.match(lake_rows.select(key.read)) < 0))
            out.add(marked(rows, np.flatnonzero(is_live(rows)), kept.at))
    return MergedFiles(parts.schema, out.files, list(lake.files), list(files))


def _history(
    lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, parts: PairedParts, kept: KeptRows
) -> MergedFiles:
    names = image_schema(snapshot).names
    past, current = _WrittenFiles(lake, parts), _WrittenFiles(lake, parts)
    same_columns, removed = parts.schema.equals(lake.schema), list[DataFile]()
    for file in files:
        rows = lake.read_as(file, snapshot)
        parts.add(rows, row_hashes([column(rows, name) for name in names]), is_new=True)
    for file in lake.files:
        if same_columns and not kept.epochs and file.is_history and file.maximum.get(TO_LSN, kept.at.lsn) < kept.at.lsn:
            continue
        removed.append(file)
        for batch in lake.batches(file):
            rows = earlier(adapted(batch, parts.schema), kept)
            rows = rows.filter(pa.array(~is_after(rows, kept.at)))
            rows = reopened(rows, np.flatnonzero(is_after(rows, kept.at, (TO_LSN, TO_INDEX))))
            live = is_live(rows)
            past.add(rows.filter(pa.array(~live)))
            rows = rows.filter(pa.array(live))
            parts.add(rows, row_hashes([column(rows, name) for name in names]), is_new=False)
    for lake_rows, shown in parts:
        coder, codes = Tuples.number([column(shown, name) for name in names], exact=True)
        lake_codes = coder.codes([column(lake_rows, name) for name in names])
        past.add(closed(lake_rows.filter(pa.array(lake_codes < 0)), kept.at))
        current.add(lake_rows.filter(pa.array(lake_codes >= 0)))
        current.add(shown.filter(pa.array(~np.isin(codes, lake_codes))))
    return MergedFiles(parts.schema, current.files + past.files, removed, list(files))


def commit_merged(
    lake: DeltaTable, content: MergedFiles, key: Sequence[str], txns: Mapping[str, int], metadata: Mapping[str, Any]
) -> int:
    """Commit the content of a table with this key; returns the version. Raises CommitConflictError."""
    added, removed, schema = content.added, content.removed, content.schema
    feed = replacement_files(lake, added, removed, schema, lambda rows: adapted(rows, schema), key)
    if schema.equals(lake.schema):
        version = lake.commit(added, removed, changes=feed, txns=txns, metadata=metadata, keeps_row_ids=False)
    else:
        version = lake.commit(added, changes=feed, txns=txns, metadata=metadata, schema=schema, replace=True)
    lake.discard(content.unused)
    return version
