"""One Spark task of a snapshot: COPY a range of a table under the exported snapshot, typed as lake rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.decode.copy_text import LineCutter, decode_copy
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.errors import LakeError
from cdc_core.postgres.connect import ConnectionString
from cdc_core.postgres.copy_out import copy_chunks
from cdc_core.schema.table import TableSchema
from cdc_core.sink.delta.replace import write_rows
from cdc_core.sink.delta.table import DataFile, DeltaTable

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ReadCopy:
    """Reads the rows that one SELECT gives, as ``RowTyper.read_schema``; picklable. Item: the SELECT's text.

    Every task sees the same rows, for each
    imports ``snapshot_name``; ``commit_lsn`` and ``taken_us`` are that snapshot's position and time.
    """

    plan: TypingPlan
    table: TableSchema
    connection: ConnectionString
    snapshot_name: str
    commit_lsn: int
    taken_us: int

    def __call__(self, item: str) -> Iterator[pa.RecordBatch]:
        """Yield lake rows, some ten thousand at a time.

        Raises SourceError or TransientError from the server, ProtocolError for lines that are not as announced.
        """
        typer = self.plan.typer(self.table)
        names = tuple(column.name for column in self.table.columns)
        cutter = LineCutter()
        for chunk in copy_chunks(self.connection, self.snapshot_name, item, _CHUNK_BYTES):
            lines = cutter.feed(chunk)
            if lines:
                columns = decode_copy(lines, names, str(self.table.id))
                yield typer.reads(columns, self.commit_lsn, self.taken_us)
        cutter.finish(str(self.table.id))

    def __repr__(self) -> str:
        return f"ReadCopy({self.table.id})"


@dataclass(frozen=True, slots=True)
class CopyIntoFiles:
    """Copies the rows that one SELECT gives into new files of a lake table; a later commit names them."""

    read: ReadCopy
    lake: str
    schema: pa.Schema

    def __call__(self, item: str) -> list[DataFile]:
        """The files written, none for no rows. Raises what ``ReadCopy`` raises, LakeError where the table is gone."""
        opened = DeltaTable.open(self.lake)
        if opened is None:
            raise LakeError(f"The Delta table {self.lake} is gone.", "Take the snapshot again.")
        return write_rows(opened, self.read(item), self.schema)
