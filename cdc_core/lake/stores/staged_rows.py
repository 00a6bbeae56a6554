"""Rows of incremental snapshots that were read and are not in their lake tables yet: one Delta table for all tables.

    task    reads a range ─▶ one data file: a row for each chunk, then one with the facts of the range
    driver  one commit adds the file                              the range is *staged*, and survives every process
    stream  writes the rows to the lake table ─▶ one commit removes the file

A chunk is kept as Arrow's stream format in a column of bytes, so that one table holds rows of all tables and versions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.errors import TransientError, UnreadableError
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.log_table import log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.delta.vector_log import LAST_CHECKPOINT, entry_name
from cdc_core.lake.maintenance.cleaning import vacuum

_log = logging.getLogger(__name__)

_SCHEMA = pa.schema(
    [
        ("facts", pa.string()),
        ("visible", pa.string()),
        ("floor", pa.int64()),
        ("rows", pa.int64()),
        ("chunk", pa.binary()),
    ]
)
_HEADS = ["facts", "visible", "floor", "rows"]
# A part of a range that is written in one commit is read by its row groups.
_GROUP_BYTES = 8 << 20
# A range is staged within minutes after its file was written; a file of this age was left by a process that was killed.
_UNSTAGED_HOURS, _HISTORY_MINUTES = 24, 60


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """One chunk of a staged range, at ``place`` in its file: the text of its pg_snapshot, its floor, and its rows."""

    place: int
    visible: str
    floor: int
    rows: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A staged range: its data file, the text that describes it, and its chunks in reading order."""

    file: DataFile
    facts: str
    chunks: tuple[StagedChunk, ...]

    @property
    def rows(self) -> int:
        """Rows in all chunks."""
        return sum(chunk.rows for chunk in self.chunks)


class StagedRows:
    """The staged ranges of one connector, of all processes. For one thread."""

    def __init__(self, path: str, properties: dict[str, str]) -> None:
        self._path = path
        self._folder = Folder(path)
        self._properties = properties
        self._opened: DeltaTable | None = None
        self._known: dict[str, StagedFile] = {}
        self._said: set[str] = set()
        self._is_cleaned = False

    def create(self) -> None:
        """Create the table if it is missing: tasks write files for it. Remove what killed processes left, once."""
        log = self._log()
        if not self._is_cleaned:
            self._is_cleaned = True
            vacuum(log, _HISTORY_MINUTES, _UNSTAGED_HOURS)

    def look(self) -> list[StagedFile]:
        """Return the staged ranges. Raises LakeError."""
        if self._opened is None and self._may_exist():
            self._opened = DeltaTable.open(self._path)
        log = self._opened
        if log is None:
            return []
        log.refresh()
        staged = {file.path: self._known.get(file.path) or self._described(log, file) for file in log.files}
        self._known = {path: known for path, known in staged.items() if known is not None}
        return list(self._known.values())

    def add(self, staged: StagedFile, instead_of: StagedFile | None = None) -> None:
        """Stage a range that a task has written; ``instead_of`` is removed in the same commit.

        Nothing is added if ``instead_of`` is no longer staged. Raises TransientError after repeated conflicts.
        """
        log = self._log()

        def attempt() -> bool:
            before = [former for former in log.files if instead_of is not None and former.path == instead_of.file.path]
            if instead_of is not None and not before:
                return False
            log.commit([staged.file], before)
            return True

        log.refresh()
        if not on_conflict(attempt, log):
            log.discard([staged.file])
        elif instead_of is not None:
            log.discard([instead_of.file])

    def remove(self, ranges: Iterable[StagedFile]) -> None:
        """Remove ranges that were written to their lake tables, or are not to be. May be repeated."""
        if (paths := {staged.file.path for staged in ranges}) and self._opened is not None:
            log = self._opened

            def attempt() -> list[DataFile]:
                there = [file for file in log.files if file.path in paths]
                if there:
                    log.commit((), there)
                return there

            log.refresh()
            log.discard(on_conflict(attempt, log))

    def discard(self, written: StagedFile) -> None:
        """Remove the file of a range that was not staged."""
        self._log().discard([written.file])

    @property
    def is_local(self) -> bool:
        """Whether to ``look`` asks no object store."""
        return self._folder.is_local

    def _may_exist(self) -> bool:
        """Whether there may be a table: in a store, to ask for two objects costs less than to list the log."""
        signs = [entry_name(0), LAST_CHECKPOINT]
        return self.is_local or self._folder.missing(signs) != signs

    def _described(self, log: DeltaTable, file: DataFile) -> StagedFile | None:
        """Return what a file has; None, with a warning, if it cannot be read: other ranges are not held up by it."""
        try:
            heads = log.read(file, _HEADS)
        except UnreadableError as error:
            if file.path not in self._said:
                self._said.add(file.path)
                _log.warning("A staged range is left out, because its file cannot be read: %s", error.message)
            return None
        *chunks, facts = heads.to_pylist()  # row-wise: one row a chunk of about a thousand rows
        made = (StagedChunk(at, chunk["visible"], chunk["floor"], chunk["rows"]) for at, chunk in enumerate(chunks))
        return StagedFile(file, facts["facts"], tuple(made))

    def _log(self) -> DeltaTable:
        self._opened = log_table(self._opened, self._path, _SCHEMA, self._properties)
        return self._opened


def write_staged(path: str, chunks: Iterator[tuple[str, int, pa.RecordBatch]], facts: Iterator[str]) -> StagedFile:
    """Write the chunks of a range (pg_snapshot, floor, lake rows), then what describes it; in a task.

    ``facts`` is asked for its only text after the last chunk. The range is not staged yet (``StagedRows.add``).
    """
    table = DeltaTable.open(path)
    if table is None:
        raise TransientError(f"The Delta table {path} no longer exists.", "The range is read again.")

    written, described = list[StagedChunk](), list[str]()

    def rows() -> Iterator[pa.RecordBatch]:
        for visible, floor, batch in chunks:
            written.append(StagedChunk(len(written), visible, floor, batch.num_rows))
            yield _row(None, visible, floor, batch.num_rows, _packed(batch))
        described.append(next(facts))
        yield _row(described[0], None, None, None, None)

    file = table.write_one(rows(), _SCHEMA, _GROUP_BYTES, "range")
    return StagedFile(file, described[0], tuple(written))


def read_staged(path: str, file: DataFile, places: Sequence[int]) -> list[pa.Table]:
    """Return the lake rows of the chunks at ``places``, ascending. Raises TransientError if the file was removed."""
    table = DeltaTable.open(path)
    if table is None:
        raise TransientError(f"The Delta table {path} no longer exists.", "The rows will be read again.")
    try:
        rows = table.read_at(file, pa.array(places, pa.int64()).to_numpy(), ["chunk"])
    except UnreadableError as error:
        raise TransientError(error.message, "It is tried again; the range can be asked for again.") from None
    return [_unpacked(octets.as_buffer()) for octets in rows.column("chunk")]


def _row(
    facts: str | None, visible: str | None, floor: int | None, rows: int | None, chunk: pa.Buffer | None
) -> pa.RecordBatch:
    values = (facts, visible, floor, rows, chunk)
    columns = [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _unpacked(buffer: pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(buffer) as reader:
        return reader.read_all()
