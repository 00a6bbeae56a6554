"""Writes rows that a task has read from the source to new files of a lake table, which a later commit adds."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from cdc_core.errors import LakeError
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.write.refused_reads import ReadChecks, RefusedFile, RowGate
from cdc_core.lake.write.replace import write_rows
from cdc_core.schema import TableSchema


def write_reads(
    path: str, table: TableSchema, schema: pa.Schema, rows: Iterator[pa.RecordBatch], checks: ReadChecks | None
) -> tuple[tuple[DataFile, ...], tuple[RefusedFile, ...]]:
    """Write lake rows to the lake table at ``path``; returns the files, and those with the rows that a rule refuses.

    ``schema`` is that of the files: columns missing in the rows are null. ``checks`` judge the rows, None to let all of
    them in. Nothing is visible before the files are committed. Raises LakeError.
    """
    lake = DeltaTable.open(path)
    if lake is None:
        raise LakeError(f"The Delta table {path} no longer exists.", "Take the snapshot again.")
    if checks is None:
        return tuple(write_rows(lake, rows, schema)), ()
    gate = RowGate(checks, table, lake)
    files = write_rows(lake, gate.passing(rows), schema)
    return tuple(files), tuple(gate.files)
