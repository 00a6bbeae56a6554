"""One Spark task of a snapshot: COPY of table ranges under the exported snapshot, typed as lake rows, into files.

A task reads its ranges one after the other on one connection and in one transaction, which imports the snapshot: for
many small tables, connecting for each would take longer than reading their rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.decode import LineCutter, decode_copy
from cdc_core.errors import CdcError, LockedError
from cdc_core.lake import NewFiles, RangeFiles, ReadChecks, TypingPlan
from cdc_core.postgres import ConnectionString, SnapshotReader
from cdc_core.schema import TableId, TableSchema
from cdc_core.worker_memory import MEMORY

_CHUNK_BYTES = 4 << 20
# (snapshot, its time, table) of locked tables: one wait is enough for all ranges of a table. Two servers may give their
# snapshots one name.
_locked: dict[tuple[str, int, TableId], CdcError] = MEMORY.part()


@dataclass(frozen=True, slots=True)
class RangeOrder:
    """A range to be read: the rows of ``table`` that ``select`` returns, into new files.

    ``select`` names the columns that the table's typer reads (``RowTyper.read_columns``), in their order. ``number`` is
    the range's number in the table. ``is_users``: the SELECT is the user's own.
    """

    table: TableSchema
    number: int
    select: str
    into: NewFiles
    is_users: bool = False


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The files written, none if there are no rows; or the error that prevented the range from being read."""

    table: TableId
    number: int
    written: RangeFiles = field(default_factory=RangeFiles)
    error: CdcError | None = None


@dataclass(frozen=True, slots=True)
class CopyRanges:
    """Copies ranges into files; picklable. A later commit adds the files.

    Every task reads the same rows, because each imports ``snapshot_name``; ``commit_lsn`` and ``taken_us`` are that
    snapshot's position and time (microseconds since 1970). ``checks`` judge the rows, None to let all
    of them in.
    """

    plan: TypingPlan
    connection: ConnectionString
    snapshot_name: str
    commit_lsn: int
    taken_us: int
    lock_timeout_ms: int = 0
    checks: ReadChecks | None = None
    armed: failpoints.Armed | None = None

    def __call__(self, batch: Sequence[RangeOrder]) -> list[RangeResult]:
        """Return one result per order. An error of the server, of a value or of the lake is in its range's result."""
        failpoints.adopt(self.armed)
        results: list[RangeResult] = []
        reader: SnapshotReader | None = None
        try:
            for order in batch:
                waited = _locked.get((self.snapshot_name, self.taken_us, order.table.id))
                if waited is not None:
                    results.append(RangeResult(order.table.id, order.number, error=waited))
                    continue
                try:
                    reader = reader or SnapshotReader(self.connection, self.snapshot_name, self.lock_timeout_ms)
                    results.append(self._copied(reader, order))
                except CdcError as error:
                    results.append(RangeResult(order.table.id, order.number, error=error))
                    if isinstance(error, LockedError):
                        _locked[self.snapshot_name, self.taken_us, order.table.id] = error
                    # The failed statement has ended the transaction, and with it the imported snapshot.
                    if reader is not None:
                        reader.close()
                        reader = None
                failpoints.hit(failpoints.AFTER_SNAPSHOT_RANGE)
        finally:
            if reader is not None:
                reader.close()
        return results

    def _copied(self, reader: SnapshotReader, order: RangeOrder) -> RangeResult:
        written = order.into.write(order.table, self._rows(reader, order), self.checks)
        return RangeResult(order.table.id, order.number, written)

    def _rows(self, reader: SnapshotReader, order: RangeOrder) -> Iterator[pa.RecordBatch]:
        """Yield lake rows, about ten thousand at a time.

        Raises SourceError or TransientError from the server, ProtocolError for lines that do not match the columns.
        """
        typer, table = self.plan.typer(order.table), str(order.table.id)
        names = typer.read_columns
        cutter = LineCutter()
        # Nothing here keeps a reference to the lines while the next ones are received: a row may be large.
        copied = reader.copy(order.select, _CHUNK_BYTES, order.table.id, is_users=order.is_users)
        for lines in map(cutter.feed, copied):
            if lines:
                yield typer.reads(decode_copy(lines, names, table), self.commit_lsn, self.taken_us)
            del lines
        cutter.finish(table)

    def __repr__(self) -> str:
        return "CopyRanges()"
