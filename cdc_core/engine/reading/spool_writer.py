"""Collects rows by table before they are spooled, so that a batch has a few files per table and not hundreds."""

from __future__ import annotations

import pyarrow as pa

from cdc_core.engine.reading.batch import VersionFiles
from cdc_core.engine.reading.spool import Spool
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.schema.relation import Relation

# One file is processed by one task, so large slices are divided into files of this size.
_FILE_BYTES = 8 << 20
_HELD_BYTES = 32 << 20


class SpoolWriter:
    """Collects rows until a file is large enough; ``flush`` writes the rest. For one thread.

    A file contains rows of one version of a relation: rows of another version start the next file.
    """

    def __init__(self, spool: Spool, plan: TypingPlan) -> None:
        self._spool = spool
        self._plan = plan
        self._held: dict[int, tuple[VersionFiles, Relation, list[pa.RecordBatch]]] = {}
        self._bytes = 0

    def add(self, files: VersionFiles, relation: Relation, raw: pa.RecordBatch) -> None:
        """Add rows of one table version."""
        held = self._held.get(id(files))
        if held is not None and held[1] != relation:
            self._write(id(files))
            held = None
        if held is None:
            held = self._held[id(files)] = (files, relation, [])
        held[2].append(raw)
        self._bytes += raw.nbytes
        if sum(each.nbytes for each in held[2]) >= _FILE_BYTES:
            self._write(id(files))
        if self._bytes >= _HELD_BYTES:
            self.flush()

    def add_truncates(self, files: VersionFiles, raw: pa.RecordBatch) -> None:
        """Write truncates of one table, after the rows before them."""
        if id(files) in self._held:
            self._write(id(files))
        files.paths.append(self._spool.write_truncates(files.table, raw))

    def flush(self) -> None:
        """Write all collected rows."""
        for number in list(self._held):
            self._write(number)

    def _write(self, number: int) -> None:
        files, relation, parts = self._held.pop(number)
        self._bytes -= sum(each.nbytes for each in parts)
        raw = parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        if self._plan.has_masks(files.table):
            files.paths.extend(self._spool.write_changes(self._plan.typer(files.table), relation, raw))
        else:
            files.paths.append(self._spool.write_raw(relation, files.table, raw))
