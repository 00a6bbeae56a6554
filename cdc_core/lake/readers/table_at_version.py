"""One lake table at one Delta version, as the data frames of several libraries.

Rows are read here, file by file, so deletion vectors, column mapping and widened types are handled the same way
whichever library gets them. Only Spark reads the table itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from cdc_core.errors import LakeError
from cdc_core.lake.delete_columns import CURRENT, DELETED, is_live, live_column, mode_of
from cdc_core.lake.delta.folder import delta_uri
from cdc_core.lake.delta.storage import Location
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.schema import TableId
from cdc_core.spark import Frame, Session


@dataclass(frozen=True)
class TableAtVersion:
    """A lake table at a Delta version. Nothing is read before a method asks for rows.

    ``path`` is the table's folder or URI. ``all_rows``: also rows that the source no longer has, which are
    deleted rows in delete mode soft and earlier versions of rows in delete mode history.
    """

    table: TableId
    version: int
    path: str
    all_rows: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns: those of the source, and wal2lake's own, whose names begin with ``__``."""
        return self._opened.schema

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows as an Arrow table, with all columns or those named. Raises LakeError."""
        return self.batches(columns).read_all()

    def batches(
        self, columns: Sequence[str] | None = None, files: Collection[str] | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows a few megabytes at a time, in no particular order. Raises LakeError, also while reading.

        ``files`` are those of ``files()`` that are read; None for all.
        """
        return pa.RecordBatchReader.from_batches(self._projected(columns), self._batches(columns, files))

    def files(self) -> list[str]:
        """Return the names of the data files."""
        return [file.path for file in self._opened.files]

    def pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows as a ``pandas.DataFrame``. Raises LakeError."""
        return self.arrow(columns).to_pandas()

    def polars(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows as a ``polars.DataFrame``. Raises LakeError if Polars is not installed."""
        try:
            import polars
        except ImportError:
            raise LakeError("Polars is not installed.", "Run pip install polars, or use arrow().") from None
        return polars.from_arrow(self.arrow(columns))

    def spark(self, session: Session) -> Frame:
        """Return the table as a DataFrame of a Spark session that has Delta Lake's package; Spark reads it."""
        if isinstance(self.path, Location):
            self.path.storage.reach(session, self.path)
        rows = session.read.format("delta").option("versionAsOf", self.version).load(str(self.path))
        if self.all_rows:
            return rows
        if CURRENT in rows.columns:
            return rows.where(f"`{CURRENT}`")
        return rows.where(f"NOT coalesce(`{DELETED}`, false)") if DELETED in rows.columns else rows

    @cached_property
    def _opened(self) -> DeltaTable:
        opened = DeltaTable.open_version(self.path, self.version)
        if opened is None:
            raise LakeError(
                f"Version {self.version} of {self.table} is not in {delta_uri(self.path)} any more.",
                "Read again; wal2lake.lake.history.minutes sets how long versions are kept.",
            )
        return opened

    def _projected(self, columns: Sequence[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        unknown = [name for name in columns if name not in self.schema.names]
        if unknown:
            raise LakeError(
                f"{self.table} has no column {unknown[0]} at version {self.version}.",
                f"Its columns are {', '.join(self.schema.names)}.",
            )
        return pa.schema([self.schema.field(name) for name in columns])

    def _batches(self, columns: Sequence[str] | None, files: Collection[str] | None) -> Iterator[pa.RecordBatch]:
        opened = self._opened
        names = None if columns is None else list(columns)
        flag = None if self.all_rows else live_column(mode_of(opened.schema.names))
        read = names if names is None or flag is None or flag in names else [*names, flag]
        try:
            for file in opened.files:
                if files is not None and file.path not in files:
                    continue
                for rows in opened.batches(file, read):
                    kept = rows if flag is None else rows.filter(pa.array(is_live(rows)))
                    yield from (kept if names is None else kept.select(names)).to_batches()
        except FileNotFoundError:
            raise LakeError(
                f"A file of {self.table} at version {self.version} was removed while it was read.",
                "Read again; wal2lake.lake.history.minutes sets how long versions are kept.",
            ) from None
