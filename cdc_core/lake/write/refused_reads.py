"""Rows that were read from the source and that a rule refuses: they are kept out of the lake, in quarantine.

    rows read ─▶ judged in the task that reads them ─▶ passing: files of the lake table
                                                    └▶ refused: files beside them ─▶ changelog ─▶ quarantine

No event in the changelog has such a row, so it gets one of its own (op r), from which a replay reads it. The event's
position is that of the rows that were read with it, with an index below that of every row in the changelog: it is
unique, follows every change that the row shows, and precedes every later one. The changelog is committed before the
quarantine table, and that before the lake table: a crash in between leaves rows that the next attempt supersedes, never
a row that is in neither.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.errors import LakeError
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.schema.change_columns import stored, stored_schema
from cdc_core.lake.schema.lake_schema import changelog_properties, ensure_table
from cdc_core.lake.stores.snapshot_events import as_reads
from cdc_core.schema import TableId, TableSchema

_REASONS = "__wal2lake_reasons"
_FILE_ROWS, _FILE_BYTES = 50_000, 32 << 20
_READ = -1


class ReadChecks(Protocol):
    """The rules by which rows that are read may enter the lake; picklable."""

    def judge_reads(self, table: TableSchema, rows: pa.Table) -> tuple[np.ndarray, pa.ListArray] | None:
        """Return which lake rows a rule refuses, and the rules that each of these fails; None if none is refused.

        Shape: lake rows[N] -> bool[N], list<string>[refused rows]. Raises CdcError if they cannot be judged.
        """

    def require_limits(self, table: TableId, refused: int, rows: int, waiting: int) -> None:
        """Raise LimitExceededError if more of a table's rows are refused, or would wait in quarantine, than may."""


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Lake rows that are refused, and the rules that each of them fails. Shape: table[N], list<string>[N]"""

    rows: pa.Table
    reasons: pa.ListArray


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file of refused rows beside a lake table's files, which no commit names, and how many rows fail each rule."""

    path: str
    rows: int
    reasons: dict[str, int]

    def read(self, lake: DeltaTable) -> RefusedRows:
        """Return the rows. Raises LakeError if the file was removed."""
        try:
            content = lake.folder.content(self.path)
        except OSError:
            raise LakeError(
                f"The file {self.path} of {lake.path} no longer exists.", "Take the snapshot again."
            ) from None
        with pa.ipc.open_file(content) as reader:
            table = reader.read_all().combine_chunks()
        return RefusedRows(table.drop_columns([_REASONS]), table.column(_REASONS).chunk(0))


@dataclass(slots=True)
class RowGate:
    """Takes the refused rows out of what a task reads of one table; of these it keeps at most a file in memory."""

    checks: ReadChecks
    table: TableSchema
    lake: DeltaTable
    files: list[RefusedFile] = field(default_factory=list)
    _kept: list[pa.Table] = field(default_factory=list)

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches without the rows that are refused; these are in ``files`` at the end."""
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            verdict = self.checks.judge_reads(self.table, rows)
            if verdict is None:
                yield batch
                continue
            mask, reasons = verdict
            self._kept.append(rows.filter(pa.array(mask)).append_column(_REASONS, reasons))
            if sum(kept.num_rows for kept in self._kept) >= _FILE_ROWS or self._bytes >= _FILE_BYTES:
                self._write()
            yield batch.filter(pa.array(~mask))
        self._write()

    @property
    def _bytes(self) -> int:
        return sum(kept.nbytes for kept in self._kept)

    def _write(self) -> None:
        if not self._kept:
            return
        rows = pa.concat_tables(self._kept)
        self._kept.clear()
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(rows)
        path = f"refused-{uuid.uuid4()}.arrow"
        self.lake.folder.write(path, out.getvalue().to_pybytes())
        self.files.append(RefusedFile(path, rows.num_rows, counted(rows.column(_REASONS))))


@dataclass(frozen=True, slots=True)
class Quarantining:
    """Where refused rows of a table, read under ``schema_version``, are kept."""

    paths: LakePaths
    scope: str
    table: TableSchema
    schema_version: int
    history_minutes: int

    def rows(self, parts: Iterable[RefusedRows]) -> Iterator[pa.Table]:
        """Yield the parts as rows of the quarantine table; after the last one, all of them are in the changelog.

        Raises TransientError after repeated conflicts.
        """
        from cdc_core.quality import as_quarantine_rows  # loads DuckDB, which is needed for refused rows only

        epoch, files = epoch_of(self.scope), list[DataFile]()
        changelog = DeltaTable.open(self.paths.changelog(self.table.id))
        last = _READ if changelog is None else _lowest_index(changelog)
        for part in parts:
            reads = _placed(as_reads(part.rows), last)
            last -= reads.num_rows
            schema = stored_schema(reads.schema, self.schema_version, changelog and changelog.schema, epoch)
            changelog = ensure_table(
                self.paths.changelog(self.table.id),
                schema,
                self.table.id,
                changelog_properties(self.history_minutes),
                changelog,
            )
            files.append(changelog.write(stored(reads, self.schema_version, changelog.schema, epoch)))
            yield as_quarantine_rows(reads, part.reasons, self.table.row_key)
        if changelog is not None and files:
            target, meta = changelog, {"slot": self.scope, "refused": -last}
            on_conflict(lambda: target.commit(files, metadata=meta), target)


def counted(reasons: pa.ChunkedArray | pa.ListArray) -> dict[str, int]:
    """Return how many rows fail each rule. Shape: list<string>[N]"""
    return dict(Counter(name for names in reasons.to_pylist() for name in names))  # row-wise: refused rows


def summed(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sum of counts by rule, the largest first."""
    total: Counter[str] = Counter()
    for by_rule in counts:
        total.update(by_rule)
    return dict(total.most_common())


def told(reasons: Mapping[str, int]) -> str:
    """Return the rules and how many rows fail each, for a message."""
    return ", ".join(f"{name} {count:,}" for name, count in reasons.items())


def _lowest_index(changelog: DeltaTable) -> int:
    """Return the lowest index of a row in the changelog, at most that of rows that were read."""
    lowest = _READ
    for file in changelog.files:
        known = file.minimum.get("__tx_index")
        if known is None:
            values = changelog.read(file, ["__tx_index"]).column(0)
            known = min(values.to_numpy(), default=_READ)
        lowest = min(lowest, int(known))
    return lowest


def _placed(reads: pa.Table, after: int) -> pa.Table:
    at = reads.schema.get_field_index("__tx_index")
    index = pa.array(after - 1 - np.arange(reads.num_rows, dtype=np.int64))
    return reads.set_column(at, reads.schema.field(at), index)


def discard(lake: DeltaTable, files: Sequence[RefusedFile]) -> None:
    """Remove files of refused rows."""
    for file in files:
        lake.folder.delete([file.path])
