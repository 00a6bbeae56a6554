"""Re-reads tables while streaming, in a separate thread, while all others continue.

A table that is re-read keeps its lake content until the new one is committed. Its changes are appended to its changelog
meanwhile; those that the new snapshot does not show are merged after it (docs/decisions/0003). Tables whose re-reads
were requested meanwhile are read together, each committed as soon as it is complete: to prepare a snapshot takes longer
than to read a small table, and so may the wait for older transactions.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc_core.connector_threads import ConnectorThread
from cdc_core.errors import CdcError, InvariantError, LockedError, OlderTransactionsError, UnreachableError
from cdc_core.schema import TableId
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport

_log = logging.getLogger(__name__)
_END_SECONDS = 120.0
# Errors that another attempt without the other tables would meet as well.
_OF_OTHERS = (UnreachableError, OlderTransactionsError, LockedError)

RereadTables = Callable[[Mapping[TableId, int], Callable[[SnapshotProgress], None]], Mapping[TableId, CdcError]]
"""Reads tables into the lake, with the given numbers for their new schema versions.

The function gets the progress, with the report of each table as soon as it is committed; what it raises ends the
reading. Returns the errors of the other tables. Raises the error of all of them.
"""


@dataclass(frozen=True, slots=True)
class Reread:
    """The result of a re-read: ``report``, or ``error`` if the table could not be read."""

    table: TableId
    report: SnapshotReport | None
    error: CdcError | None


class _ClosedError(Exception):
    """The run ends: no further table is begun."""


class Rereads:
    """Accepts requests and returns finished re-reads. ``take`` runs in this object's thread."""

    def __init__(self, take: RereadTables) -> None:
        self._take = take
        self._wanted: queue.Queue[tuple[TableId, int] | None] = queue.Queue()
        self._done: queue.Queue[Reread] = queue.Queue()
        self._asked: set[TableId] = set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __contains__(self, table: object) -> bool:
        return table in self._asked

    def request(self, table: TableId, schema_version: int) -> None:
        """Request a re-read of the table, unless one is in progress already."""
        if table in self._asked:
            return
        self._asked.add(table)
        self._wanted.put((table, schema_version))
        if self._thread is None:
            self._thread = ConnectorThread(target=self._run, name="reread", daemon=True)
            self._thread.start()

    def finished(self) -> list[Reread]:
        """Return the re-reads that ended since the last call."""
        ended: list[Reread] = []
        while True:
            try:
                ended.append(self._done.get_nowait())
            except queue.Empty:
                break
        self._asked -= {reread.table for reread in ended}
        return ended

    @property
    def are_under_way(self) -> bool:
        """Whether a requested re-read was not yet returned by ``finished``."""
        return bool(self._asked)

    def close(self) -> None:
        """Wait, for a bounded time, until the present reads end; no further table is begun.

        The next run requests the others again.
        """
        self._closed.set()
        if self._thread is not None:
            self._wanted.put(None)
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        try:
            while numbers := self._next():
                self._read(numbers)
        except _ClosedError:
            return

    def _next(self) -> dict[TableId, int]:
        """Return the requests that are waiting, as soon as there is one; none at the end."""
        request, numbers = self._wanted.get(), dict[TableId, int]()
        while request is not None:
            table, number = request
            numbers[table] = number
            try:
                request = self._wanted.get_nowait()
            except queue.Empty:
                return numbers
        return {}

    def _read(self, numbers: Mapping[TableId, int]) -> None:
        """Read tables together. One that could not be read is tried again without the others, before its error counts.

        One table can be the cause of an error that all of them have, and one that is altered while many are read may
        not be while it is read alone.
        """
        left, begun = dict(numbers), set[TableId]()

        def listen(progress: SnapshotProgress) -> None:
            table = progress.table
            if progress.report is not None:
                del left[table]
                self._done.put(Reread(table, progress.report, None))
            elif table not in begun:
                if self._closed.is_set():
                    raise _ClosedError
                begun.add(table)

        errors = self._errors(numbers, listen)
        for table, number in dict(left).items():
            error = errors[table]
            if len(numbers) == 1 or isinstance(error, _OF_OTHERS):
                self._done.put(Reread(table, None, error))
            else:
                self._read({table: number})

    def _errors(
        self, numbers: Mapping[TableId, int], listen: Callable[[SnapshotProgress], None]
    ) -> Mapping[TableId, CdcError]:
        try:
            return self._take(numbers, listen)
        except CdcError as error:
            return dict.fromkeys(numbers, error)
        except _ClosedError:
            raise
        except Exception as error:
            # The thread must stay alive for other tables, and the run waits for the result of its request.
            names = ", ".join(map(str, numbers))
            _log.exception("Re-reading %s failed unexpectedly.", names)
            problem = f"Re-reading {names} failed unexpectedly ({type(error).__name__})."
            remedy = f"Please report this with the log; run wal2lake replay with {names} to try again."
            return dict.fromkeys(numbers, InvariantError(problem, remedy))
