"""Rows of earlier files of a snapshot that was interrupted, without those that were read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.errors import LakeError
from cdc_core.lake.delta.candidates import Ranges
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.write.refused_reads import RefusedFile


@dataclass(frozen=True, slots=True)
class TakeOut:
    """Removes the keys of some files' rows from other files; picklable. A later commit adds the new files.

    ``schema`` is that of the files' rows; ``key`` names its key columns; ``fresh`` are the files with the keys to
    remove, ``refused`` those with more of them, whose rows are in quarantine.
    """

    lake: str
    schema: pa.Schema
    key: tuple[str, ...]
    fresh: tuple[DataFile, ...]
    refused: tuple[RefusedFile, ...] = ()

    def __call__(self, files: Sequence[DataFile]) -> list[tuple[DataFile, DataFile | None]]:
        """Return each file and its replacement: itself if it has none of the keys, None if no row remains."""
        lake = DeltaTable.open(self.lake)
        if lake is None:
            raise LakeError(f"The Delta table {self.lake} no longer exists.", "Take the snapshot again.")
        columns = KeyColumns.of(self.key, self.schema)
        key_schema = pa.schema([self.schema.field(name) for name in columns.read])
        parts = [lake.read_as(file, key_schema) for file in self.fresh]
        parts += [conform(file.read(lake).rows, key_schema) for file in self.refused]
        keys = pa.concat_tables(parts).combine_chunks()
        index, _ = KeyIndex.of(columns, keys)
        ranges = Ranges.of(keys, columns.names)
        replacements: list[tuple[DataFile, DataFile | None]] = []
        for file in files:
            stays = None
            if ranges.may_be_in(file):
                stays = index.match(lake.read_as(file, key_schema)) < 0
            if stays is None or stays.all():
                replacements.append((file, file))
            else:
                replacements.append((file, self._rewritten(lake, file, stays)))
        return replacements

    def _rewritten(self, lake: DeltaTable, file: DataFile, stays: np.ndarray) -> DataFile | None:
        if not stays.any():
            return None
        return lake.write_as(lake.read_as(file, self.schema).filter(pa.array(stays)), self.schema, "snapshot")
