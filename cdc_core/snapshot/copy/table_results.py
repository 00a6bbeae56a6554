"""The results of a snapshot of several tables in which one table's error does not end the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cdc_core.errors import CdcError, TransientError
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport

T = TypeVar("T")


class TableResults:
    """Collects reports and errors by table. Thread-safe.

    ``raises``: an error of one table is raised instead, other than those of a type in ``kept``.
    """

    def __init__(self, *, raises: bool, kept: tuple[type[CdcError], ...] = ()) -> None:
        self._raises = raises
        self._kept = kept
        self._reports: dict[TableId, SnapshotReport] = {}
        self._errors: dict[TableId, CdcError] = {}

    def __contains__(self, table: TableId) -> bool:
        """Whether the table has an error."""
        return table in self._errors

    def listen(self, progress: SnapshotProgress) -> None:
        """Record the report of a committed table."""
        if progress.report is not None:
            self._reports[progress.table] = progress.report

    def note(self, table: TableId, error: CdcError) -> None:
        """Record a table's error, or raise it if this snapshot does not continue after it."""
        if self._raises and not isinstance(error, self._kept):
            raise error
        self._errors[table] = error

    def attempt(self, table: TableId, work: Callable[[], T]) -> T | None:
        """Return the result of ``work`` for a table, None after a recorded error."""
        try:
            return work()
        except CdcError as error:
            self.note(table, error)
            return None

    def note_all(self, tables: Sequence[TableSchema], error: CdcError) -> None:
        """Record an error that ended the snapshot; tables that were committed before keep their reports."""
        if isinstance(error, TransientError):
            raise error
        for table in tables:
            self._errors.setdefault(table.id, error)

    @property
    def errors(self) -> dict[TableId, CdcError]:
        """The tables' errors."""
        return dict(self._errors)

    @property
    def final(self) -> dict[TableId, SnapshotReport | CdcError]:
        """The tables' reports and errors; without temporary errors, after which a table can be read again."""
        lasting = {table: error for table, error in self._errors.items() if not isinstance(error, TransientError)}
        return {**lasting, **self._reports}
