"""The lake table that a table of the source is read into, and the files that tasks write for it before its commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.errors import LakeError, TransientError
from cdc_core.lake.delete_columns import COLUMNS
from cdc_core.lake.delete_modes import DeleteMode, check_key
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import lake_position
from cdc_core.lake.rows.change_rows import RowTyper
from cdc_core.lake.stores.range_log import FinishedRange
from cdc_core.lake.write.refused_reads import ReadChecks, RefusedFile, RowGate, discard
from cdc_core.lake.write.replace import prepare, write_rows
from cdc_core.lake.write.take_out import TakeOut
from cdc_core.schema import TableSchema
from cdc_core.spark import Session, balanced, parallelism, run_tasks


@dataclass(frozen=True, slots=True)
class RangeFiles:
    """What a task has written of a table: files of its rows, and files of rows that a rule refuses.

    No commit names them yet.
    """

    files: tuple[DataFile, ...] = ()
    refused: tuple[RefusedFile, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows that are not refused."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class NewFiles:
    """New files of the lake table at ``path``, whose columns are those of ``schema``; picklable."""

    path: str
    schema: pa.Schema

    def write(self, table: TableSchema, rows: Iterator[pa.RecordBatch], checks: ReadChecks | None) -> RangeFiles:
        """Write lake rows, of which columns may be missing: these are null.

        ``checks`` judge the rows, None to let all of them in. Nothing is visible before a commit. Raises LakeError.
        """
        lake = DeltaTable.open(self.path)
        if lake is None:
            raise LakeError(f"The Delta table {self.path} no longer exists.", "Take the snapshot again.")
        if checks is None:
            return RangeFiles(tuple(write_rows(lake, rows, self.schema)))
        gate = RowGate(checks, table, lake)
        files = write_rows(lake, gate.passing(rows), self.schema)
        return RangeFiles(tuple(files), tuple(gate.files))


@dataclass(frozen=True, slots=True, eq=False)
class ReadTarget:
    """The lake table into which ``table`` is read, with the columns of ``schema``. For the thread that opened it.

    ``token`` is that of the snapshot in force, None if it has none. ``keeps_gone_rows``: the lake keeps rows that the
    source no longer has, by its delete mode.
    """

    table: TableSchema
    lake: DeltaTable
    schema: pa.Schema
    token: int | None
    keeps_gone_rows: bool

    @classmethod
    def open(cls, paths: LakePaths, scope: str, typer: RowTyper, mode: DeleteMode, history_minutes: int) -> ReadTarget:
        """Open the lake table, which is created if it does not exist.

        Raises MissingKeyError for a table without the key that the delete mode needs, TableError, UnreadableError.
        """
        table = typer.table
        check_key(table, mode)
        schema = pa.schema([*typer.read_schema, *COLUMNS[mode]])
        lake = prepare(paths.lake(table.id), schema, table.id, history_minutes)
        token = lake_position(lake, scope, table.id).token
        return cls(table, lake, schema, token, mode is not DeleteMode.HARD)

    @property
    def new_files(self) -> NewFiles:
        """Where tasks write."""
        return NewFiles(self.lake.path, self.schema)

    def has(self, finished: FinishedRange) -> bool:
        """Whether the files of a range exist."""
        return all(self.lake.has(file) for file in finished.files)

    def discard(self, parts: Iterable[RangeFiles]) -> None:
        """Remove files that are not committed."""
        for part in parts:
            self.lake.discard(part.files)
            discard(self.lake, part.refused)

    def discard_unnamed(self, finished: Iterable[FinishedRange]) -> None:
        """Remove the files of ranges that the last commit of this object did not add."""
        named = {file.path for file in self.lake.files}
        self.lake.discard([file for entry in finished for file in entry.files if file.path not in named])

    def continued(self, spark: Session, kept: Sequence[FinishedRange], fresh: Sequence[RangeFiles]) -> RangeFiles:
        """Return the files of earlier attempts without the rows whose keys are among those of ``fresh``.

        Raises TransientError if another run has committed some of them.
        """
        files = [file for entry in kept for file in entry.files]
        self.lake.refresh()
        named = {file.path for file in self.lake.files}
        if any(file.path in named for file in files):
            raise TransientError(
                f"Another run has committed its snapshot of {self.table.id} concurrently.", "Run the snapshot again."
            )
        written = tuple(file for part in fresh for file in part.files)
        refused = tuple(file for part in fresh for file in part.refused)
        if not written and not refused:
            return RangeFiles(tuple(files))
        work = TakeOut(self.lake.path, self.schema, self.table.row_key, written, refused)
        groups = balanced(files, lambda file: file.rows, 2 * parallelism(spark))
        doing = f"removing changed rows of {self.table.id} from the data files of an earlier attempt"
        pairs = [pair for done in run_tasks(spark, [[group] for group in groups], work, doing) for pair in done]
        return RangeFiles(tuple(file for _, file in pairs if file is not None))
