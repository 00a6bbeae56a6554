"""What a lake table has after it was read again: rows of it and of a snapshot, in the snapshot's columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.paired_parts import PART_BYTES, PairedParts
from cdc_core.lake.delete_columns import FROM_LSN, POSITION, TO_LSN, as_live, mode_of, with_column
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.names import RESCUED
from cdc_core.lake.reduce.latest import image_schema
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.rows.images import chosen, column, rescued_of, texts_of, validity
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.schema.casts import holds

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


class NextContent:
    """The next content of a lake table: rows of it and of a snapshot meet in ``parts``, and are written to files.

    With row tracking rows of the table have their ids and commit versions, and those of the snapshot none.
    """

    def __init__(self, lake: DeltaTable, schema: pa.Schema, kept: KeptRows, folder: Path) -> None:
        self._lake, self.schema, self._kept = lake, schema, kept
        self._tracked = list(lake.tracked_schema)[len(lake.schema) :]
        self.parts = PairedParts(lambda: folder, pa.schema([*schema, *self._tracked]), kept.part_bytes)

    def lake_rows(self, file: DataFile) -> Iterator[pa.Table]:
        """Yield the table's rows in a file in the columns of the next content."""
        for batch in self._lake.batches(file, self._lake.tracked_schema.names):
            rows = earlier(adapted(batch.select(self._lake.schema.names), self.schema), self._kept)
            for column_of_ids in self._tracked:
                rows = rows.append_column(column_of_ids, batch.column(column_of_ids.name))
            yield self.updated(rows, np.full(rows.num_rows, bool(self._kept.epochs)))

    def updated(self, rows: pa.Table, mask: np.ndarray) -> pa.Table:
        """Return rows of which some were changed: these get the version of the commit. Shape: table[N], bool[N]"""
        if not self._tracked or not mask.any():
            return rows
        version = self._tracked[-1].name
        values = column(rows, version)
        return with_column(rows, version, chosen(mask, pa.nulls(len(mask), values.type), values))

    def succeeding(self, rows: pa.Table, earlier_rows: pa.Table, key: KeyColumns) -> pa.Table:
        """Return rows with the ids of those that had their keys, one each. Shape: table[N], table[M] -> table[N]"""
        if not self._tracked or not earlier_rows.num_rows:
            return rows
        index, codes = KeyIndex.of(key, earlier_rows.select(key.read).combine_chunks())
        places = np.empty(len(index.values[0]), dtype=np.int64)
        places[codes] = np.arange(len(codes))
        numbers = index.match(rows.select(key.read))
        name = self._tracked[0].name
        before = pa.array(places[numbers], mask=numbers < 0)
        return with_column(rows, name, column(earlier_rows, name).take(before))

    def files(self) -> ContentFiles:
        """Return new files, of about the size of a part."""
        return ContentFiles(self._lake, self.schema, self.parts.most_bytes)


class ContentFiles:
    """Files that are written as rows come."""

    def __init__(self, lake: DeltaTable, schema: pa.Schema, most_bytes: int) -> None:
        self._lake, self._schema, self._most_bytes = lake, schema, most_bytes
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
