"""Re-reads a table whose delete mode keeps rows: rows that the snapshot does not show are kept as deleted or past.

    soft      the snapshot's rows; every other row is marked as deleted at the snapshot's position
    history   an unchanged row stays; a changed one ends at the snapshot's position, where the snapshot's begins; one
              that no longer exists ends

Changes after the snapshot that the lake already has are undone, because they are merged again after it: rows that they
wrote are removed, versions that they ended continue. Rows get the columns of the snapshot: a column that it no longer
has stays with its old values (or is dropped, by wal2lake.lake.dropped.columns), and a value that the new type cannot
represent becomes text in ``__rescued``. Arrow does this in the caller up to a limit in bytes, because it has the
snapshot's rows in memory; Spark does it above the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.errors import TableError
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
from cdc_core.lake.rows.images import column, rescued_of, texts_of, validity
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.schema.features import can_be_written_by_spark
from cdc_core.lake.schema.lake_schema import holds
from cdc_core.schema.table import TableId

_ROWS_PER_FILE = 1_000_000
EPOCH_LSNS = 2**56
"""More than any LSN. A kept row of an earlier epoch has its LSNs less this number for each epoch since: they are
negative, so the row is before everything of the present epoch, and their order is the same.
"""
MOST_EARLIER = 2**62
LSN_COLUMNS = (POSITION[0], FROM_LSN, TO_LSN)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The key of the rows and the position of the snapshot.

    ``arrow_max_bytes``: above this size Spark is used. ``keeps_dropped``: columns missing in the snapshot stay.
    ``epochs``: the number of epochs (``epochs``) since the one of the table's rows, 0 for rows of the snapshot's own.
    """

    key: tuple[str, ...]
    at: Truncation
    arrow_max_bytes: int = 0
    keeps_dropped: bool = True
    epochs: int = 0

    @property
    def earlier_by(self) -> int:
        """The number that is subtracted from the LSNs of the table's rows."""
        return min(self.epochs * EPOCH_LSNS, MOST_EARLIER)


@dataclass(frozen=True, slots=True)
class Merged:
    """A table's next content: ``added`` files under ``schema``, ``removed`` ones, and ``unused`` ones of the snapshot.

    Files are unused if all their rows, or rewritten ones, are in other files.
    """

    schema: pa.Schema
    added: list[DataFile]
    removed: list[DataFile]
    unused: list[DataFile]


def keeps_rows(lake: DeltaTable, schema: pa.Schema) -> bool:
    """Whether a snapshot of ``schema`` must not simply replace the table's content."""
    return mode_of(schema.names) is not DeleteMode.HARD and bool(lake.files)


def is_for_spark(lake: DeltaTable, files: Sequence[DataFile], schema: pa.Schema, kept: KeptRows) -> bool:
    """Whether the rows exceed the memory limit of the caller, and Spark can write the table."""
    size = sum(file.size for file in [*lake.files, *files])
    return size > kept.arrow_max_bytes and can_be_written_by_spark(lake, schema)


def grown_schema(lake: pa.Schema, snapshot: pa.Schema, kept: KeptRows) -> pa.Schema:
    """Return the snapshot's columns, those that only the lake has, and the snapshot's metadata columns."""
    names = {each.name.lower() for each in snapshot}
    retired = [each for each in image_schema(lake) if each.name.lower() not in names] if kept.keeps_dropped else []
    own = [each for each in snapshot if each.name in OWN_NAMES or each.name == RESCUED]
    return pa.schema([*[each for each in snapshot if each not in own], *retired, *own])


def check_modes(lake: pa.Schema, snapshot: pa.Schema, table: TableId) -> None:
    """Raise TableError if rows of the lake's mode cannot be converted to the snapshot's mode."""
    found, wanted = mode_of(lake.names), mode_of(snapshot.names)
    if found not in (DeleteMode.HARD, wanted):
        raise TableError(
            f"The lake table of {table} is in delete mode {found.value}, whose rows lack the data that mode "
            f"{wanted.value} needs.",
            f"Move the table's lake folder away and run wal2lake snapshot with {table}.",
            str(table),
        )


def merged(lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, kept: KeptRows) -> Merged:
    """Merge the table's content with the snapshot's ``files``, by Arrow; writes files, but commits nothing."""
    schema = grown_schema(lake.schema, snapshot, kept)
    if mode_of(snapshot.names) is DeleteMode.SOFT:
        return _soft(lake, files, snapshot, schema, kept)
    return _history(lake, files, snapshot, schema, kept)


def adapted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert lake rows to another schema and its delete mode; unrepresentable values go to ``__rescued``."""
    wanted = mode_of(schema.names)
    if mode_of(rows.schema.names) is not wanted:
        rows = as_live(rows, wanted)
    texts = texts_of(column(rows, RESCUED))
    held = {each.name.lower(): each for each in rows.schema}
    for each in image_schema(schema):
        have = held.get(each.name.lower())
        if have is None or holds(each.type, have.type):
            continue
        place = rows.schema.get_field_index(have.name)
        values = column(rows, have.name)
        text = _texts(values)
        if text is not None:
            texts[each.name] = text
        rows = rows.set_column(place, pa.field(have.name, each.type), pa.nulls(rows.num_rows, each.type))
    names = {each.name for each in image_schema(schema)}
    texts = {name: values for name, values in texts.items() if name in names}
    place = rows.schema.get_field_index(RESCUED)
    return conform(rows.set_column(place, rows.schema.field(place), rescued_of(texts, rows.num_rows)), schema)


def earlier(rows: pa.Table, kept: KeptRows) -> pa.Table:
    """Return lake rows of an earlier epoch with their LSNs before the present epoch's; rows of the same one unchanged.

    Shape: table[N] -> table[N]
    """
    for name in LSN_COLUMNS if kept.epochs else ():
        if name in rows.schema.names:
            held = column(rows, name)
            lsn = held.fill_null(0).to_numpy(zero_copy_only=False)
            # Below this there is no room for a further epoch: the order among epochs so long ago is given up.
            moved = np.where(lsn < -MOST_EARLIER, lsn, lsn - kept.earlier_by)
            rows = with_column(rows, name, pa.array(moved, pa.int64(), mask=~validity(held)))
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


def _soft(
    lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, schema: pa.Schema, kept: KeptRows
) -> Merged:
    columns = KeyColumns.of(kept.key, snapshot)
    shown = [lake.read_as(file, pa.schema([snapshot.field(name) for name in columns.read])) for file in files]
    none = pa.schema([snapshot.field(name) for name in columns.read]).empty_table()
    index, _ = KeyIndex.of(columns, pa.concat_tables([none, *shown]).combine_chunks())
    added = list(files)
    for file in lake.files:
        rows = earlier(adapted(lake.read(file), schema), kept)
        live = is_live(rows)
        stays = (index.match(rows.select(columns.read)) < 0) & ~(live & is_after(rows, kept.at))
        gone = marked(rows, np.flatnonzero(live), kept.at).filter(pa.array(stays))
        if gone.num_rows:
            added.append(lake.write_as(gone, schema))
    return Merged(schema, added, list(lake.files), [])


def _history(
    lake: DeltaTable, files: Sequence[DataFile], snapshot: pa.Schema, schema: pa.Schema, kept: KeptRows
) -> Merged:
    names = image_schema(snapshot).names
    shown = [lake.read_as(file, snapshot) for file in files]
    every = pa.concat_tables([snapshot.empty_table(), *shown]).combine_chunks()
    coder, codes = Tuples.number([column(every, name) for name in names], exact=True)
    place = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    place[codes] = np.arange(len(codes))
    fresh = np.ones(every.num_rows, dtype=bool)
    same_columns = schema.equals(lake.schema)
    added, removed, ended = list[DataFile](), list[DataFile](), list[pa.Table]()
    for file in lake.files:
        if same_columns and not kept.epochs and file.is_history and file.maximum.get(TO_LSN, kept.at.lsn) < kept.at.lsn:
            continue
        rows = earlier(adapted(lake.read(file), schema), kept)
        rows = rows.filter(pa.array(~is_after(rows, kept.at)))
        rows = reopened(rows, np.flatnonzero(is_after(rows, kept.at, (TO_LSN, TO_INDEX))))
        current = rows.filter(pa.array(is_live(rows)))
        found = coder.codes([column(current, name) for name in names])
        fresh[place[found[found >= 0]]] = False
        ended += [rows.filter(pa.array(~is_live(rows))), closed(current.filter(pa.array(found < 0)), kept.at)]
        stays = current.filter(pa.array(found >= 0))
        removed.append(file)
        added += [lake.write_as(stays, schema)] if stays.num_rows else []
    past = pa.concat_tables(ended) if ended else schema.empty_table()
    added += [
        lake.write_as(past.slice(start, _ROWS_PER_FILE), schema) for start in range(0, past.num_rows, _ROWS_PER_FILE)
    ]
    came, unused = _fresh_files(lake, files, shown, fresh, snapshot)
    return Merged(schema, added + came, removed, unused)


def _fresh_files(
    lake: DeltaTable, files: Sequence[DataFile], shown: Sequence[pa.Table], fresh: np.ndarray, schema: pa.Schema
) -> tuple[list[DataFile], list[DataFile]]:
    """Return the snapshot's files without rows that the lake has unchanged, and the files they replace."""
    added, unused, start = [], [], 0
    for file, rows in zip(files, shown, strict=True):
        mine = fresh[start : start + rows.num_rows]
        start += rows.num_rows
        if mine.all():
            added.append(file)
            continue
        unused.append(file)
        if mine.any():
            added.append(lake.write_as(rows.filter(pa.array(mine)), schema))
    return added, unused


def commit_merged(lake: DeltaTable, found: Merged, txns: Mapping[str, int], metadata: Mapping[str, Any]) -> int:
    """Commit the content; returns the version. Raises CommitConflictError."""
    if found.schema.equals(lake.schema):
        version = lake.commit(found.added, found.removed, txns=txns, metadata=metadata)
    else:
        version = lake.commit(found.added, txns=txns, metadata=metadata, schema=found.schema, replace=True)
    lake.discard(found.unused)
    return version
