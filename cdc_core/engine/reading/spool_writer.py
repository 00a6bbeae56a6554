"""Collects rows by table before they are spooled, so that a batch has a few files per table and not hundreds."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from cdc_core.engine.reading.batch import VersionFiles
from cdc_core.lake import Spool, TypingPlan
from cdc_core.schema import Relation

# One file is processed by one task, so large slices are divided into files of this size.
_FILE_BYTES = 8 << 20
_HELD_BYTES = 32 << 20


@dataclass(slots=True)
class _Held:
    """Rows of one version of a relation that are not in a file yet. ``size``: bytes, counted as they are added."""

    files: VersionFiles
    relation: Relation
    parts: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0


class SpoolWriter:
    """Collects rows until a file is large enough; ``flush`` writes the rest. For one thread.

    A file contains rows of one version of a relation: rows of another version start the next file.
    """

    def __init__(self, spool: Spool, plan: TypingPlan) -> None:
        self._spool = spool
        self._plan = plan
        self._held: dict[int, _Held] = {}
        self._bytes = 0

    def add(self, files: VersionFiles, relation: Relation, raw: pa.RecordBatch, size: int) -> None:
        """Add rows of one table version; ``size`` is ``raw.nbytes``, which costs too much to compute twice."""
        buffer = self._held.get(id(files))
        if buffer is not None and buffer.relation != relation:
            self._write(id(files))
            buffer = None
        if buffer is None:
            buffer = self._held[id(files)] = _Held(files, relation)
        buffer.parts.append(raw)
        buffer.size += size
        self._bytes += size
        if buffer.size >= _FILE_BYTES:
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
        buffer = self._held.pop(number)
        self._bytes -= buffer.size
        files, parts = buffer.files, buffer.parts
        raw = parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        if self._plan.has_masks(files.table):
            files.paths.extend(self._spool.write_changes(self._plan.typer(files.table), buffer.relation, raw))
        else:
            files.paths.append(self._spool.write_raw(buffer.relation, files.table, raw))
